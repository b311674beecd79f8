"""A task's observations and rewards along states that were recorded, not simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mujoco
import numpy as np

from so101.datasets.demo_episode import NO_SEED, Episode, stamp_success
from so101.errors import DataError
from so101.families import FamilyTask, FamilyVectorEnv


@dataclass(frozen=True)
class Rebuilt:
    """T + 1 states seen as the task sees them: obs (T + 1, D) float32; reward (T,) for coming to states 1 to T; success
    (T,) bool, the goal holds there; grasped (T + 1,) bool, both jaws touch the task's object."""

    obs: np.ndarray
    reward: np.ndarray
    success: np.ndarray
    grasped: np.ndarray


class RecordedStates:
    """Puts a task into one state after the other and looks. Speeds are differences of positions: recordings lack them.

    Args:
        task: whose words and reward.
        reward_mode: as of `FamilyVectorEnv`.
    """

    def __init__(self, task: FamilyTask, reward_mode: str | None = None) -> None:
        self.env = _Looking(task, 1, autoreset=False, reward_mode=reward_mode)

    def along(
        self,
        q: np.ndarray,
        objects: Mapping[str, np.ndarray],
        action: np.ndarray,
        target: np.ndarray | None = None,
    ) -> Rebuilt:
        """Look along T + 1 states.

        Args:
            q: (T + 1, 6) joints, rad.
            objects: name -> (T + 1, 7) position m and quaternion w x y z in the family's world; the others are absent.
            action: (T, 6) in [-1, 1], between the states.
            target: (3,) point to reach, m, for tasks that have one.

        Raises:
            DataError: an object that the family has not.
        """
        env = self.env
        unknown = sorted(set(objects) - set(env.slots))
        if unknown:
            raise DataError(
                f"task {env.task.name}: the recording has {', '.join(unknown)}, the family has "
                f"{', '.join(env.slots) or 'no objects'}; convert it for another task, or rename them"
            )
        qpos = env.qpos_of(q, objects)
        active = np.array([name in objects for name in env.slots], bool)
        qvel = _speeds(env.mj_model, qpos, env.control_dt)
        return env.look_along(qpos, qvel, active, action, target)

    def episode(
        self,
        q: np.ndarray,
        objects: Mapping[str, np.ndarray],
        action: np.ndarray,
        target: np.ndarray | None = None,
        *,
        success: bool | None = None,
        seed: int = NO_SEED,
        meta: dict | None = None,
    ) -> Episode:
        """The T rows of a recording as `along` sees them. Without `success`: whether the goal holds at the end."""
        seen = self.along(q, objects, action, target)
        succeeded = bool(seen.success[-1]) if success is None else success
        return Episode(
            obs=seen.obs[:-1],
            action=np.asarray(action, np.float32),
            reward=seen.reward.astype(np.float32),
            next_obs=seen.obs[1:],
            done=np.zeros(len(action), np.float32),
            flags=stamp_success(np.zeros(len(action)), succeeded),
            seed=seed,
            success=succeeded,
            meta=meta or {},
        )


class _Looking(FamilyVectorEnv):
    """A lane that is put into states; its physics never runs."""

    @property
    def needed(self) -> list[str]:
        """Slots that are there in the task."""
        return [
            name for name in self.slots if self.family.declaration.workshop_task or name in self.task.declaration.place
        ]

    def qpos_of(self, q: np.ndarray, objects: Mapping[str, np.ndarray]) -> np.ndarray:
        """(T, nq) of joints (T, 6) and poses (T, 7); other slots are where absent ones are kept."""
        places = zip(self.slots, self._parts.parked, strict=True)
        parked = {name: np.repeat(place[None], len(q), axis=0) for name, place in places}
        return np.concatenate([q, *(objects.get(name, parked[name]) for name in self.slots)], axis=1)

    def look_along(
        self, qpos: np.ndarray, qvel: np.ndarray, active: np.ndarray, action: np.ndarray, target: np.ndarray | None
    ) -> Rebuilt:
        if target is not None:
            self._point[0] = target
        self.active[0] = active
        obs, rewards, success, grasped, before = [], [], [], [], None
        for number in range(len(qpos)):
            self._put(0, qpos[number], qvel[number])  # not set_state, with which an episode begins
            if before is not None:
                self._previous[0], self._action[0] = before, action[number - 1]
            before = self._action[0].copy()
            sensors = self.data(0).sensordata
            if len(self.slots):
                self._touch[0] = (sensors[self._parts.touch_columns] > 0).all(-1)
            features = self._features()
            info = self._info(features)
            obs.append(self._observe(features, self.active)[0])
            grasped.append(info["grasped"][0])
            if number == 0:
                self._reward.reset(features, np.ones(1, bool))
            else:
                rewards.append(self._reward(features)[0])
                success.append(info["success"][0])
        return Rebuilt(np.array(obs), np.array(rewards), np.array(success, bool), np.array(grasped, bool))


def _speeds(model: mujoco.MjModel, qpos: np.ndarray, dt: float) -> np.ndarray:
    """(T, nv) central differences, one-sided at the ends."""
    qvel = np.zeros((len(qpos), model.nv))
    for number in range(len(qpos)):
        first, last = max(number - 1, 0), min(number + 1, len(qpos) - 1)
        mujoco.mj_differentiatePos(model, qvel[number], max(last - first, 1) * dt, qpos[first], qpos[last])
    return qvel
