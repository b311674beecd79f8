"""The policy drives; where it stalls, an expert takes the lane over until its episode ends (as in HIL-SERL)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from so101.config.rl import RlInterventionConfig
from so101.learning.rl.sac import Takeover
from so101.learning.rl.vec_env import FamilyVecEnv


class LaneExpert(Protocol):
    """As `so101.families.expert.Expert`."""

    def take_over(self, lane: int) -> None:
        """Go on from where the lane is."""

    def act_lane(self, lane: int) -> np.ndarray:
        """(A,) action in [-1, 1] for the state the lane is in now."""


class Intervention:
    """Asked before every step, says which lanes the expert drives.

    A lane stalls when neither the hand came `progress` closer to the object nor the object to the goal than ever before
    in its episode, for `stall_s`, and the goal does not hold.

    Args:
        env: whose lanes are driven.
        expert: for the environment behind `env`.
        settings: what counts as stalling, and how many lanes the expert drives at most.

    Attributes:
        driving: (N,) bool.
    """

    def __init__(self, env: FamilyVecEnv, expert: LaneExpert, settings: RlInterventionConfig) -> None:
        self.env, self.expert, self.settings = env, expert, settings
        lanes = env.num_envs
        self.driving = np.zeros(lanes, bool)
        self._seeds = np.full(lanes, -1)
        self._least, self._waited = np.full((lanes, 2), np.inf), np.zeros(lanes, int)
        self._patience = max(1, round(settings.stall_s / env.env.control_dt))
        self._most = max(1, int(settings.most_share * lanes))

    def __call__(self) -> Takeover | None:
        env = self.env.env
        begun = env.episode_seeds != self._seeds
        self._seeds = env.episode_seeds.copy()
        self.driving[begun], self._waited[begun], self._least[begun] = False, 0, np.inf
        self._look(~begun)
        for lane in np.flatnonzero((self._waited >= self._patience) & ~self.driving):
            if self.driving.sum() >= self._most:
                break
            self.expert.take_over(int(lane))
            self.driving[lane] = True
        if not self.driving.any():
            return None
        actions = np.zeros((env.num_envs, *env.single_action_space.shape), np.float32)
        for lane in np.flatnonzero(self.driving):
            actions[lane] = self.expert.act_lane(int(lane))
        return Takeover(self.driving.copy(), actions)

    def _look(self, lanes: np.ndarray) -> None:
        """Progress in the lanes whose last step belongs to their present episode."""
        info = self.env.info
        if not lanes.any():
            return
        now = np.stack([np.nan_to_num(info["reach_m"]), info["goal_shortfall_m"]], axis=1)
        better = (now < self._least - self.settings.progress).any(1) | info["success"]
        self._least[lanes & better] = np.minimum(self._least, now)[lanes & better]
        self._waited[lanes] = np.where(better, 0, self._waited + 1)[lanes]


def expert_takeover(settings: RlInterventionConfig) -> Callable[[FamilyVecEnv], Intervention]:
    """Makes the intervention of the scripted expert of the task.

    The returned function raises ExpertImpossible for a task it has no plan for.
    """

    def make(env: FamilyVecEnv) -> Intervention:
        from so101.families.expert import Expert

        expert: Any = Expert(env.env)
        return Intervention(env, expert, settings)

    return make
