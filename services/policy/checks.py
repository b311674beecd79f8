"""Whether an observation is what a policy takes. Every fault names key, shape, dtype, and what was expected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from so101.errors import did_you_mean
from so101.policies import Action, Modality, Observation
from so101.policies.base import PolicyError

_GROUPS = ("video", "state", "language")
_SHOWN = 32  # keys of a stranger that an error repeats, and characters of each


def check_observation(observation: Any, modality: Modality) -> Observation:
    """The observation with the keys the policy takes and no others.

    Raises:
        PolicyError: all faults.
    """
    if not isinstance(observation, dict):
        raise PolicyError(f"observation must be a map of {', '.join(_GROUPS)}, got {_kind(observation)}")
    faults = [
        f"{group} must be a map, got {_kind(observation[group])}"
        if group in observation
        else f"{group} is missing (sent: {', '.join(_some_keys(observation)) or 'nothing'})"
        for group in _GROUPS
        if not isinstance(observation.get(group), dict)
    ]
    if not faults:
        checked, faults = _check_groups(observation, modality)
    if faults:
        raise PolicyError("observation: " + "; ".join(faults))
    return checked


def _check_groups(observation: Observation, modality: Modality) -> tuple[Observation, list[str]]:
    wanted = {"video": modality.video, "state": tuple(modality.state), "language": (modality.language,)}
    faults, checked = [], {}
    for group, keys in wanted.items():
        sent = observation[group]
        for key in keys:
            if key not in sent:
                some = _some_keys(sent)
                found = ", ".join(some) or "nothing"
                faults.append(f"{group}.{key} is missing ({group} has: {found}{did_you_mean(key, some)})")
        checked[group] = {key: sent[key] for key in keys if key in sent}
    for key, value in checked["video"].items():
        faults += _video_faults(f"video.{key}", value, modality.video_steps)
    for key, value in checked["state"].items():
        faults += _state_faults(f"state.{key}", value, modality.state_steps, modality.state[key])
    for key, value in checked["language"].items():
        faults += _language_faults(f"language.{key}", value)
    if not faults:
        faults += _batch_faults(checked)
    return checked, faults


def _video_faults(name: str, value: Any, steps: int) -> Iterator[str]:
    expected = f"uint8 (B, {steps}, H, W, 3) RGB"
    if not isinstance(value, np.ndarray):
        yield f"{name} must be an array {expected}, got {_kind(value)}"
    elif value.dtype != np.uint8:
        yield f"{name} has dtype {value.dtype}, expected {expected}"
    elif value.ndim != 5 or value.shape[1] != steps or value.shape[4] != 3 or 0 in value.shape:
        yield f"{name} has shape {value.shape}, expected {expected}"


def _state_faults(name: str, value: Any, steps: int, size: int | None) -> Iterator[str]:
    expected = f"float32 (B, {steps}, {size or 'D'})"
    if not isinstance(value, np.ndarray):
        yield f"{name} must be an array {expected}, got {_kind(value)}"
    elif value.dtype != np.float32:
        yield f"{name} has dtype {value.dtype}, expected {expected}"
    elif (
        value.ndim != 3 or value.shape[1] != steps or (size is not None and value.shape[2] != size) or 0 in value.shape
    ):
        yield f"{name} has shape {value.shape}, expected {expected}"
    elif not np.isfinite(value).all():
        yield f"{name} holds values that are not finite"


def _language_faults(name: str, value: Any) -> Iterator[str]:
    expected = "a list of B lists of one text"
    if not isinstance(value, list) or not value:
        yield f"{name} must be {expected}, got {_kind(value)}"
    elif not all(isinstance(item, list) and len(item) == 1 and isinstance(item[0], str) for item in value):
        yield f"{name} must be {expected}, got a list of {_kind(value[0])}"


def _batch_faults(observation: Observation) -> Iterator[str]:
    sizes = {f"{group}.{key}": len(value) for group, values in observation.items() for key, value in values.items()}
    if len(set(sizes.values())) > 1:
        yield "B differs: " + ", ".join(f"{name} has {size}" for name, size in sizes.items())


def check_action(action: Mapping[str, Any], modality: Modality) -> Action:
    """The action with the keys of the modality and no others.

    Raises:
        PolicyError: the policy broke its word; all faults.
    """
    faults = []
    for key, size in modality.action.items():
        value = action.get(key)
        expected = f"float32 (B, {modality.horizon}, {size or 'D'})"
        if not isinstance(value, np.ndarray):
            faults.append(f"{key} must be an array {expected}, is {_kind(value)}")
        elif value.dtype != np.float32:
            faults.append(f"{key} has dtype {value.dtype}, expected {expected}")
        elif value.ndim != 3 or value.shape[1] != modality.horizon or (size is not None and value.shape[2] != size):
            faults.append(f"{key} has shape {value.shape}, expected {expected}")
        elif not np.isfinite(value).all():
            faults.append(f"{key} holds values that are not finite")
    if faults:
        raise PolicyError("the policy gave a wrong action: " + "; ".join(faults))
    return {key: action[key] for key in modality.action}


def _some_keys(sent: Mapping[str, Any]) -> list[str]:
    return [name[:_SHOWN] for name in list(sent)[:_SHOWN]]


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype} {value.shape}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return (
        "nil" if value is None else {"dict": "a map", "str": "a text"}.get(type(value).__name__, type(value).__name__)
    )
