"""The twin behind the servos: the task in use with its objects, in MuJoCo."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import mujoco
import numpy as np

from so101.config import Config
from so101.errors import SimulationError
from so101.robot.virtual.plant import stall_torque_nm
from so101.robot.virtual.pseudo_real import NOMINAL, RigDraw
from so101.sim.mujoco_sim import MujocoSimulator
from so101.tasks.placement import draw_placements, nominal_placements
from so101.tasks.success import Verdict, judge

_BLOCKED_NM_S_PER_RAD = 1e4  # damping that nothing moves
_UNIT_TOLERANCE = 1e-3  # of a quaternion


@dataclass(frozen=True)
class Truth:
    """What is the case in the twin. q (6,) rad; objects: name -> (7,) pose in base; time_s: of the simulation."""

    q: np.ndarray
    objects: dict[str, np.ndarray]
    time_s: float


class TwinPlant:
    """`so101.robot.virtual.plant.Plant` on the twin. One thread steps it; the other methods may be called from any.

    Args:
        rig: how it differs from the twin of the configuration; not at all by default.
        q: (6,) start, rad; home when None.

    Attributes:
        randomisation: physics of the current reset, plain JSON, as a renderer needs it.
    """

    def __init__(self, config: Config, rig: RigDraw = NOMINAL, q: np.ndarray | None = None) -> None:
        self.config, self.rig = config, rig
        self.step_s = config.scene.physics.timestep_s
        self.stuck = np.zeros(len(config.robot.joints), bool)
        self.randomisation: dict[str, Any] = {}
        self._simulator = MujocoSimulator(config)
        self._stall_nm = stall_torque_nm(config)
        self._lock = threading.Lock()
        self._substeps, self._substep = config.scene.physics.substeps, 0
        self._seen: deque[Truth] = deque(maxlen=config.task.active.success.strict.still_frames + 1)
        home = np.array([joint.home_rad for joint in config.robot.joints])
        self._was_stuck = self.stuck.copy()
        self.reset(q=home if q is None else q)

    def reset(
        self,
        objects: Mapping[str, np.ndarray] | None = None,
        *,
        seed: int | None = None,
        q: np.ndarray | None = None,
        randomisation: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """A new episode.

        Args:
            objects: name -> (7,) pose in base; drawn with `seed` when None, as in the files without that.
            q: (6,) rad, where the arm is put; it stays where it is when None.
            randomisation: physics of a demo that is to be repeated; the rig's own joints stay.

        Raises:
            SimulationError: an object that the task does not have, that cannot be moved, a pose that is none, or
                physics that is none; then nothing was changed.
        """
        if objects is None and seed is not None:
            objects, _ = draw_placements(self.config, np.random.default_rng(seed))
        elif objects is None:
            objects = nominal_placements(self.config)
        for name, pose in objects.items():
            self._simulator.object_slice(name)
            if not np.isfinite(pose).all() or abs(np.linalg.norm(pose[3:]) - 1) > _UNIT_TOLERANCE:
                raise SimulationError(f"{name} cannot be put at {np.array(pose).tolist()}: position m, unit quaternion")
        if q is not None and not np.isfinite(q).all():
            raise SimulationError(f"the joints cannot be put at {np.array(q).tolist()} rad")
        # Never empty, so that the simulator runs a model of its own, whose servos may be written to.
        physics = {"joints": {}, **randomisation.get("physics", {}), **self.rig.physics}
        with self._lock:
            simulator = self._simulator
            try:
                simulator.randomise(0, {"physics": physics})
            except Exception as error:
                simulator.randomise(0, self.randomisation)
                if isinstance(error, SimulationError):
                    raise
                raise SimulationError(f"the physics of the randomisation cannot be used: {error!r}") from None
            at = simulator.joint_positions(0) if q is None else np.array(q, float)
            simulator.reset(0, at, objects, {"physics": physics})
            self.randomisation = {"physics": physics}
            model = simulator.models[0]
            self._gain, self._bias = model.actuator_gainprm[:, 0].copy(), model.actuator_biasprm[:, 1].copy()
            self._damping = model.dof_damping[: len(at)].copy()
            self._play = at.copy()
            self._was_stuck[:] = False
            self._first = self._look()
            self._seen.clear()
            self._seen.append(self._first)
            self._state = (at + self.rig.zero_error_rad, np.zeros_like(at), np.zeros_like(at))

    def step(self, targets: np.ndarray, strength: np.ndarray, stiffness: np.ndarray) -> None:
        with self._lock:
            model, data = self._simulator.models[0], self._simulator.data[0]
            wanted = targets - self.rig.zero_error_rad
            half = self.rig.backlash_rad / 2
            self._play = np.clip(self._play, wanted - half, wanted + half)  # gears follow at the end of their play
            model.actuator_forcerange[:, 0] = -strength * self._stall_nm
            model.actuator_forcerange[:, 1] = strength * self._stall_nm
            model.actuator_gainprm[:, 0] = self._gain * stiffness
            model.actuator_biasprm[:, 1] = self._bias * stiffness
            if (self.stuck != self._was_stuck).any():
                self._was_stuck = self.stuck.copy()
                joints = slice(0, len(self.stuck))
                model.dof_damping[joints] = np.where(self.stuck, _BLOCKED_NM_S_PER_RAD, self._damping)
            data.ctrl[:] = self._play
            mujoco.mj_step(model, data)
            joints = len(wanted)
            load = data.actuator_force / self._stall_nm
            self._state = data.qpos[:joints] + self.rig.zero_error_rad, data.qvel[:joints].copy(), load
            self._substep = (self._substep + 1) % self._substeps
            if self._substep == 0:
                self._seen.append(self._look())

    def state(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._state

    def truth(self) -> Truth:
        """What a camera would see, now."""
        with self._lock:
            return self._look()

    def verdict(self) -> Verdict:
        """Whether the task is done: judged as a demo that began at the last reset and ends now."""
        with self._lock:
            seen = [self._first, *self._seen]
        objects = {name: np.array([truth.objects[name] for truth in seen]) for name in seen[0].objects}
        return judge(self.config, objects, np.array([truth.q for truth in seen]))

    def _look(self) -> Truth:
        simulator = self._simulator
        objects = {name: simulator.object_pose(0, name) for name in self.config.objects}
        return Truth(simulator.joint_positions(0), objects, float(simulator.data[0].time))
