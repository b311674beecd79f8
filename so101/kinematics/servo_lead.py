"""What a position servo takes off its command, and how far beyond the wanted joints one must aim because of it.

At rest a servo stands where stiffness times the rest of the way balances gravity and dry friction. Gravity is known
from the joints. Friction holds against the last movement: its share runs from -1 to 1 with the way gone since the
last turn, and is all there after `friction_turn_rad`.
"""

from __future__ import annotations

import numpy as np

from so101.config import Config
from so101.kinematics.arm import NUM_ARM_JOINTS, ArmKinematics


class ServoLead:
    """Commands for wanted joints, frame by frame, and back. `reset` before the first frame of a movement from rest."""

    def __init__(self, config: Config, kinematics: ArmKinematics) -> None:
        joints = config.robot.joints[:NUM_ARM_JOINTS]
        self._kinematics = kinematics
        self._stiffness = np.array([joint.stiffness_nm_per_rad for joint in joints])
        self.friction_band = np.array([joint.friction_nm for joint in joints]) / self._stiffness
        self._turn = config.robot.friction_turn_rad
        self.reset(np.zeros(NUM_ARM_JOINTS))

    def reset(self, q: np.ndarray) -> None:
        """The arm is at rest at q (5,) or (6,) rad; friction holds nothing."""
        self._last = np.array(q[:NUM_ARM_JOINTS], float)
        self._share = np.zeros(NUM_ARM_JOINTS)

    def command(self, q: np.ndarray) -> np.ndarray:
        """(5,) rad to send so that the arm goes to q (5,) rad, the hand empty."""
        share = self._share + (q - self._last) / self._turn
        self._share = np.minimum(np.maximum(share, -1.0), 1.0)  # faster than clip for five numbers
        self._last = np.array(q, float)
        return q + self._gravity(q) + self.friction_band * self._share

    def wanted(self, command: np.ndarray) -> np.ndarray:
        """(5,) rad where the arm goes by `command` (5,) rad: inverse of `command`, frame by frame."""
        aim = command - self._gravity(self._last)
        for _ in range(_GRAVITY_ITERATIONS):
            way = aim - self._last
            step = (way - self.friction_band * self._share) / (1 + self.friction_band / self._turn)
            share = self._share + step / self._turn
            step = np.where(share > 1, way - self.friction_band, np.where(share < -1, way + self.friction_band, step))
            q = self._last + step
            aim = command - self._gravity(q)
        self._share = np.clip(self._share + step / self._turn, -1, 1)
        self._last = q
        return q

    def wanted_path(self, commands: np.ndarray, q_start: np.ndarray) -> np.ndarray:
        """(T, 5) rad for commands (T, 5 or 6) of an arm that was at rest at q_start."""
        self.reset(q_start)
        return np.array([self.wanted(row[:NUM_ARM_JOINTS]) for row in commands])

    def _gravity(self, q: np.ndarray) -> np.ndarray:
        return self._kinematics.gravity_torque(q) / self._stiffness


_GRAVITY_ITERATIONS = 3  # gravity changes by some percent over the sag: each gains more than a digit
