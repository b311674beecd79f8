"""Calibration of one arm in LeRobot's file format, and the same numbers in its servos.

LeRobot writes a file to the servos: the homing offset makes the middle pose read 2047, the swept range becomes the
position limits. An arm whose servos hold other numbers than its file would be driven to wrong places, so the two are
compared on every connection.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from so101.config.robot import RobotConfig
from so101.datasets import units
from so101.errors import DataError
from so101.files import write_text
from so101.robot.base import CalibrationError
from so101.robot.feetech_bus import FeetechBus

HALF_TURN = 2047  # what the middle pose reads [lerobot]
FULL_RANGE = (0, units.TICKS_PER_TURN)
_WRAP = 2048  # half a turn of the encoder
_IN_SERVO = {"homing_offset": "homing_offset", "range_min": "min_position", "range_max": "max_position"}


@dataclass(frozen=True)
class MotorCalibration:
    """One servo, in ticks; fields and their order as in LeRobot's files."""

    id: int
    drive_mode: int
    homing_offset: int
    range_min: int
    range_max: int


@dataclass(frozen=True)
class ArmCalibration:
    """All servos by joint name, in the order of the file. `source` says where it comes from."""

    motors: dict[str, MotorCalibration]
    source: str

    @classmethod
    def load(cls, path: Path | str, robot: RobotConfig) -> ArmCalibration:
        """Read a LeRobot file.

        Raises:
            CalibrationError: not such a file, or joints or fields are missing; all faults at once.
        """
        try:
            units.load_calibration(path, robot)
        except DataError as error:
            raise CalibrationError(str(error)) from None
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        names = [field.name for field in fields(MotorCalibration)]
        faults = [
            f"{joint}: {name} is {values.get(name)!r}, must be a whole number"
            for joint, values in content.items()
            for name in names
            if type(values.get(name)) is not int
        ]
        if faults:
            raise CalibrationError(f"{path}: not usable as a calibration file: {'; '.join(faults)}")
        return cls({joint: MotorCalibration(**{n: v[n] for n in names}) for joint, v in content.items()}, str(path))

    @classmethod
    def of_servos(cls, bus: FeetechBus, robot: RobotConfig) -> ArmCalibration:
        """What the servos hold.

        Raises:
            BusError: one does not answer.
        """
        motors = {}
        for joint, servo in zip(robot.joint_names, robot.bus.ids, strict=True):
            values = {field: bus.read(servo, register) for field, register in _IN_SERVO.items()}
            motors[joint] = MotorCalibration(id=servo, drive_mode=0, **values)
        return cls(motors, f"the servos at {bus.port}")

    def text(self) -> str:
        """The file's content, byte for byte as LeRobot writes it."""
        return json.dumps({joint: vars(motor) for joint, motor in self.motors.items()}, indent=4)

    def write(self, path: Path | str, now_s: float | None = None) -> Path | None:
        """Write the file, atomically; returns where the former one was put, None when there was none.

        Args:
            now_s: wall clock for the backup's name.
        """
        path, backup = Path(path), None
        if path.exists():
            stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now_s))
            backup = path.with_name(f"{path.stem}.before-{stamp}{path.suffix}")
            write_text(backup, path.read_text(encoding="utf-8"))
        write_text(path, self.text())
        return backup

    def write_to_servos(self, bus: FeetechBus) -> None:
        """Store it in the servos' EEPROM, as LeRobot does. Torque must be off: another offset is another pose.

        Raises:
            CalibrationError: torque is on.
            BusError: a servo did not keep a value.
        """
        servos = {joint: motor.id for joint, motor in self.motors.items()}
        energised = [joint for joint, servo in servos.items() if bus.read(servo, "torque_enable")]
        if energised:
            raise CalibrationError(
                f"{bus.port}: the calibration is not written while torque is on ({', '.join(energised)}): the arm "
                "would jump. Hold the arm, switch its power off and on, then try again"
            )
        with bus.unlocked(servos.values()):
            for motor in self.motors.values():
                for field, register in _IN_SERVO.items():
                    bus.write_eeprom(motor.id, register, getattr(motor, field))

    def units(self, robot: RobotConfig) -> units.Calibration:
        """For `so101.datasets.units.ticks_to_rad`: (6,) arrays, order of robot.yaml."""
        motors = [self.motors[joint] for joint in robot.joint_names]
        return units.Calibration(
            range_min=np.array([motor.range_min for motor in motors], float),
            range_max=np.array([motor.range_max for motor in motors], float),
            sign=np.array([-1.0 if motor.drive_mode else 1.0 for motor in motors]),
            source=self.source,
        )

    def differences(self, other: ArmCalibration) -> list[str]:
        """Where the numbers that servos hold differ, one text a number."""
        return [
            f"{joint} {field}: {getattr(motor, field)} in {self.source}, {getattr(other.motors[joint], field)} in "
            f"{other.source}"
            for joint, motor in self.motors.items()
            for field in _IN_SERVO
            if getattr(motor, field) != getattr(other.motors[joint], field)
        ]

    @property
    def is_factory(self) -> bool:
        """Never calibrated, at least one joint: the full range as the maker sets it. (A joint that is not swept has
        it too, with an offset.)"""
        return any(
            (motor.range_min, motor.range_max, motor.homing_offset) == (*FULL_RANGE, 0)
            for motor in self.motors.values()
        )


def homing_offset(middle_ticks: int, former_offset: int = 0) -> int:
    """The offset that makes a servo read `HALF_TURN` where it now reads `middle_ticks` with `former_offset`."""
    encoder = middle_ticks + former_offset
    offset = (encoder - HALF_TURN + _WRAP) % (2 * _WRAP) - _WRAP
    return max(offset, 1 - _WRAP)  # the register has no -2048


class RangeRecorder:
    """Lowest and highest ticks of joints that are moved by hand.

    Args:
        joints: names.
    """

    def __init__(self, joints: list[str]) -> None:
        self.joints = joints
        self.lowest: dict[str, int] = {}
        self.highest: dict[str, int] = {}
        self._last: dict[str, int] = {}

    def add(self, ticks: dict[str, int]) -> None:
        """One look.

        Raises:
            CalibrationError: a joint went over the end of its encoder, where 4095 is followed by 0.
        """
        for joint in self.joints:
            now = ticks[joint]
            if abs(now - self._last.get(joint, now)) > _WRAP or not 0 <= now <= units.TICKS_PER_TURN:
                raise CalibrationError(
                    f"{joint} went from {self._last.get(joint, now)} to {now} ticks, over the end of its encoder; "
                    "start again with the arm nearer to the middle of its ranges"
                )
            self._last[joint] = now
            self.lowest[joint] = min(now, self.lowest.get(joint, now))
            self.highest[joint] = max(now, self.highest.get(joint, now))

    def faults(self, min_span_ticks: int) -> list[str]:
        """Joints that were hardly moved."""
        return [
            f"{joint} moved by {self.highest.get(joint, 0) - self.lowest.get(joint, 0)} ticks only"
            for joint in self.joints
            if self.highest.get(joint, 0) - self.lowest.get(joint, 0) < min_span_ticks
        ]
