"""What a policy takes and gives, as GR00T describes it on the wire."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from proto.errors import BadMessage

REPRESENTATIONS = ("RELATIVE", "DELTA", "ABSOLUTE")
TYPES = ("EEF", "NON_EEF")
FORMATS = ("DEFAULT", "XYZ_ROT6D", "XYZ_ROTVEC")


@dataclass(frozen=True)
class ActionConfig:
    """How one action key was trained; enumerations by their upper-case names."""

    rep: str = "ABSOLUTE"
    type: str = "NON_EEF"
    format: str = "DEFAULT"
    state_key: str | None = None


@dataclass(frozen=True)
class ModalityConfig:
    """One of `video`, `state`, `action`, `language`.

    Attributes:
        delta_indices: time steps, 0 = now; the action's are the horizon.
        modality_keys: e.g. ("front", "wrist").
        action_configs: one a key, for `action` alone.
    """

    delta_indices: tuple[int, ...]
    modality_keys: tuple[str, ...]
    sin_cos_embedding_keys: tuple[str, ...] | None = None
    mean_std_embedding_keys: tuple[str, ...] | None = None
    action_configs: tuple[ActionConfig, ...] | None = None


def to_map(config: ModalityConfig) -> dict[str, Any]:
    """The five fields that GR00T's own class takes, no more: it refuses any other."""
    fields = dict(vars(config))
    if config.action_configs is not None:
        fields["action_configs"] = [dict(vars(action)) for action in config.action_configs]
    return fields


def from_map(values: Any) -> ModalityConfig:
    """The configuration in a decoded `as_json`, which older peers send as a JSON string. Fields we do not know are left
    out.

    Raises:
        BadMessage: says which field is wrong.
    """
    if isinstance(values, (str, bytes)):
        try:
            values = json.loads(values)
        except (ValueError, RecursionError):
            raise BadMessage("ModalityConfig.as_json is a string, but no JSON") from None
    if not isinstance(values, dict):
        raise BadMessage(f"ModalityConfig.as_json must be a map, got {type(values).__name__}")
    configs = values.get("action_configs")
    return ModalityConfig(
        delta_indices=_list(values, "delta_indices", int),
        modality_keys=_list(values, "modality_keys", str),
        sin_cos_embedding_keys=_optional(values, "sin_cos_embedding_keys"),
        mean_std_embedding_keys=_optional(values, "mean_std_embedding_keys"),
        action_configs=None if configs is None else tuple(map(_action, _list(values, "action_configs", dict))),
    )


def _list(values: dict, key: str, kind: type) -> tuple:
    found = values.get(key)
    if not isinstance(found, list) or not all(type(item) is kind for item in found):
        raise BadMessage(f"ModalityConfig.{key} must be a list of {kind.__name__}, got {str(found)[:80]}")
    return tuple(found)


def _optional(values: dict, key: str) -> tuple[str, ...] | None:
    return None if values.get(key) is None else _list(values, key, str)


def _action(values: dict) -> ActionConfig:
    known = {"rep": REPRESENTATIONS, "type": TYPES, "format": FORMATS}
    found = {key: str(values.get(key, "")).upper() for key in known}
    for key, allowed in known.items():
        if found[key] not in allowed:
            raise BadMessage(f"action_configs: {key} is {str(values.get(key))[:40]!r}; it must be {', '.join(allowed)}")
    state_key = values.get("state_key")
    if state_key is not None and type(state_key) is not str:
        raise BadMessage("action_configs: state_key must be text or nil")
    return ActionConfig(**found, state_key=state_key)
