"""The real arm: its servo bus, its calibration, and what keeps it safe. `make_driver(config, arm=...)` gives a `Robot`.

``base`` says what an arm can do, ``driver`` does it on this machine, `services.driver.client.RemoteRobot` elsewhere.
``virtual`` is a serial port with simulated servos: all of this runs on it as it is.
"""

from __future__ import annotations

from pathlib import Path

from so101.config import Config
from so101.robot.arm import FeetechArm
from so101.robot.base import (
    BusError,
    CalibrationError,
    CommandRefused,
    NotArmed,
    Robot,
    RobotError,
    RobotState,
    TorqueLeftOn,
)
from so101.robot.driver import ArmDriver
from so101.robot.ports import find_port

__all__ = [
    "ArmDriver",
    "BusError",
    "CalibrationError",
    "CommandRefused",
    "FeetechArm",
    "NotArmed",
    "Robot",
    "RobotError",
    "RobotState",
    "TorqueLeftOn",
    "make_arm",
    "make_driver",
    "make_leader",
]


def make_arm(config: Config, port: str | None = None, calibration: Path | str | None = None) -> FeetechArm:
    """The follower's servos, not connected yet; port and calibration as in robot.yaml unless given.

    Raises:
        BusError: the port is "auto" and cannot be told, or the servo SDK is missing.
    """
    bus = config.robot.bus
    port = find_port(port or bus.port, "robot.bus.port")
    return FeetechArm(config.robot, port, calibration or bus.calibration)


def make_leader(config: Config, port: str | None = None, calibration: Path | str | None = None) -> FeetechArm:
    """The leader's servos. As `make_arm`."""
    leader = config.robot.leader
    port = find_port(port or leader.port, "robot.leader.port")
    return FeetechArm(config.robot, port, calibration or leader.calibration)


def make_driver(
    config: Config, *, arm: bool, port: str | None = None, calibration: Path | str | None = None
) -> ArmDriver:
    """The follower with its safety, not connected yet.

    Args:
        arm: whether it may be energised and move.

    Raises:
        BusError: as `make_arm`.
        ConfigError: a floor box does not exist.
    """
    lowest_m = None
    if arm:
        from so101.kinematics.finger_tips import FingerTips  # bakes the model on first use

        lowest_m = FingerTips(config, config.robot.safety.floor_boxes).lowest_m
    return ArmDriver(config, make_arm(config, port, calibration), may_arm=arm, lowest_m=lowest_m)
