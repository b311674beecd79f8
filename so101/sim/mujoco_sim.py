"""The MuJoCo backend: one compiled model, one MjData an environment, physics in the base frame. An environment whose
physics is randomised has a copy of the model of its own."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import mujoco
import numpy as np

from so101.config import Config
from so101.errors import SimulationError
from so101.geometry.frames import world_from_base
from so101.kinematics.arm import ArmKinematics
from so101.sim.bake import T_world_base as configured_base
from so101.sim.bake import baked_model
from so101.sim.base import Contact
from so101.sim.randomised_model import ModelRandomiser
from so101.sim.servo import set_past_commands

_PHYSICS_STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS
_STATE_WITH_WARMSTART = int(_PHYSICS_STATE) | int(mujoco.mjtState.mjSTATE_WARMSTART) | int(mujoco.mjtState.mjSTATE_CTRL)


class MujocoSimulator:
    """`so101.sim.base.Simulator` on MuJoCo.

    Args:
        config: the model is baked from it for the task in use.
        num_envs: B.
        T_world_base: (B, 4, 4) base pose of each environment; the configured one for all when None.
        looks: bake visual meshes, cameras and lights, needed by `render`.

    Raises:
        SimulationError: a base pose is not a translation and a turn about gravity (physics runs in the base frame).
    """

    def __init__(
        self, config: Config, num_envs: int = 1, T_world_base: np.ndarray | None = None, *, looks: bool = False
    ) -> None:
        if num_envs < 1:
            raise SimulationError(f"num_envs is {num_envs}; at least 1 environment is needed")
        self.num_envs = num_envs
        self.config = config
        self.model = baked_model(config, looks=looks)  # nominal, shared: never written to
        self.models = [self.model] * num_envs  # what each environment runs
        self._own_models: dict[int, mujoco.MjModel] = {}
        self._randomiser: ModelRandomiser | None = None
        self.data = [mujoco.MjData(self.model) for _ in range(num_envs)]
        base = configured_base(config) if T_world_base is None else np.asarray(T_world_base, float)
        self.T_world_base = np.broadcast_to(base, (num_envs, 4, 4)).copy()
        if np.abs(self.T_world_base[:, 2, :3] - [0, 0, 1]).max() > 1e-9:
            raise SimulationError(
                "T_world_base must be a translation and a turn about the vertical: gravity is fixed in base"
            )
        self.kinematics = ArmKinematics(config)
        self.substeps = config.scene.physics.substeps
        self.control_dt = 1.0 / config.scene.physics.control_hz
        self.joint_names = config.robot.joint_names
        self.object_names = tuple(config.objects)
        model = self.model
        self._body = {name: model.body(name).id for name in self.object_names}
        free = [name for name in self.object_names if model.body(name).jntnum[0]]
        self._qpos_slice = {name: slice(a := int(model.joint(name).qposadr[0]), a + 7) for name in free}
        self._qvel_slice = {name: slice(a := int(model.joint(name).dofadr[0]), a + 6) for name in free}
        self._renderers: dict[str, object] = {}
        self.physics_state_size = mujoco.mj_stateSize(model, _STATE_WITH_WARMSTART)
        self._geom_body = model.geom_bodyid
        self.jaw_bodies = frozenset(model.body(name).id for name in config.robot.hull_free_bodies)

    def reset(
        self,
        env: int,
        q: np.ndarray,
        objects: Mapping[str, np.ndarray],
        randomisation: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.randomise(env, randomisation)
        mujoco.mj_resetData(self.models[env], self.data[env])
        self.data[env].ctrl[:] = q
        set_past_commands(self.models[env], self.data[env], q)
        self.set_state(env, q, objects)

    def randomise(self, env: int, randomisation: Mapping[str, Any]) -> None:
        physics = randomisation.get("physics")
        if not physics:
            self.models[env] = self.model
            return
        if self._randomiser is None:
            self._randomiser = ModelRandomiser(self.config, self.model)
        if env not in self._own_models:
            self._own_models[env] = copy.copy(self.model)
        self._randomiser.apply(self._own_models[env], physics)
        self.models[env] = self._own_models[env]

    def set_state(self, env: int, q: np.ndarray, objects: Mapping[str, np.ndarray]) -> None:
        data = self.data[env]
        data.qpos[: len(q)] = q
        data.qvel[:] = 0.0
        for name, pose in objects.items():
            data.qpos[self.object_slice(name)] = pose
        mujoco.mj_forward(self.models[env], data)

    def step(self, env: int, q_target: np.ndarray) -> None:
        data = self.data[env]
        data.ctrl[:] = q_target
        mujoco.mj_step(self.models[env], data, nstep=self.substeps)

    def joint_positions(self, env: int) -> np.ndarray:
        return self.data[env].qpos[:6].copy()

    def joint_velocities(self, env: int) -> np.ndarray:
        return self.data[env].qvel[:6].copy()

    def object_pose(self, env: int, name: str) -> np.ndarray:
        if name in self._qpos_slice:
            return self.data[env].qpos[self._qpos_slice[name]].copy()
        body = self._object_body(name)
        return np.concatenate([self.data[env].xpos[body], self.data[env].xquat[body]])

    def object_twist(self, env: int, name: str) -> np.ndarray:
        data = self.data[env]
        velocity = data.qvel[self._free_velocity(name)].copy()
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, data.qpos[self._qpos_slice[name]][3:])
        velocity[3:] = rotation.reshape(3, 3) @ velocity[3:]  # MuJoCo keeps free-joint spin in body axes
        return velocity

    def ee_pose(self, env: int) -> np.ndarray:
        return self.kinematics.fk(self.data[env].qpos[:6])

    def fk(self, q: np.ndarray) -> np.ndarray:
        return self.kinematics.fk(q)

    def jacobian(self, q: np.ndarray) -> np.ndarray:
        return self.kinematics.jacobian(q)

    def contacts(self, env: int) -> Sequence[Contact]:
        data, model = self.data[env], self.models[env]
        found, force = [], np.zeros(6)
        for i in range(data.ncon):
            contact = data.contact[i]
            mujoco.mj_contactForce(model, data, i, force)
            bodies = (model.body(int(self._geom_body[geom])).name for geom in contact.geom)
            found.append(Contact(*bodies, normal_force=float(force[0]), depth=float(-contact.dist)))
        return found

    def touching_bodies(self, env: int, name: str) -> set[int]:
        """Body ids that touch an object now; the fast form of `contacts` for the rollout loop."""
        data = self.data[env]
        if not data.ncon:
            return set()
        pairs = self._geom_body[data.contact.geom]
        body = self._object_body(name)
        return set(pairs[pairs[:, 0] == body, 1].tolist()) | set(pairs[pairs[:, 1] == body, 0].tolist())

    def get_physics_state(self, env: int) -> np.ndarray:
        state = np.zeros(self.physics_state_size)
        mujoco.mj_getState(self.models[env], self.data[env], state, _STATE_WITH_WARMSTART)
        return state

    def set_physics_state(self, env: int, state: np.ndarray) -> None:
        if np.shape(state) != (self.physics_state_size,):
            raise SimulationError(
                f"physics state has shape {np.shape(state)}; this model needs ({self.physics_state_size},)"
            )
        mujoco.mj_resetData(self.models[env], self.data[env])  # wakes every object, as `reset` does
        mujoco.mj_setState(self.models[env], self.data[env], np.asarray(state, float), _STATE_WITH_WARMSTART)

    def world_pose(self, env: int, T_base_x: np.ndarray) -> np.ndarray:
        """(..., 4, 4) pose in base to the world of environment `env`."""
        return world_from_base(self.T_world_base[env], T_base_x)

    def render(self, env: int, camera: str) -> np.ndarray:
        from so101.rendering.renderer import FrameRenderer

        if "frames" not in self._renderers:
            self._renderers["frames"] = FrameRenderer(self.model, self.config)
        renderer = self._renderers["frames"]
        renderer.model = self.models[env]
        return renderer.render(self.data[env], camera)

    def close(self) -> None:
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers.clear()

    def _object_body(self, name: str) -> int:
        try:
            return self._body[name]
        except KeyError:
            raise SimulationError(f"no object {name!r} in this scene; it has {', '.join(self.object_names)}") from None

    def object_slice(self, name: str) -> slice:
        """Where the (7,) pose of a free object stands in qpos.

        Raises:
            SimulationError: no such object, or it is fixed.
        """
        self._object_body(name)
        if name not in self._qpos_slice:
            raise SimulationError(f"object {name!r} is fixed and cannot be moved")
        return self._qpos_slice[name]

    def _free_velocity(self, name: str) -> slice:
        self.object_slice(name)
        return self._qvel_slice[name]
