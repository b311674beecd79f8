"""Rewards of N lanes at once, from the weights of a family.

Staged, per step: goal weight x tolerance(shortfall) + reach weight x tolerance(hand to subject) + grasp weight while
both jaws touch the subject + close weight x how far the jaw is closed, near the subject. Success is never read from it.

Potential: the step of that sum, so that hovering at a good place pays nothing; hand terms count in full while the goal
holds, holding pays all weights every step, and once an episode a bonus. A lone `near` counts its transport only with
the subject in the hand, by the larger of the distances along and across the vertical.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from so101.errors import ConfigError
from so101.families.declaration import FamilyTask, ReachReward, StagedReward
from so101.families.goals import Features, Goal, Near, ReachPoint

_AT_MARGIN = 0.1  # value of `tolerance` one margin beyond the bound
_SCALE = math.sqrt(-2.0 * math.log(_AT_MARGIN))


def tolerance(x: np.ndarray, within: float, margin: float) -> np.ndarray:
    """1 up to `within`, then a Gaussian that is 0.1 one `margin` further on (as dm_control's)."""
    beyond = np.maximum(0.0, np.asarray(x, float) - within) / margin
    return np.exp(-0.5 * (_SCALE * beyond) ** 2)


class Reward(Protocol):
    """Rewards of a task. `largest`: what a step can pay."""

    largest: float

    def reset(self, f: Features, lanes: np.ndarray) -> None:
        """New episodes in the lanes of a (N,) bool mask."""

    def __call__(self, f: Features) -> np.ndarray:
        """(N,) for the step that led to `f`."""


class Staged:
    """Terms as they are."""

    def __init__(self, terms: StagedReward, goal: Goal, slot: str | None, jaw_range: tuple[float, float]) -> None:
        self.terms, self.goal, self.slot = terms, goal, slot
        self.closed, self.open = jaw_range
        self.has_hand = goal.hand_goes_to_subject
        self.largest = terms.goal.weight
        if self.has_hand:
            self.largest += terms.reach.weight + terms.grasp.weight + terms.close.weight

    def reset(self, f: Features, lanes: np.ndarray) -> None:
        """Nothing is remembered."""

    def __call__(self, f: Features) -> np.ndarray:
        return self.goal_term(self.goal.shortfall_m(f)) + self.hand_terms(f)

    def goal_term(self, shortfall_m: np.ndarray) -> np.ndarray:
        """(N,)"""
        return self.terms.goal.weight * tolerance(shortfall_m, 0.0, self.terms.goal.margin_m)

    def hand_terms(self, f: Features) -> np.ndarray:
        """(N,) reach, grasp and close."""
        if not self.has_hand:
            return np.zeros(len(f.qpos))
        terms = self.terms
        distance = np.linalg.norm(f.gripper - self.goal.subject_m(f), axis=-1)
        closed = np.clip((self.open - f.qpos[:, 5]) / (self.open - self.closed), 0.0, 1.0)
        return (
            terms.reach.weight * tolerance(distance, terms.reach.within_m, terms.reach.margin_m)
            + terms.grasp.weight * self.grasped(f)
            + terms.close.weight * closed * (distance < terms.close.within_m)
        )

    def grasped(self, f: Features) -> np.ndarray:
        """(N,) bool: both jaws touch the subject."""
        return f.grasped[self.slot] if self.slot in f.grasped else np.zeros(len(f.qpos), bool)


class Potential(Staged):
    """Steps of the sum."""

    def __init__(self, terms: StagedReward, goal: Goal, slot: str | None, jaw_range: tuple[float, float]) -> None:
        super().__init__(terms, goal, slot, jaw_range)
        self._before = np.zeros(0)
        self._paid = np.zeros(0, bool)

    def reset(self, f: Features, lanes: np.ndarray) -> None:
        if len(self._before) != len(f.qpos):
            self._before, self._paid = np.zeros(len(f.qpos)), np.zeros(len(f.qpos), bool)
        self._before = np.where(lanes, self._potential(f)[0], self._before)
        self._paid &= ~lanes

    def __call__(self, f: Features) -> np.ndarray:
        potential, held = self._potential(f)
        reward = np.where(held, self.largest, potential - self._before)
        reward += self.terms.success_bonus * (held & ~self._paid)
        self._paid |= held
        self._before = potential
        return reward

    def _potential(self, f: Features) -> tuple[np.ndarray, np.ndarray]:
        shortfall = self.goal.shortfall_m(f)
        held = shortfall <= 0.0
        full = self.largest - self.terms.goal.weight
        hand = np.where(held, full, self.hand_terms(f))
        if isinstance(self.goal, Near):
            between = np.abs(self.goal.target_m(f) - self.goal.subject_m(f))
            along = np.maximum(np.linalg.norm(between[:, :2], axis=-1), between[:, 2])
            transport = self.goal_term(np.maximum(0.0, along - self.goal.radius_m))
            return np.where(held, self.terms.goal.weight, transport * self.grasped(f)) + hand, held
        return self.goal_term(shortfall) + hand, held


class Reaching:
    """Near the point x calm joints x even actions, at most 1."""

    largest = 1.0

    def __init__(self, factors: ReachReward, goal: ReachPoint) -> None:
        self.factors, self.goal = factors, goal

    def reset(self, f: Features, lanes: np.ndarray) -> None:
        """Nothing is remembered."""

    def __call__(self, f: Features) -> np.ndarray:
        near, calm, even = self.factors.near, self.factors.calm, self.factors.even
        speed = np.linalg.norm(f.qvel[:, :6], axis=-1)
        change = np.linalg.norm(f.action - f.previous_action, axis=-1)
        distance = self.goal.distance_m(f)
        close = tolerance(distance, near.within_m, near.margin_m)
        far = tolerance(distance, near.within_m, near.far_margin_m)
        return (
            (close + near.far_share * (far - close))
            * (1.0 - calm.share + calm.share * tolerance(speed, calm.within_rad_s, calm.margin_rad_s))
            * (1.0 - even.share + even.share * tolerance(change, even.within, even.margin))
        )


def make_reward(task: FamilyTask, goal: Goal, jaw_range: tuple[float, float], mode: str | None = None) -> Reward:
    """The reward of a task; `mode` instead of the family's: staged or potential.

    Raises:
        ConfigError: a mode that the family's weights do not allow.
    """
    declared = task.family.declaration.reward
    mode = mode or declared.mode
    if isinstance(declared, ReachReward):
        if mode != "reach" or not isinstance(goal, ReachPoint):
            raise ConfigError(f"{task.name}: reward mode {mode!r} is not possible; its family has mode 'reach' only")
        return Reaching(declared, goal)
    kinds = {"staged": Staged, "potential": Potential}
    if mode not in kinds:
        raise ConfigError(f"{task.name}: reward mode {mode!r} is unknown; there are {', '.join(kinds)}")
    slot = (
        task.declaration.grasp.slot if task.declaration.grasp else getattr(task.goal.leaves[0].term[1], "subject", None)
    )
    return kinds[mode](declared, goal, slot, jaw_range)
