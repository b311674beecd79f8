"""Observations and actions of N1.5 (W1) <-> those of N1.6 (W2, W3): flat keys without a batch, nested maps with one."""

from __future__ import annotations

from typing import Any

import numpy as np

from proto.errors import BadMessage

GROUPS = ("video", "state")


def is_flat(data: dict[str, Any]) -> bool:
    """Whether the data of a get_action request is an N1.5 observation."""
    return "observation" not in data and any(key.startswith(tuple(f"{group}." for group in GROUPS)) for key in data)


def nested_observation(flat: dict[str, Any]) -> dict[str, Any]:
    """``video.front`` (T, H, W, 3), ``state.arm`` (T, D), ``annotation...`` [text] -> N1.6 with a batch of one. Floats
    of any width become float32, as N1.5 takes them."""
    observation: dict[str, Any] = {"video": {}, "state": {}, "language": {}}
    for key, value in flat.items():
        group, _, name = key.partition(".")
        if group in GROUPS and isinstance(value, np.ndarray):
            if group == "state" and value.dtype.kind == "f":
                value = value.astype(np.float32)
            observation[group][name] = value[None]
        elif group in GROUPS:
            observation[group][name] = value  # the check of observations says what is wrong with it
        else:
            text = value[0] if isinstance(value, list) and len(value) == 1 else value
            observation["language"][key] = [[text]]
    return observation


def flat_observation(observation: dict[str, Any]) -> dict[str, Any]:
    """Inverse of `nested_observation`.

    Raises:
        BadMessage: the batch is not one.
    """
    flat = {}
    for group in GROUPS:
        for name, array in observation.get(group, {}).items():
            if not isinstance(array, np.ndarray) or array.shape[:1] != (1,):
                shape = getattr(array, "shape", type(array).__name__)
                raise BadMessage(f"{group}.{name} must be an array with a batch of 1 for N1.5 (w1), got {shape}")
            flat[f"{group}.{name}"] = array[0]
    return flat | {key: list(texts[0]) for key, texts in observation.get("language", {}).items()}


def flat_action(action: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """``arm`` (1, H, D) -> ``action.arm`` (H, D)."""
    return {f"action.{name}": array[0] for name, array in action.items()}


def nested_action(flat: dict[str, Any]) -> dict[str, np.ndarray]:
    """``action.arm`` (H, D) or (H,) -> ``arm`` (1, H, D) float32."""
    action = {}
    for key, value in flat.items():
        if isinstance(value, np.ndarray) and value.ndim in (1, 2):
            rows = value if value.ndim == 2 else value[:, None]
            action[key.removeprefix("action.")] = rows[None].astype(np.float32)
    return action
