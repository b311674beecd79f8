"""N environments of one task as a `gymnasium.vector.VectorEnv`: one rollout call of MuJoCo steps them on all cores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import gymnasium
import mujoco
import numpy as np
from gymnasium.vector import AutoresetMode
from mujoco.rollout import Rollout

from so101.errors import So101Error
from so101.families.declaration import FamilyTask
from so101.families.goals import AtRegion, Features, OnRegion, make_goal
from so101.families.observation import Observation, read_parts
from so101.families.placement import Beginning, draw_beginning
from so101.families.rewards import make_reward
from so101.families.scene import compiled
from so101.sim.servo import set_past_commands

JOINTS = 6
_STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS
_QPOS = 1  # in the state: the time stands before it


class EnvironmentFault(So101Error):
    """An environment was used in a way it does not allow."""


class FamilyVectorEnv(gymnasium.vector.VectorEnv):
    """N lanes of a task (docs/families.md).

    Actions (N, 6) in [-1, 1] are clipped and mapped onto each actuator's range: zero is its middle, not "stay" (see
    `hold_action`). Observations (N, D) float32 are the word groups of the family, named in `observation_names`. Lane i
    begins with episode seed `seed` + i, and every later episode of the lane adds N; an episode's start depends on its
    seed alone. Nothing terminates; the horizon truncates. With `autoreset` the step that ends an episode returns the
    next one's first observation, the last one as info["final_obs"]; without, a lane goes on, truncated, until
    `reset_lanes`.

    Args:
        task: what is done.
        num_envs: N.
        seed: episode seed of lane 0, >= 0.
        horizon: steps of an episode; the family's when None.
        reward_mode: see `so101.families.rewards`; the family's when None.
        threads: that step the physics; all CPUs when None.

    Raises:
        EnvironmentFault: num_envs or horizon below 1.
        SimulationError: the family names a part the model does not have.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": ["rgb_array"]}

    def __init__(
        self,
        task: FamilyTask,
        num_envs: int = 1,
        *,
        seed: int = 0,
        horizon: int | None = None,
        reward_mode: str | None = None,
        autoreset: bool = True,
        threads: int | None = None,
    ) -> None:
        family = task.family
        if num_envs < 1:
            raise EnvironmentFault(f"num_envs is {num_envs}; at least 1 environment is needed")
        self.horizon = family.declaration.control.horizon if horizon is None else horizon
        if self.horizon < 1:
            raise EnvironmentFault(f"horizon is {horizon}; an episode needs at least 1 step")
        self.task, self.family, self.num_envs, self.autoreset = task, family, num_envs, autoreset
        self.mj_model = model = compiled(family)
        self.control_dt = family.declaration.control.control_dt
        self.goal = make_goal(task)
        self._parts = read_parts(task, model)
        self.slots = self._parts.slots
        self._observe = Observation(task, model, self._parts, self.goal)
        self.observation_names, self.words = self._observe.names, self._observe.words
        self.lower, self.upper = model.actuator_ctrlrange.T.copy()  # (6,) rad each
        self._middle, self._half = (self.upper + self.lower) / 2, (self.upper - self.lower) / 2
        jaw = family.config.robot.joints[-1]
        self._reward = make_reward(task, self.goal, (jaw.lower_rad, jaw.upper_rad), reward_mode)
        self._gripper_site = family.declaration.arm.gripper_site
        self._statics = {name: np.tile(at, (num_envs, 1)) for name, at in self._parts.statics.items()}
        self._state_size = mujoco.mj_stateSize(model, _STATE)
        self._qvel = slice(_QPOS + model.nq, _QPOS + model.nq + model.nv)
        shape = (num_envs, len(self.observation_names))
        infinite = np.full(shape[1], np.inf, np.float32)
        self.single_observation_space = gymnasium.spaces.Box(-infinite, infinite, dtype=np.float32)
        self.single_action_space = gymnasium.spaces.Box(-1.0, 1.0, (JOINTS,), np.float32)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self._scratch = mujoco.MjData(model)
        threads = min(num_envs, threads or len(os.sched_getaffinity(0)))
        self._rollout = Rollout(nthread=threads if threads > 1 else 0)
        self._datas = [mujoco.MjData(model) for _ in range(threads)]
        skip = family.declaration.control.frame_skip
        self._control = np.zeros((num_envs, skip, JOINTS))
        self._states = np.zeros((num_envs, skip, self._state_size))
        self._sensors = np.zeros((num_envs, skip, model.nsensordata))
        self._state = np.zeros((num_envs, self._state_size))
        self._point = np.zeros((num_envs, 3))
        self._action = np.zeros((num_envs, JOINTS))
        self._previous = np.zeros((num_envs, JOINTS))
        self._touch = np.zeros((num_envs, len(self.slots)), bool)
        self._held = np.zeros(num_envs, int)
        self.active = np.zeros((num_envs, len(self.slots)), bool)
        self.steps = np.zeros(num_envs, int)
        self.episode_seeds = seed + np.arange(num_envs)
        self._begun = False

    # ---- what is where -------------------------------------------------------------------------------------------

    @property
    def qpos(self) -> np.ndarray:
        """(N, nq): joints rad, then position and quaternion of each slot."""
        return self._state[:, _QPOS : _QPOS + self.mj_model.nq]

    @property
    def qvel(self) -> np.ndarray:
        """(N, nv): joints rad/s, then linear (m/s) and angular velocity (rad/s) of each slot."""
        return self._state[:, self._qvel]

    @property
    def targets(self) -> np.ndarray:
        """(N, 3) points to reach, m."""
        return self._point

    @property
    def touching(self) -> np.ndarray:
        """(N, S) bool: both jaws touch the slot."""
        return self._touch

    @property
    def reward_per_step(self) -> float:
        """What one step can pay at most (without the bonus of mode `potential`)."""
        return self._reward.largest

    # ---- actions -------------------------------------------------------------------------------------------------

    def action_to_ctrl(self, action: np.ndarray) -> np.ndarray:
        """(..., 6) actions, clipped to [-1, 1], to joint targets, rad."""
        return self._middle + np.clip(action, -1.0, 1.0) * self._half

    def ctrl_to_action(self, q: np.ndarray) -> np.ndarray:
        """(..., 6) joint targets, rad, to actions, clipped to [-1, 1]."""
        return np.clip((q - self._middle) / self._half, -1.0, 1.0)

    def hold_action(self, q: np.ndarray) -> np.ndarray:
        """(..., 6) the action whose target is where the joints are."""
        return self.ctrl_to_action(q)

    # ---- episodes ------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Begin all lanes anew, with episode seeds options["seeds"] (N,), or from `seed` on; else the lanes' next ones.

        Raises:
            PlacementError: the slots find no place.
        """
        seeds = (options or {}).get("seeds")
        if seeds is not None:
            seeds = np.asarray(seeds, int)
        elif seed is not None:
            seeds = int(seed) + np.arange(self.num_envs)
        else:
            seeds = self.episode_seeds + self.num_envs * self._begun
        return self.reset_lanes(np.ones(self.num_envs, bool), seeds)

    def reset_lanes(self, lanes: np.ndarray, seeds: Sequence[int] | np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin the lanes of a (N,) bool mask anew, lane i with seeds[i]; returns as `step` what all lanes see.

        Raises:
            EnvironmentFault: wrong number of seeds, or a negative one.
        """
        seeds = np.asarray(seeds, int)
        if seeds.shape != (self.num_envs,) or (seeds[lanes] < 0).any():
            raise EnvironmentFault(f"seeds must be {self.num_envs} numbers from 0 on, got {seeds.tolist()}")
        for lane in np.flatnonzero(lanes):
            self.episode_seeds[lane] = seeds[lane]
            self._begin(lane, draw_beginning(self.task, self.goal, int(seeds[lane])))
        self._begun = True
        features = self._features()
        self._reward.reset(features, np.asarray(lanes, bool))
        return self._observe(features, self.active), self._info(features)

    def _begin(self, lane: int, beginning: Beginning) -> None:
        qpos = np.zeros(self.mj_model.nq)
        qpos[:JOINTS] = beginning.q
        for number, (name, where) in enumerate(zip(self.slots, self._parts.slot_qpos, strict=True)):
            self.active[lane, number] = name in beginning.poses
            qpos[where] = beginning.poses.get(name, self._parts.parked[number])
        self._point[lane] = beginning.point
        self._put(lane, qpos, np.zeros(self.mj_model.nv))

    def _put(self, lane: int, qpos: np.ndarray, qvel: np.ndarray) -> None:
        data = self._scratch
        mujoco.mj_resetData(self.mj_model, data)
        data.qpos, data.qvel, data.ctrl = qpos, qvel, qpos[:JOINTS]
        set_past_commands(self.mj_model, data, qpos[:JOINTS])
        mujoco.mj_getState(self.mj_model, data, self._state[lane], _STATE)
        self._action[lane] = self._previous[lane] = self.ctrl_to_action(qpos[:JOINTS])
        self._touch[lane] = False
        self._held[lane] = self.steps[lane] = 0

    def set_state(
        self, lane: int, qpos: np.ndarray, qvel: np.ndarray | None = None, active: np.ndarray | None = None
    ) -> None:
        """Place one lane: qpos (nq,), qvel (nv,), which slots are there (S,) bool; its episode begins there."""
        if active is not None:
            self.active[lane] = active
        self._put(
            lane, np.asarray(qpos, float), np.zeros(self.mj_model.nv) if qvel is None else np.asarray(qvel, float)
        )
        self._reward.reset(self._features(), np.arange(self.num_envs) == lane)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """One control period of all lanes.

        Raises:
            EnvironmentFault: before the first `reset`, or actions that are not (N, 6) finite numbers.
        """
        actions = np.asarray(actions, float)
        if not self._begun:
            raise EnvironmentFault("call reset before step")
        if actions.shape != (self.num_envs, JOINTS) or not np.isfinite(actions).all():
            raise EnvironmentFault(f"actions must be ({self.num_envs}, {JOINTS}) finite numbers, got {actions.shape}")
        self._previous[:] = self._action
        np.clip(actions, -1.0, 1.0, out=self._action)
        self._control[:] = (self._middle + self._action * self._half)[:, None]
        self._advance()
        self.steps += 1
        features = self._features()
        reward = self._reward(features)
        shortfall = self.goal.shortfall_m(features)
        self._held = np.where(shortfall <= 0.0, self._held + 1, 0)
        truncated = self.steps >= self.horizon
        observation, info = self._observe(features, self.active), self._info(features, shortfall)
        if self.autoreset and truncated.any():
            info["final_obs"] = observation
            seeds = self.episode_seeds + self.num_envs
            observation, _ = self.reset_lanes(truncated, seeds)
        return observation, reward, np.zeros(self.num_envs, bool), truncated, info

    def _advance(self) -> None:
        self._rollout.rollout(
            [self.mj_model] * self.num_envs, self._datas, self._state, self._control, skip_checks=True,
            nstep=self._control.shape[1], state=self._states, sensordata=self._sensors,
        )  # fmt: skip
        self._state[:] = self._states[:, -1]
        if len(self.slots):
            # sensors are those of the last physics step's start, 2 ms before the state
            self._touch[:] = (self._sensors[:, -1][:, self._parts.touch_columns] > 0).all(-1)
        for number, (where, speed) in enumerate(zip(self._parts.slot_qpos, self._parts.slot_qvel, strict=True)):
            absent = ~self.active[:, number]
            if absent.any():
                self.qpos[absent, where] = self._parts.parked[number]
                self.qvel[absent, speed] = 0.0

    # ---- what is seen --------------------------------------------------------------------------------------------

    def _features(self) -> Features:
        model, data, qpos = self.mj_model, self._scratch, self.qpos
        into, found, numbers = data.qpos, data.site_xpos, self._parts.site_numbers
        sites = np.empty((self.num_envs, len(numbers), 3))
        for lane in range(self.num_envs):
            into[:] = qpos[lane]
            mujoco.mj_kinematics(model, data)
            sites[lane] = found[numbers]
        places = [qpos[:, where] for where in self._parts.slot_qpos]
        return Features(
            qpos=qpos,
            qvel=self.qvel,
            bodies=self._statics | {name: place[:, :3] for name, place in zip(self.slots, places, strict=True)},
            rotations={name: place[:, 3:] for name, place in zip(self.slots, places, strict=True)},
            sites={name: sites[:, number] for number, name in enumerate(self._parts.sites)},
            grasped={name: self._touch[:, number] for number, name in enumerate(self.slots)},
            target=self._point,
            action=self._action,
            previous_action=self._previous,
            gripper_site=self._gripper_site,
        )

    def _info(self, f: Features, shortfall: np.ndarray | None = None) -> dict[str, np.ndarray]:
        if shortfall is None:
            shortfall = self.goal.shortfall_m(f)
        goes = self.goal.hand_goes_to_subject or not isinstance(self.goal, (AtRegion, OnRegion))
        end = self.goal.subject_m(f) if self.goal.hand_goes_to_subject else self.goal.target_m(f)
        distance = np.linalg.norm(f.gripper - end, axis=-1)
        slot = getattr(self._reward, "slot", None)
        return {
            "success": shortfall <= 0.0,
            "held_steps": self._held.copy(),
            "reach_m": distance if goes else np.full(self.num_envs, np.nan),
            "grasped": f.grasped[slot].copy() if slot in f.grasped else np.zeros(self.num_envs, bool),
            "goal_shortfall_m": shortfall,
            "episode_seed": self.episode_seeds.copy(),
            "steps": self.steps.copy(),
        }

    def data(self, lane: int) -> mujoco.MjData:
        """The lane's state in a MjData of its own call, with positions, contacts and sensors up to date; for looking
        at, valid until the next call that touches the environment."""
        data = self._scratch
        mujoco.mj_setState(self.mj_model, data, self._state[lane], _STATE)
        data.ctrl[:] = self.action_to_ctrl(self._action[lane])
        mujoco.mj_forward(self.mj_model, data)
        return data

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads."""
        self._rollout.close()
