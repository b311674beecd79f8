"""From what the actor says to what the environment takes, and back.

The actor gives u in [-1, 1]. The environment takes a in [-1, 1], 0 being the middle of an
actuator's control range.

``absolute``: a = centre + scale u: joint targets, over the whole range or over that of the demos.
``relative``: a = hold(q) + scale u: targets as far as `scale` from where the joint is. u = 0 stays, and noise moves the
arm little: noise on absolute targets of stiff servos throws the hand about by centimetres.
``incremental``: a = the last a + scale u: u = 0 repeats the last target, so what gravity and friction take from soft
servos can be made up for step by step. The observation must hold the last action.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from so101.errors import DataError

Mode = Literal["absolute", "relative", "incremental"]


@dataclass(frozen=True)
class ActionMap:
    """Arrays are (A,) float32.

    Attributes:
        centre: of the actions at u = 0; absolute only.
        scale: a per u.
        middle, half: of the control range of each joint, rad; relative only, 0 and 1 when incremental.
        at: the word of the observation from which on it tells what u is added to.
    """

    mode: Mode
    centre: np.ndarray
    scale: np.ndarray
    middle: np.ndarray
    half: np.ndarray
    at: int = 0

    def to_env(self, obs: np.ndarray, u: np.ndarray) -> np.ndarray:
        """(N, D) observations and (N, A) outputs of the actor -> actions (N, A)."""
        return np.clip(self._base(obs) + self.scale * u, -1.0, 1.0).astype(np.float32)

    def from_env(self, obs: np.ndarray, action: np.ndarray) -> np.ndarray:
        """The u that comes closest to an action: (N, A)."""
        return np.clip((action - self._base(obs)) / self.scale, -1.0, 1.0).astype(np.float32)

    def _base(self, obs: np.ndarray) -> np.ndarray:
        if self.mode == "absolute":
            return self.centre
        return (obs[:, self.at : self.at + len(self.middle)] - self.middle) / self.half

    def to_json(self) -> dict[str, Any]:
        arrays = {key: getattr(self, key).tolist() for key in ("centre", "scale", "middle", "half")}
        return {"mode": self.mode, "at": self.at, **arrays}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ActionMap:
        return cls(
            values["mode"],
            *(np.array(values[key], np.float32) for key in ("centre", "scale", "middle", "half")),
            values.get("at", 0),
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
        scale: how far from the joint a target may be (relative), or from the last one (incremental), of half the
            control range.
        low, high: absolute only: range of the actions.

    Raises:
        DataError: incremental, and the family's observation has no last action.
    """
    one = np.ones(env.single_action_space.shape, np.float32)
    bottom, top = (np.asarray(env.action_to_ctrl(sign * one), np.float32) for sign in (-1, 1))
    middle, half = (bottom + top) / 2, (top - bottom) / 2
    if mode == "relative":
        return ActionMap(mode, 0 * one, scale * one, middle, half)
    if mode == "incremental":
        if "previous_action" not in env.words:
            raise DataError(
                "training.rl.actions.mode is incremental, but the family's observation has no previous_action; add it "
                "to `observation` of the family, or use relative"
            )
        return ActionMap(mode, 0 * one, scale * one, 0 * one, one, env.words["previous_action"].start)
    low, high = low * one, high * one
    return ActionMap(mode, (low + high) / 2, (high - low) / 2, middle, half)


class RandomActions:
    """Outputs of no actor: evenly drawn, each lane's lasting a while. New ones at every step would leave the arm about
    where it is.

    Args:
        shape: (N, A).
        lasts: steps, on average; 1 or less: new ones at every step.
    """

    def __init__(self, shape: tuple[int, int], lasts: float, seed: int) -> None:
        self._random, self._share = np.random.default_rng(seed), 1 / max(1.0, lasts)
        self._u = self._draw(shape)

    def __call__(self) -> np.ndarray:
        """(N, A) float32 in [-1, 1]."""
        anew = self._random.random(len(self._u)) < self._share
        self._u = np.where(anew[:, None], self._draw(self._u.shape), self._u)
        return self._u.copy()

    def _draw(self, shape: tuple[int, ...]) -> np.ndarray:
        return self._random.uniform(-1, 1, shape).astype(np.float32)
