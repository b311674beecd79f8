"""How the servos of a virtual arm sit on its joints."""

from __future__ import annotations

import math

import numpy as np

from so101.config.robot import RobotConfig
from so101.datasets.units import TICKS_PER_TURN, ticks_to_rad
from so101.robot.calibration import ArmCalibration, MotorCalibration


def made_calibration(robot: RobotConfig) -> ArmCalibration:
    """Of an arm without a file: body joints in the middle of the turn with room for both limits, the jaw's nominal
    span."""
    motors = {}
    for joint, id, offset in zip(robot.joints, robot.bus.ids, robot.virtual.homing_offset_ticks, strict=True):
        if joint is not robot.joints[-1]:
            half_rad = max(-joint.lower_rad, joint.upper_rad)
        else:
            half_rad = math.radians(joint.nominal_upper_deg - joint.nominal_lower_deg) / 2
        half = half_rad / (2 * math.pi) * TICKS_PER_TURN
        low, high = math.floor(TICKS_PER_TURN / 2 - half), math.ceil(TICKS_PER_TURN / 2 + half)
        motors[joint.name] = MotorCalibration(id, 0, offset, max(0, low), min(TICKS_PER_TURN, high))
    return ArmCalibration(motors, "the virtual arm")


def joint_map(robot: RobotConfig, calibration: ArmCalibration) -> tuple[np.ndarray, np.ndarray]:
    """(6,) scale and offset of rad = scale * ticks + offset, ticks as the servos report them."""
    units = calibration.units(robot)
    offset = ticks_to_rad(np.zeros(len(robot.joints)), units, robot)
    return ticks_to_rad(np.ones(len(robot.joints)), units, robot) - offset, offset
