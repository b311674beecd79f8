"""Calibrating an arm by hand, as LeRobot does it: the middle pose, then every joint over its range.

No motor is energised. Nothing is written before the end, so that giving up leaves the arm as it was.
"""

from __future__ import annotations

from so101.config import Config
from so101.robot.base import BusError, CalibrationError
from so101.robot.calibration import FULL_RANGE, ArmCalibration, MotorCalibration, RangeRecorder, homing_offset
from so101.robot.feetech_bus import FeetechBus


class HandCalibration:
    """The steps: `set_middle`, `look` many times while the joints are moved, `result`.

    Args:
        bus: open.
    """

    def __init__(self, config: Config, bus: FeetechBus) -> None:
        self._bus, self._robot = bus, config.robot
        self._servos = dict(zip(config.robot.joint_names, config.robot.bus.ids, strict=True))
        self.unswept = config.teleop.unit_detection.unswept_joint
        self.swept = [joint for joint in self._servos if joint != self.unswept]
        self._recorder = RangeRecorder(self.swept)

    def energised(self) -> list[str]:
        """Joints with torque.

        Raises:
            BusError: a servo does not answer.
        """
        return [joint for joint, servo in self._servos.items() if self._bus.read(servo, "torque_enable")]

    def release(self) -> None:
        """Take the torque from all joints: the arm falls unless somebody holds it."""
        for servo in self._servos.values():
            self._bus.write(servo, "torque_enable", 0)

    def set_middle(self) -> None:
        """The arm is in the middle of all its ranges now.

        Raises:
            BusError: a servo does not answer.
        """
        self._former = {joint: self._bus.read(servo, "homing_offset") for joint, servo in self._servos.items()}
        middle = {joint: self._bus.read(servo, "present_position") for joint, servo in self._servos.items()}
        self._offsets = {joint: homing_offset(middle[joint], self._former[joint]) for joint in self._servos}

    def look(self) -> dict[str, tuple[int, int, int]]:
        """Lowest, present and highest ticks of the swept joints, as they will read with the new offsets.

        Raises:
            BusError: a servo does not answer.
            CalibrationError: a joint went over the end of its encoder.
        """
        answers = self._bus.sync_read(["present_position"], self._servos.values())
        missing = [joint for joint, servo in self._servos.items() if servo not in answers]
        if missing:
            raise BusError(f"{self._bus.port}: no answer from {', '.join(missing)}")
        ticks = {
            joint: (answers[self._servos[joint]]["present_position"] + self._former[joint] - self._offsets[joint])
            % 4096
            for joint in self.swept
        }
        self._recorder.add(ticks)
        return {j: (self._recorder.lowest[j], ticks[j], self._recorder.highest[j]) for j in self.swept}

    def result(self) -> ArmCalibration:
        """What was found.

        Raises:
            CalibrationError: joints were hardly moved; all of them named.
        """
        faults = self._recorder.faults(self._robot.bus.min_span_ticks)
        if faults:
            raise CalibrationError(
                f"not calibrated: {'; '.join(faults)} (robot.bus.min_span_ticks: {self._robot.bus.min_span_ticks}). "
                "Nothing was written; start again and move every joint from end to end"
            )
        motors = {}
        for joint, servo in self._servos.items():
            low, high = FULL_RANGE
            if joint in self.swept:
                low, high = self._recorder.lowest[joint], self._recorder.highest[joint]
            motors[joint] = MotorCalibration(servo, 0, self._offsets[joint], low, high)
        return ArmCalibration(motors, "this calibration")
