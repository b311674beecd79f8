"""An episode of a .demo file as a show: its states, or its actions executed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from so101.datasets.demo_file import INTERVENED, DemoFile, Episode
from so101.datasets.demo_states import header_of
from so101.errors import DataError
from so101.families.declaration import FamilyTask
from so101.families.shows import goal_marks, way_to_goal
from so101.families.vector_env import FamilyVectorEnv
from so101.families.viewer import Frame, Readout
from so101.families.words import goal_in_words


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
