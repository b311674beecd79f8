"""From what the actor says to what the environment takes, and back.

The actor gives u in [-1, 1]. The environment takes a in [-1, 1], 0 being the middle of an
actuator's control range.

``absolute``: a = centre + scale u: joint targets, over the whole range or over that of the demos.
``relative``: a = hold(q) + scale u: targets as far as `scale` from where the joint is. u = 0 stays, and noise moves the
arm little: noise on absolute targets of stiff servos throws the hand about by centimetres.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Mode = Literal["absolute", "relative"]


@dataclass(frozen=True)
class ActionMap:
    """Arrays are (A,) float32.

    Attributes:
        centre: of the actions at u = 0; unused when relative.
        scale: a per u.
        middle, half: of the control range of each joint, rad; unused when absolute.
    """

    mode: Mode
    centre: np.ndarray
    scale: np.ndarray
    middle: np.ndarray
    half: np.ndarray

    def to_env(self, obs: np.ndarray, u: np.ndarray) -> np.ndarray:
        """(N, D) observations, which begin with the joints, and (N, A) outputs of the actor -> actions (N, A)."""
        return np.clip(self._base(obs) + self.scale * u, -1.0, 1.0).astype(np.float32)

    def from_env(self, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        """The u that comes closest to an action: (N, A)."""
        return np.clip((action - self._base(obs)) / self.scale, -1.0, 1.0).astype(np.float32)

    def _base(self, obs: np.ndarray) -> np.ndarray:
        if self.mode == "absolute":
            return self.centre
        return (obs[:, : len(self.middle)] - self.middle) / self.half

    def to_json(self) -> dict[str, Any]:
        arrays = {key: getattr(self, key).tolist() for key in ("centre", "scale", "middle", "half")}
        return {"mode": self.mode, **arrays}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ActionMap:
        return cls(
            values["mode"], *(np.array(values[key], np.float32) for key in ("centre", "scale", "middle", "half"))
        )


def make_action_map(
    mode: Mode,
    env: Any,
    *,
    scale: float | np.ndarray = 1.0,
    low: np.ndarray | float = -1.0,
    high: np.ndarray | float = 1.0,
) -> ActionMap:
    """The map for an environment of a family.

    Args:
        scale: relative only: how far from the joint a target may be, of half the control range.
        low, high: absolute only: range of the actions.
    """
    one = np.ones(env.single_action_space.shape, np.float32)
    bottom, top = (np.asarray(env.action_to_ctrl(sign * one), np.float32) for sign in (-1, 1))
    middle, half = (bottom + top) / 2, (top - bottom) / 2
    if mode == "relative":
        return ActionMap(mode, 0 * one, scale * one, middle, half)
    low, high = low * one, high * one
    return ActionMap(mode, (low + high) / 2, (high - low) / 2, middle, half)
