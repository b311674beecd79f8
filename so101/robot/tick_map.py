"""Calibrated servo ticks <-> the joints of a model, unclamped, clamped, and how far beyond the model's limits.

What a driver calls a joint (`so101.datasets.units`: 4095 ticks a turn, zero in the middle of the calibrated range, the
jaw by fraction) is a model's joint, unless an arm was built or calibrated otherwise. `deploy.reach.tick_map` holds what
differs on one arm: signs, zeros, the jaw's span.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from so101.config.reach import TickMapConfig
from so101.config.robot import RobotConfig
from so101.datasets.units import TICKS_PER_TURN, Calibration, rad_to_ticks, ticks_to_rad
from so101.robot.base import CalibrationError

_ROUNDING_RAD = 1e-5  # limits are written with five decimals: less is not beyond them
_MID_TICKS = 1.0  # two calibrations whose middles differ by more are two calibrations


class JointRange(NamedTuple):
    """What a joint was calibrated to against what the model allows.

    Attributes:
        real_rad, model_rad: lower and upper end, in the model's joint.
        below_rad, above_rad: how far the real range goes beyond the model's limits, 0 where it does not.
        continuous: the range is a whole turn, so nobody swept it and it is no measured span.
    """

    joint: str
    real_rad: tuple[float, float]
    model_rad: tuple[float, float]
    below_rad: float
    above_rad: float
    continuous: bool

    @property
    def gap_rad(self) -> float:
        """Real span less the model's: negative where the arm turns less than the model."""
        return (self.real_rad[1] - self.real_rad[0]) - (self.model_rad[1] - self.model_rad[0])

    def text(self) -> str:
        """One line, in degrees."""
        (low, high), (model_low, model_high) = np.degrees(self.real_rad), np.degrees(self.model_rad)
        span = f"{self.joint}: {low:.1f} to {high:.1f} deg, model {model_low:.1f} to {model_high:.1f}"
        if self.continuous:
            return f"{span}; a whole turn, not a measured span"
        return f"{span}; gap {np.degrees(self.gap_rad):+.1f} deg"


class TickMap:
    """The map of one arm. Arrays are (..., 6), order of robot.yaml.

    Args:
        robot: gives joints, limits and nominal spans.
        calibration: ranges and mirrored servos of the arm.
        settings: how this arm differs from the nominal map.

    Raises:
        CalibrationError: the settings belong to another calibration (`fits_mid_ticks`).
    """

    def __init__(self, robot: RobotConfig, calibration: Calibration, settings: TickMapConfig) -> None:
        self._robot, self._calibration, self._settings = robot, calibration, settings
        self._check_fits()
        self.lower = np.array([joint.lower_rad for joint in robot.joints])
        self.upper = np.array([joint.upper_rad for joint in robot.joints])
        sign = np.array(settings.sign, float)
        self._scale = sign * TICKS_PER_TURN / settings.ticks_per_turn  # model = scale * driver's joint + offset
        self._offset = np.array(settings.offset_rad)
        self._scale[-1], self._offset[-1] = self._jaw(sign[-1])

    def unclamped(self, ticks: np.ndarray) -> np.ndarray:
        """Model joints, rad, of servo ticks."""
        return self.of_joints(ticks_to_rad(ticks, self._calibration, self._robot))

    def clamped(self, ticks: np.ndarray) -> np.ndarray:
        """The same within the model's limits."""
        return np.clip(self.unclamped(ticks), self.lower, self.upper)

    def overshoot(self, ticks: np.ndarray) -> np.ndarray:
        """rad beyond the model's limits, 0 within: what `clamped` takes off."""
        return self.beyond(self.unclamped(ticks))

    def ticks(self, q: np.ndarray) -> np.ndarray:
        """The nearest whole ticks, int64, of model joints in rad; also of those that no servo reaches."""
        return rad_to_ticks(self.to_joints(q), self._calibration, self._robot)

    def of_joints(self, q: np.ndarray) -> np.ndarray:
        """Model joints, rad, of what the driver calls joints."""
        return np.asarray(q, float) * self._scale + self._offset

    def to_joints(self, q: np.ndarray) -> np.ndarray:
        """What the driver calls model joints q, rad."""
        return (np.asarray(q, float) - self._offset) / self._scale

    def speeds(self, qd: np.ndarray) -> np.ndarray:
        """Model speeds, rad/s, of the driver's."""
        return np.asarray(qd, float) * self._scale

    def beyond(self, q: np.ndarray) -> np.ndarray:
        """rad by which model joints q are beyond the model's limits, 0 within."""
        over = np.maximum(np.maximum(self.lower - q, np.asarray(q, float) - self.upper), 0.0)
        return np.where(over < _ROUNDING_RAD, 0.0, over)

    def nearby(self, q: np.ndarray, present: np.ndarray, step_ticks: int) -> tuple[np.ndarray, bool]:
        """Model joints q (6,) within the calibrated range and at most `step_ticks` from the present ones, in whole
        ticks; and whether `step_ticks` shortened it. A present joint outside of the range comes back in at once."""
        low, high = self._calibration.range_min, self._calibration.range_max
        here = self.ticks(present)
        wanted = np.clip(self.ticks(q), low, high)
        near = np.clip(np.clip(wanted, here - step_ticks, here + step_ticks), low, high)
        return self.unclamped(near), bool((near != wanted).any())

    def range_report(self) -> list[JointRange]:
        """Every joint's calibrated range in the model."""
        ends = np.array([self.unclamped(self._calibration.range_min), self.unclamped(self._calibration.range_max)])
        low, high = ends.min(axis=0), ends.max(axis=0)
        below, above = self.beyond(low), self.beyond(high)
        whole = self._calibration.range_max - self._calibration.range_min == TICKS_PER_TURN
        return [
            JointRange(
                joint,
                (float(low[j]), float(high[j])),
                (float(self.lower[j]), float(self.upper[j])),
                float(below[j]) if low[j] < self.lower[j] else 0.0,
                float(above[j]) if high[j] > self.upper[j] else 0.0,
                bool(whole[j]),
            )
            for j, joint in enumerate(self._robot.joint_names)
        ]

    def departures(self) -> list[str]:
        """How this map differs from the nominal one, one text a difference; none for most arms."""
        names, settings = self._robot.joint_names, self._settings
        found = [f"{name}: mirrored (sign -1)" for name, sign in zip(names, settings.sign, strict=True) if sign < 0]
        found += [
            f"{name}: zero moved by {np.degrees(offset):+.2f} deg"
            for name, offset in zip(names, settings.offset_rad, strict=True)
            if offset
        ]
        if settings.jaw_span_rad is not None:
            closed, opened = np.degrees(settings.jaw_span_rad)
            found.append(f"{names[-1]}: closed at {closed:.1f}, open at {opened:.1f} deg")
        if settings.ticks_per_turn != TICKS_PER_TURN:
            found.append(f"{settings.ticks_per_turn} ticks a turn, LeRobot counts {TICKS_PER_TURN}")
        return found

    def round_trip_error_rad(self, fractions: Sequence[float]) -> float:
        """The worst a joint changes on its way from the ticks at these fractions of its range to the model and back,
        through the driver's joints and whole ticks."""
        low, high = self._calibration.range_min, self._calibration.range_max
        ticks = np.rint(low + np.outer(fractions, high - low))
        there = self.unclamped(ticks)
        return float(np.abs(self.unclamped(self.ticks(there)) - there).max())

    def _jaw(self, sign: float) -> tuple[float, float]:
        """Scale and offset of the jaw: the fraction of its range, mirrored or not, over the model's span. Never
        clamped."""
        jaw = self._robot.joints[-1]
        nominal = np.radians([jaw.nominal_lower_deg, jaw.nominal_upper_deg])
        closed, opened = nominal if self._settings.jaw_span_rad is None else self._settings.jaw_span_rad
        start, end = (closed, opened) if sign > 0 else (opened, closed)
        scale = (end - start) / (nominal[1] - nominal[0])
        return scale, start - scale * nominal[0]

    def _check_fits(self) -> None:
        wanted, calibration = self._settings.fits_mid_ticks, self._calibration
        if wanted is None:
            return
        mids = (calibration.range_min + calibration.range_max) / 2
        if np.abs(mids - wanted).max() > _MID_TICKS:
            raise CalibrationError(
                f"deploy.reach.tick_map belongs to an arm with its middles at {wanted} ticks (fits_mid_ticks); "
                f"{calibration.source or 'this arm'} has {mids.tolist()}: calibrated anew, or another arm. Measure its "
                "zeros again, or set sign, offset_rad, jaw_span_rad and fits_mid_ticks back to the shipped values"
            )
