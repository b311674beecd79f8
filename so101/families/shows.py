"""What ./twin view, policy-view and replay show: a driven episode, and one of a .demo file."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from so101.evaluation.statistics import wilson_interval
from so101.families.drivers import Driver, Hold
from so101.families.render import Mark
from so101.families.vector_env import FamilyVectorEnv
from so101.families.viewer import Frame, Readout
from so101.families.words import goal_in_words

_HAND, _GOAL, _POINT = (0.95, 0.75, 0.1, 1.0), (0.2, 0.55, 0.95, 1.0), (0.2, 0.8, 0.4, 0.45)
_LINE_M, _DOT_M = 0.0015, 0.006


def way_to_goal(env: FamilyVectorEnv, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Hand, what it is to take, where that is to go: (3,) m each, from the words (D,); None where they do not tell."""
    words, obs = env.words, np.asarray(obs, float)
    if "goal" in words:
        hand, to_subject, to_target = np.split(obs[words["goal"]], 3)
        subject = hand + to_subject
        target = subject + to_target
        first = env.task.goal.leaves[0].above
        if first is not None:  # straight up, wherever the other body is
            target = np.array([*subject[:2], max(subject[2], target[2] + first.margin_m)])
        return hand, subject, target
    if "target" in words:
        return obs[words["site"]], obs[words["site"]], obs[words["target"]]
    return None


def goal_marks(env: FamilyVectorEnv, obs: np.ndarray) -> tuple[Mark, ...]:
    """Lines from the hand to what it is to take and from there to where that is to go, from the words (D,)."""
    way = way_to_goal(env, obs)
    if way is None:
        return ()
    hand, subject, target = way
    radius = next((leaf.at_point.radius_m for leaf in env.task.goal.leaves if leaf.at_point), None)
    end = Mark(target, _GOAL, _DOT_M) if radius is None else Mark(target, _POINT, radius)
    return Mark(subject, _HAND, _LINE_M, hand), Mark(target, _GOAL, _LINE_M, subject), end


def distances(info: Mapping[str, np.ndarray], control_dt: float) -> list[Readout]:
    """What `FamilyVectorEnv` says of lane 0: distances, grasp, success."""
    shown = []
    if np.isfinite(info["reach_m"][0]):
        shown.append(Readout("reach", f"{1e3 * info['reach_m'][0]:.0f} mm"))
    shortfall = info["goal_shortfall_m"][0]
    shown.append(Readout("to the goal", f"{1e3 * shortfall:.0f} mm" if shortfall > 0 else "reached"))
    if info["grasped"][0]:
        shown.append(Readout("grasp", "both jaws", "good"))
    held = info["held_steps"][0] * control_dt
    shown.append(Readout("success", f"for {held:.1f} s" if info["success"][0] else "no", "good" if held else ""))
    return shown


class DrivenShow:
    """A lane that somebody drives. The horizon ends an episode and begins the next seed's, if `horizon`.

    Args:
        env: one lane, without autoreset.
        driver: who acts.
        seed: of the first episode.
        horizon: False: nothing ends, as where a person plays.
    """

    keys: Mapping[str, str] = {}

    def __init__(
        self, env: FamilyVectorEnv, driver: Driver, seed: int, *, title: str, horizon: bool, marks: bool = True
    ) -> None:
        self._env, self._driver, self._horizon, self._marks = env, driver, horizon, marks
        self.task, self.title, self.period_s = env.task, title, env.control_dt
        self.drivable = isinstance(driver, Hold)
        self.ended: list[bool] = []  # success at the end of each whole episode
        self._begin(seed)

    def frame(self) -> Frame:
        env = self._env
        step = f"{int(env.steps[0])} of {env.horizon}" if self._horizon else str(int(env.steps[0]))
        readouts = [
            Readout("goal", goal_in_words(self.task.goal)),
            Readout("episode", f"seed {int(env.episode_seeds[0])}"),
            Readout("step", f"{step}, {env.steps[0] * env.control_dt:.1f} s"),
            *distances(self._info, env.control_dt),
            Readout("reward", f"{self._reward:.3f}, sum {self._sum:.1f}"),
        ]
        if self.ended:
            low, high = wilson_interval(sum(self.ended), len(self.ended))
            done = f"{sum(self.ended)} of {len(self.ended)} (95 %: {low:.0%} to {high:.0%})"
            readouts.append(Readout("episodes", done))
        return Frame(
            env.qpos[0].copy(),
            tuple(readouts),
            goal_marks(env, self._obs[0]) if self._marks else (),
            env.action_to_ctrl(self._action),
            int(env.episode_seeds[0]),
            "" if self._ever is None else f"first reached after {self._ever * env.control_dt:.1f} s",
        )

    def advance(self) -> bool:
        env = self._env
        if self._horizon and env.steps[0] >= env.horizon:
            self.ended.append(bool(self._info["success"][0]))
            self._begin(int(env.episode_seeds[0]) + 1)
            return True
        self._action = np.asarray(self._driver.act(self._obs), float)
        self._obs, reward, _, _, self._info = env.step(self._action[None])
        self._reward = float(reward[0])
        self._sum += self._reward
        if self._info["success"][0] and self._ever is None:
            self._ever = int(env.steps[0])
        return True

    def restart(self, seed: int | None) -> None:
        self._begin(int(self._env.episode_seeds[0]) if seed is None else seed)

    def press(self, key: str) -> None:
        """No keys."""

    def drive(self, q: np.ndarray) -> None:
        if isinstance(self._driver, Hold):
            self._driver.goal_rad = np.asarray(q, float)

    def _begin(self, seed: int) -> None:
        self._obs, self._info = self._env.reset(options={"seeds": [seed]})
        self._action = self._env.hold_action(self._env.qpos[0, :6])
        self._reward, self._sum = 0.0, 0.0
        self._ever: int | None = None
        self._driver.begin(self._obs)
