"""Everything the servos tell, joint by joint, also of an arm that is not in order. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from so101.config.robot import RobotConfig
from so101.datasets.units import ticks_to_rad
from so101.robot.base import BusError, CalibrationError
from so101.robot.calibration import ArmCalibration
from so101.robot.feetech_bus import FeetechBus
from so101.robot.tables import MODEL_NUMBER, error_texts

_REGISTERS = (
    "torque_enable",
    "goal_position",
    "present_position",
    "present_load",
    "present_voltage",
    "present_temperature",
    "status",
)


@dataclass(frozen=True)
class JointReport:
    """One servo. The numbers are None when it does not answer; q_rad also without any calibration.

    Attributes:
        calibration: "agrees", or what is wrong with it.
    """

    joint: str
    servo: int
    torque: bool | None = None
    ticks: int | None = None
    q_rad: float | None = None
    load_pct: float | None = None
    temperature_c: int | None = None
    voltage_v: float | None = None
    errors: tuple[str, ...] = ()
    calibration: str = ""


class Survey:
    """Looks at an arm again and again; the calibration is compared once, at the first look.

    Args:
        bus: open.
        calibration: LeRobot file.
    """

    def __init__(self, bus: FeetechBus, robot: RobotConfig, calibration: Path | str) -> None:
        self._bus, self._robot, self._file = bus, robot, Path(calibration)
        self._servos = dict(zip(robot.joint_names, robot.bus.ids, strict=True))
        self._faults: dict[str, str] = {}
        self._calibration = self._compare()

    def look(self) -> list[JointReport]:
        """All joints now, order of robot.yaml.

        Raises:
            PortLost: the port is gone.
        """
        answers = self._bus.sync_read(_REGISTERS, self._servos.values())
        ticks = np.array([answers.get(servo, {}).get("present_position", 0) for servo in self._servos.values()])
        q = ticks_to_rad(ticks, self._calibration.units(self._robot), self._robot) if self._calibration else None
        return [
            self._report(joint, servo, answers.get(servo), None if q is None else float(q[index]))
            for index, (joint, servo) in enumerate(self._servos.items())
        ]

    def _report(self, joint: str, servo: int, values: dict[str, int] | None, q_rad: float | None) -> JointReport:
        if values is None:
            return JointReport(joint, servo, errors=("no answer",))
        return JointReport(
            joint=joint,
            servo=servo,
            torque=values["torque_enable"] != 0,
            ticks=values["present_position"],
            q_rad=q_rad,
            load_pct=values["present_load"] / 10,
            temperature_c=values["present_temperature"],
            voltage_v=values["present_voltage"] / 10,
            errors=(*self._models.get(joint, ()), *error_texts(values["status"])),
            calibration=self._faults.get(joint, "agrees"),
        )

    def _compare(self) -> ArmCalibration | None:
        """The calibration that counts; `_faults` says by joint where the servos hold another one."""
        self._models = {}
        for joint, servo in self._servos.items():
            model = self._bus.ping(servo)
            if model not in (None, MODEL_NUMBER):
                self._models[joint] = (f"model {model}, not {MODEL_NUMBER}",)
        held = filed = None
        try:
            held = ArmCalibration.of_servos(self._bus, self._robot)
        except BusError:
            pass  # a servo is missing: nothing to compare with
        if self._file.exists():
            try:
                filed = ArmCalibration.load(self._file, self._robot)
            except CalibrationError as error:
                self._faults = dict.fromkeys(self._servos, str(error))
                return held
        if filed is None:
            text = "never calibrated" if held is None or held.is_factory else f"no {self._file}: the servo's own"
            self._faults = dict.fromkeys(self._servos, text)
            return held
        for joint in self._servos:
            if held is None:
                self._faults[joint] = "not compared: a servo is missing"
                continue
            differences = ArmCalibration({joint: filed.motors[joint]}, "the file").differences(held)
            if differences:
                self._faults[joint] = "; ".join(text.removeprefix(f"{joint} ") for text in differences)
        return filed
