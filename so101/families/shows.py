"""What ./twin view, policy-view and replay show: a driven episode, and one of a .demo file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from so101.datasets.demo_file import INTERVENED, DemoFile, Episode
from so101.datasets.demo_states import header_of
from so101.errors import DataError
from so101.evaluation.statistics import wilson_interval
from so101.families.declaration import FamilyTask
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


def check_fits(demo: DemoFile, env: FamilyVectorEnv, path: Any) -> None:
    """Raise DataError where the rows of a file are not those of the environment."""
    if difference := demo.header.difference(header_of(env)):
        raise DataError(
            f"{path}: does not fit {env.task.name} as it is declared now: {difference} (file first). Record it again, "
            "or give the configs folder it was recorded with by --configs"
        )


def start_at(env: FamilyVectorEnv, episode: Episode) -> tuple[np.ndarray, dict[str, np.ndarray], float]:
    """Put lane 0 where an episode began: by its seed where that gives the same observation, else by its words.

    Returns:
        observation (1, D), info, and the largest gap to the recorded observation (0.0 by seed, up to rounding).
    """
    if episode.seed >= 0:
        obs, info = env.reset(options={"seeds": [episode.seed]})
        if (gap := float(np.abs(obs[0] - episode.obs[0]).max())) < 1e-5:
            return obs, info, gap
    obs, info = env.reset(options={"seeds": [max(episode.seed, 0)]})
    words, first = env.words, episode.obs[0].astype(float)
    if "target" in words:
        env.targets[0] = first[words["target"]]
    env.set_state(0, placed_qpos(env, first), first[words["qvel"]], _active(env, first))
    obs, info = env.reset_lanes(np.zeros(1, bool), env.episode_seeds)  # a look: no lane begins anew
    return obs, info, float(np.abs(obs[0] - episode.obs[0]).max())


def placed_qpos(env: FamilyVectorEnv, obs: np.ndarray) -> np.ndarray:
    """(nq,) of an observation (D,): what is absent is parked, as its words are zeros."""
    qpos = np.asarray(obs, float)[env.words["qpos"]].copy()
    for name, there in zip(env.slots, _active(env, obs), strict=True):
        where = slice(address := int(env.mj_model.joint(name).qposadr[0]), address + 7)
        if not there:
            qpos[where] = env.mj_model.qpos0[where]
    return qpos


def _active(env: FamilyVectorEnv, obs: np.ndarray) -> np.ndarray:
    if "active" not in env.words:
        return np.ones(len(env.slots), bool)
    return np.asarray(obs)[env.words["active"]] > 0.5


class ReplayShow:
    """An episode of a .demo file: its states as recorded, or its actions executed again.

    Args:
        env: one lane of the file's task, without autoreset.
        actions: execute them; the readouts say how far that departs from what was recorded.
        loop: begin again at its end.

    Raises:
        DataError: the file has no such episode, or does not fit the task.
    """

    keys: Mapping[str, str] = {}
    drivable = False

    def __init__(
        self, env: FamilyVectorEnv, demo: DemoFile, number: int, path: Any, *, actions: bool = False, loop: bool = False
    ) -> None:
        check_fits(demo, env, path)
        if not 0 <= number < len(demo.episodes):
            raise DataError(f"{path}: has episodes 0 to {len(demo.episodes) - 1}; --episode is {number}")
        self._env, self._actions, self._loop = env, actions, loop
        self.episode = demo.episodes[number]
        self.task, self.period_s = env.task, env.control_dt
        self.title = f"{path}, episode {number} of {len(demo.episodes)}" + (" (its actions again)" if actions else "")
        self.worst_gap = (0.0, "", 0)  # largest, its word, its row
        self._begin()

    @property
    def num_frames(self) -> int:
        """Moments of the episode: one more than rows."""
        return self.episode.num_rows + 1

    def frame(self) -> Frame:
        episode, row = self.episode, min(self._row, self.episode.num_rows - 1)
        env = self._env
        readouts = [
            Readout("goal", goal_in_words(self.task.goal)),
            Readout("seed", str(episode.seed) if episode.seed >= 0 else "none"),
            Readout("row", f"{self._row} of {episode.num_rows}, {self._row * env.control_dt:.1f} s"),
            *_recorded(env, self._recorded()),
            Readout("reward", f"{episode.reward[row]:.3f}, sum {episode.reward[: self._row].sum():.1f}"),
            Readout("episode", "success" if episode.success else "no success", "good" if episode.success else "bad"),
        ]
        if episode.flags[row] & INTERVENED:
            readouts.append(Readout("driven by", "an intervention"))
        if self._actions:
            gap, word, at = self.worst_gap
            said = f"{gap:.2g} ({word}, row {at})" if word else "none"
            readouts.append(Readout("departs at most", said, "bad" if gap > 0.05 else ""))
        seen = self._obs if self._actions else self._recorded()
        return Frame(
            env.qpos[0].copy() if self._actions else placed_qpos(env, seen),
            tuple(readouts),
            goal_marks(env, seen),
            env.action_to_ctrl(episode.action[row]),
            episode.seed,
        )

    def advance(self) -> bool:
        if self._row >= self.episode.num_rows:
            if not self._loop:
                return False
            self._begin()
            return True
        if self._actions:
            obs, *_ = self._env.step(self.episode.action[self._row][None])
            self._obs = obs[0]
            self._row += 1
            gaps = np.abs(self._obs - self._recorded())
            if gaps.max() > self.worst_gap[0]:
                self.worst_gap = float(gaps.max()), self._env.observation_names[int(gaps.argmax())], self._row
        else:
            self._row += 1
        return self._loop or self._row < self.episode.num_rows

    def restart(self, seed: int | None) -> None:
        self._begin()

    def press(self, key: str) -> None:
        """No keys."""

    def drive(self, q: np.ndarray) -> None:
        """Not possible."""

    def _recorded(self) -> np.ndarray:
        episode = self.episode
        return episode.obs[self._row] if self._row < episode.num_rows else episode.next_obs[-1]

    def _begin(self) -> None:
        self._row, self.worst_gap = 0, (0.0, "", 0)
        if self._actions:
            obs, _, gap = start_at(self._env, self.episode)
            self._obs = obs[0]


def _recorded(env: FamilyVectorEnv, obs: np.ndarray) -> list[Readout]:
    """Distances that an observation tells."""
    way = way_to_goal(env, obs)
    if way is None:
        return []
    hand, subject, target = way
    reach = [Readout("reach", f"{1e3 * np.linalg.norm(subject - hand):.0f} mm")] if "goal" in env.words else []
    return [*reach, Readout("to the target", f"{1e3 * np.linalg.norm(target - subject):.0f} mm")]


def demo_task(demo: DemoFile, tasks: Mapping[str, FamilyTask], path: Any) -> FamilyTask:
    """The task of a file.

    Raises:
        DataError: the families have none of that name.
    """
    if demo.header.task not in tasks:
        raise DataError(
            f"{path}: is of the task {demo.header.task or 'unknown'!r}, which no family has; there are "
            f"{', '.join(tasks)}. An imported file needs its task named: ./twin demo convert"
        )
    return tasks[demo.header.task]
