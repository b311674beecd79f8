"""What an arm can do, wherever it is: on this machine's bus (`ArmDriver`) or behind the driver service
(`services.driver.client.RemoteRobot`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from so101.errors import So101Error

Mode = Literal["released", "holding", "following", "returning", "stopped", "stuck", "lost"]
MODES: dict[Mode, str] = {
    "released": "no torque; joints can be moved by hand",
    "holding": "torque on, the goal stands still",
    "following": "torque on, commands are carried out",
    "returning": "on the way home, to be released there",
    "stopped": "emergency stop: torque on, holds until someone arms or disarms",
    "stuck": "home was not reached: torque LEFT ON, the arm must be held before its power is cut",
    "lost": "the bus does not answer; servos that have power keep their torque and their last goal",
}


class RobotError(So101Error):
    """The arm, its bus or its calibration."""

    exit_code = 7


class BusError(RobotError):
    """The serial port or servos on it do not answer, or answer nonsense."""


class CalibrationError(RobotError):
    """A calibration is missing, or the servos hold another one."""


class NotArmed(RobotError):
    """A command to an arm that may not move, or has no torque."""


class CommandRefused(RobotError):
    """A command that no arm should carry out (nan, wrong length), or not now."""


class TorqueLeftOn(RobotError):
    """The arm did not get home: its torque was left on so that it does not fall."""

    exit_code = 8


@dataclass(frozen=True)
class RobotState:
    """One look at the arm; arrays (6,), order of robot.yaml.

    Attributes:
        stamp_s: wall clock, s, when the positions were read.
        q_rad, qd_rad_s: joints, rad and rad/s.
        load_pct: of the servo's greatest torque, signed.
        temperature_c, voltage_v: of each servo.
        error_bits: status byte of each servo; `so101.robot.tables.error_texts` says what it means.
        goal_rad: where the servos were last sent; the joints themselves when there is no torque.
        mode, reason: what the arm does (`MODES`) and why.
        armed: whether torque is on, as far as known.
        warnings: texts about heat, load and voltage.
        missed_reads: reads in a row that failed; the arrays are then older than they seem.
    """

    stamp_s: float
    q_rad: np.ndarray
    qd_rad_s: np.ndarray
    load_pct: np.ndarray
    temperature_c: np.ndarray
    voltage_v: np.ndarray
    error_bits: np.ndarray
    goal_rad: np.ndarray
    mode: Mode
    reason: str
    armed: bool
    warnings: tuple[str, ...] = ()
    missed_reads: int = 0


class Robot(Protocol):
    """An arm with its safety. Methods may be called from any thread; they raise `RobotError`s."""

    joint_names: tuple[str, ...]

    def connect(self) -> None:
        """Find the arm and start looking at it. Moves and energises nothing."""

    def read(self) -> RobotState:
        """The newest state."""

    def arm(self) -> None:
        """Torque on, goals parked on the present pose first.

        Raises:
            NotArmed: this robot was made without permission to move.
            CalibrationError: servos and calibration file disagree.
        """

    def command(self, q_rad: np.ndarray) -> np.ndarray:
        """Send joints (6,) rad; returns what was really sent after all limits. While the arm holds for a reason of its
        own (heat, load), that is the goal it holds.

        Raises:
            NotArmed: no torque.
            CommandRefused: not six finite numbers, or the arm is returning home or stopped.
        """

    def hold(self) -> None:
        """Stay. To be repeated while nothing is commanded for a longer time: silence sends the arm home."""

    def stop(self) -> None:
        """Emergency stop: stay where the arm is now, take no commands until `arm` or `disarm`."""

    def disarm(self, wait: bool = True) -> None:
        """Return home, then release the torque.

        Args:
            wait: until that is done; otherwise it goes on by itself (`read().mode`).

        Raises:
            TorqueLeftOn: home was not reached (only with `wait`).
        """

    def close(self) -> None:
        """Disarm what is armed, and let go of the arm. Errors as `disarm`."""
