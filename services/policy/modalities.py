"""A policy's modality <-> the map of configurations that GR00T's `get_modality_config` answers with."""

from __future__ import annotations

from collections.abc import Mapping

from proto.errors import BadMessage
from proto.groot import ActionConfig, ModalityConfig
from so101.policies import Modality


def to_wire(modality: Modality) -> dict[str, ModalityConfig]:
    """The four configurations of `modality`."""
    actions = tuple(
        ActionConfig(rep="RELATIVE" if name in modality.relative else "ABSOLUTE") for name in modality.action
    )
    return {
        "video": ModalityConfig(_steps(modality.video_steps), modality.video),
        "state": ModalityConfig(_steps(modality.state_steps), tuple(modality.state)),
        "action": ModalityConfig(tuple(range(modality.horizon)), tuple(modality.action), action_configs=actions),
        "language": ModalityConfig((0,), (modality.language,)),
    }


def from_wire(configs: Mapping[str, object]) -> Modality:
    """The modality that `configs` describe; they do not tell how many numbers a group has.

    Raises:
        BadMessage: one is missing or cannot be meant.
    """
    missing = [
        name for name in ("video", "state", "action", "language") if not isinstance(configs.get(name), ModalityConfig)
    ]
    if missing:
        raise BadMessage(
            f"the server describes no {', '.join(missing)} modality (it sent: {', '.join(configs) or 'nothing'})"
        )
    video, state, action, language = (configs[name] for name in ("video", "state", "action", "language"))
    if len(language.modality_keys) != 1 or not action.delta_indices or not action.modality_keys:
        raise BadMessage(
            f"the server's modality has {len(language.modality_keys)} language keys, {len(action.modality_keys)} "
            f"action keys and a horizon of {len(action.delta_indices)}; needed are 1, and at least 1 and 1"
        )
    reps = [config.rep for config in action.action_configs or ()]
    return Modality(
        video=video.modality_keys,
        state=dict.fromkeys(state.modality_keys),
        action=dict.fromkeys(action.modality_keys),
        language=language.modality_keys[0],
        horizon=len(action.delta_indices),
        relative=tuple(name for name, rep in zip(action.modality_keys, reps, strict=False) if rep == "RELATIVE"),
        video_steps=len(video.delta_indices),
        state_steps=len(state.delta_indices),
    )


def _steps(count: int) -> tuple[int, ...]:
    return tuple(range(1 - count, 1))
