"""How the servos of the virtual arm sit on its joints, in the form of LeRobot's calibration files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from so101.config import Config
from so101.datasets.units import TICKS_PER_TURN, Calibration, load_calibration, ticks_to_rad

ArmCalibration = dict[str, dict[str, int]]  # joint -> id, drive_mode, homing_offset, range_min, range_max


def made_calibration(config: Config) -> ArmCalibration:
    """Of an arm without a file: ids 1 to 6, body joints in the middle of the turn with room for both limits, the jaw's
    nominal span."""
    made = {}
    offsets = config.robot.virtual.homing_offset_ticks
    for number, (joint, offset) in enumerate(zip(config.robot.joints, offsets, strict=True)):
        if number < len(offsets) - 1:
            half_rad = max(-joint.lower_rad, joint.upper_rad)
        else:
            half_rad = math.radians(joint.nominal_upper_deg - joint.nominal_lower_deg) / 2
        half = half_rad / (2 * math.pi) * TICKS_PER_TURN
        low, high = math.floor(TICKS_PER_TURN / 2 - half), math.ceil(TICKS_PER_TURN / 2 + half)
        made[joint.name] = {
            "id": number + 1,
            "drive_mode": 0,
            "homing_offset": offset,
            "range_min": max(0, low),
            "range_max": min(TICKS_PER_TURN, high),
        }
    return made


def read_calibration(config: Config, source: Path | str | Mapping | None) -> ArmCalibration:
    """A LeRobot file, its content, or the made one when None.

    Raises:
        DataError: the file is no calibration.
    """
    if source is None:
        return made_calibration(config)
    if isinstance(source, Mapping):
        return {name: dict(source[name]) for name in config.robot.joint_names}
    load_calibration(source, config.robot)  # for its checks
    content = json.loads(Path(source).read_text(encoding="utf-8"))
    return {name: content[name] for name in config.robot.joint_names}


def joint_map(config: Config, arm: ArmCalibration) -> tuple[np.ndarray, np.ndarray]:
    """(6,) scale and offset of rad = scale * ticks + offset, ticks as the servos report them."""
    joints = [arm[name] for name in config.robot.joint_names]
    calibration = Calibration(
        range_min=np.array([joint["range_min"] for joint in joints], float),
        range_max=np.array([joint["range_max"] for joint in joints], float),
        sign=np.array([-1.0 if joint.get("drive_mode") else 1.0 for joint in joints]),
    )
    offset = ticks_to_rad(np.zeros(len(joints)), calibration, config.robot)
    return ticks_to_rad(np.ones(len(joints)), calibration, config.robot) - offset, offset
