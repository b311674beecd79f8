"""Radians of the twin <-> the units LeRobot stores <-> servo ticks. The only place where these conversions are written.

The twin's zero is the middle of a body joint's calibrated range, which is also zero in LeRobot's degrees. The jaw is a
fraction of its span in every LeRobot mode: 0 closed, 100 open. Conversions are affine per joint and are not clamped;
LeRobot itself clamps what has a range, see `LeRobotUnits.clip`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from so101.config.robot import RobotConfig
from so101.errors import DataError

TICKS_PER_TURN = 4095  # LeRobot divides by the resolution less one
RAD_PER_TICK = 2 * np.pi / TICKS_PER_TURN
PSEUDO_RADIAN_JAW_SPAN = 1.7  # of recorders that write normalised values as if they were radians

UnitKind = Literal["degrees", "normalized", "radians", "pseudo_radians"]


@dataclass(frozen=True)
class LeRobotUnits:
    """value = scale * q + offset per joint (J,), q in rad; values are meant to lie within [lower, upper]."""

    kind: str
    scale: np.ndarray
    offset: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def clip(self, values: np.ndarray) -> np.ndarray:
        """(..., J) values as LeRobot would report them: the jaw and normalised joints within their range."""
        return np.clip(values, self.lower, self.upper)


@dataclass(frozen=True)
class Calibration:
    """Ranges of one arm in servo ticks, (J,) each, order of robot.yaml. `sign` is -1 where the servo is mirrored."""

    range_min: np.ndarray
    range_max: np.ndarray
    sign: np.ndarray
    source: str = ""


def rad_to_lerobot(q_rad: np.ndarray, units: LeRobotUnits) -> np.ndarray:
    """(..., J) joint positions, rad, to LeRobot values."""
    return np.asarray(q_rad, float) * units.scale + units.offset


def lerobot_to_rad(values: np.ndarray, units: LeRobotUnits) -> np.ndarray:
    """(..., J) LeRobot values to joint positions, rad; inverse of `rad_to_lerobot`."""
    return (np.asarray(values, float) - units.offset) / units.scale


def ticks_to_rad(ticks: np.ndarray, calibration: Calibration, robot: RobotConfig) -> np.ndarray:
    """(..., J) servo ticks to rad: body joints turn about the middle of their range, the jaw fills its nominal span."""
    scale, offset = _ticks_to_rad_map(calibration, robot)
    return np.asarray(ticks, float) * scale + offset


def rad_to_ticks(q_rad: np.ndarray, calibration: Calibration, robot: RobotConfig) -> np.ndarray:
    """(..., J) rad to the nearest servo tick, int64; inverse of `ticks_to_rad` up to half a tick."""
    scale, offset = _ticks_to_rad_map(calibration, robot)
    return np.rint((np.asarray(q_rad, float) - offset) / scale).astype(np.int64)


def make_units(kind: UnitKind, robot: RobotConfig, calibration: Calibration | None = None) -> LeRobotUnits:
    """The units of a recording or dataset.

    Args:
        kind: "degrees" (jaw 0..100), "normalized" (-100..100, jaw 0..100), "radians" (all joints), or "pseudo_radians":
            normalised / 100 * pi, jaw / 100 * 1.7, as some recorders write and call radians.
        robot: gives the joints and their nominal spans.
        calibration: spans of one arm, used instead of the nominal ones where a span matters.

    Raises:
        ValueError: an unknown kind.
    """
    lower_rad, upper_rad = _spans_rad(robot, calibration)
    jaw = _is_jaw(robot)
    if kind == "radians":
        ones, unbounded = np.ones(len(jaw)), np.full(len(jaw), np.inf)
        return LeRobotUnits(kind, ones, 0 * ones, -unbounded, unbounded)
    low, high = np.where(jaw, 0.0, -100.0), np.full(len(jaw), 100.0)
    scale = (high - low) / (upper_rad - lower_rad)
    offset = low - scale * lower_rad
    if kind == "normalized":
        return LeRobotUnits(kind, scale, offset, low, high)
    if kind == "pseudo_radians":
        factor = np.where(jaw, PSEUDO_RADIAN_JAW_SPAN, np.pi) / 100
        return LeRobotUnits(kind, scale * factor, offset * factor, low * factor, high * factor)
    if kind == "degrees":
        return LeRobotUnits(
            kind,
            np.where(jaw, scale, np.degrees(1.0)),
            np.where(jaw, offset, 0.0),
            np.where(jaw, low, -np.inf),
            np.where(jaw, high, np.inf),
        )
    raise ValueError(f"unknown units {kind!r}; known: degrees, normalized, radians, pseudo_radians")


def load_calibration(path: Path | str, robot: RobotConfig) -> Calibration:
    """Read a LeRobot calibration file: JSON, joint -> {id, drive_mode, homing_offset, range_min, range_max}.

    Raises:
        DataError: not such a file, a joint or field missing, or an empty range; all faults at once.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as a calibration file ({error})") from None
    if isinstance(content, dict) and "calib_mode" in content:
        raise DataError(
            f"{path}: calibration in LeRobot's old list format (start_pos, end_pos, calib_mode); "
            "calibrate the arm again with a current LeRobot to get joint -> range_min, range_max"
        )
    faults = [] if isinstance(content, dict) else ["it is not a mapping of joints"]
    for name in robot.joint_names if not faults else ():
        faults += _joint_faults(name, content.get(name))
    if faults:
        raise DataError(f"{path}: not usable as a calibration file: {'; '.join(faults)}")
    joints = [content[name] for name in robot.joint_names]
    return Calibration(
        range_min=np.array([joint["range_min"] for joint in joints], float),
        range_max=np.array([joint["range_max"] for joint in joints], float),
        sign=np.array([-1.0 if joint.get("drive_mode") else 1.0 for joint in joints]),
        source=str(path),
    )


def _joint_faults(name: str, joint: Any) -> list[str]:
    if not isinstance(joint, dict):
        return [f"joint {name} is missing"]
    bounds = [joint.get(key) for key in ("range_min", "range_max")]
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in bounds):
        return [f"{name}: range_min and range_max are {bounds}, both must be whole ticks"]
    if not 0 <= bounds[0] < bounds[1] <= TICKS_PER_TURN:
        return [f"{name}: range {bounds} must be two rising ticks within 0..{TICKS_PER_TURN}"]
    return []


def _is_jaw(robot: RobotConfig) -> np.ndarray:
    """(J,) bool: the jaw is the last joint."""
    return np.arange(len(robot.joints)) == len(robot.joints) - 1


def _spans_rad(robot: RobotConfig, calibration: Calibration | None) -> tuple[np.ndarray, np.ndarray]:
    """(J,) lower and upper end, rad, of what LeRobot calls -100 (jaw 0) and 100."""
    lower = np.radians([joint.nominal_lower_deg for joint in robot.joints])
    upper = np.radians([joint.nominal_upper_deg for joint in robot.joints])
    if calibration is None:
        return lower, upper
    half = (calibration.range_max - calibration.range_min) / 2 * RAD_PER_TICK
    return np.where(_is_jaw(robot), lower, -half), np.where(_is_jaw(robot), upper, half)


def _ticks_to_rad_map(calibration: Calibration, robot: RobotConfig) -> tuple[np.ndarray, np.ndarray]:
    """(J,) scale and offset of rad = scale * ticks + offset: the middle of the ticks is the middle of the span."""
    lower, upper = _spans_rad(robot, calibration)
    scale = calibration.sign * (upper - lower) / (calibration.range_max - calibration.range_min)
    middle_ticks = (calibration.range_min + calibration.range_max) / 2
    return scale, (lower + upper) / 2 - scale * middle_ticks
