"""What the motors move. A plant has joints in rad and knows nothing of servos' registers."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from so101.config import Config
from so101.robot.virtual.registers import REGISTERS

_FULL = REGISTERS["max_torque"].default


class Plant(Protocol):
    """Six joints, order of robot.yaml.

    Attributes:
        step_s: what one `step` advances.
        stuck: (6,) bool, joints that something blocks where they are; may be set at any time.
    """

    step_s: float
    stuck: np.ndarray

    def step(self, targets: np.ndarray, strength: np.ndarray, stiffness: np.ndarray) -> None:
        """Advance `step_s`. targets (6,) rad; strength (6,) share of the stall torque a motor may use, 0 is limp;
        stiffness (6,) times the identified one."""

    def state(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q (6,) rad, its speed (6,) rad/s, load (6,) share of the stall torque."""


def stall_torque_nm(config: Config) -> np.ndarray:
    """(6,) torque at full strength; the force limit that robot.yaml gives for the jaw is that of a part of it."""
    stall = np.array([joint.force_limit_nm for joint in config.robot.joints])
    stall[-1] *= _FULL / config.robot.virtual.servo.identified_jaw_max_torque
    return stall


class KinematicPlant:
    """Joints that follow their targets with a lag, without weight, objects or MuJoCo. Limp joints stay, or go where
    `place` puts them: a leader arm in somebody's hand.

    Args:
        q: (6,) start, rad; home when None.
    """

    def __init__(self, config: Config, q: np.ndarray | None = None) -> None:
        joints = config.robot.joints
        self.step_s = config.scene.physics.timestep_s
        self.stuck = np.zeros(len(joints), bool)
        self._lower = np.array([joint.lower_rad for joint in joints])
        self._upper = np.array([joint.upper_rad for joint in joints])
        self._share_per_rad = np.array([joint.stiffness_nm_per_rad for joint in joints]) / stall_torque_nm(config)
        lag = config.robot.virtual.servo.kinematic_lag_s
        self._share = 1.0 if lag == 0 else 1.0 - np.exp(-self.step_s / lag)
        self._q = np.array([joint.home_rad for joint in joints]) if q is None else np.array(q, float)
        self._speed = np.zeros_like(self._q)
        self._load = np.zeros_like(self._q)

    def place(self, q: np.ndarray) -> None:
        """Put the joints at q (6,) rad."""
        self._q = np.clip(np.array(q, float), self._lower, self._upper)

    def step(self, targets: np.ndarray, strength: np.ndarray, stiffness: np.ndarray) -> None:
        way = np.where(strength > 0, targets - self._q, 0.0)
        move = np.where(self.stuck, 0.0, way * self._share)
        before, self._q = self._q, np.clip(self._q + move, self._lower, self._upper)
        self._speed = (self._q - before) / self.step_s
        pushing = way - (self._q - before)
        self._load = np.clip(pushing * stiffness * self._share_per_rad, -strength, strength)

    def state(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._q, self._speed, self._load
