"""Six servos as an arm in radians: no safety, no thread. `so101.robot.driver.ArmDriver` adds both."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from so101.config.robot import RobotConfig
from so101.datasets.units import Calibration, rad_to_ticks, ticks_to_rad
from so101.robot.base import BusError, CalibrationError
from so101.robot.calibration import ArmCalibration
from so101.robot.feetech_bus import FeetechBus
from so101.robot.tables import BAUD_RATES, MODEL_NUMBER, error_texts

log = logging.getLogger(__name__)

_FEEDBACK = (  # one block of 26 bytes a servo: 2 ms for six of them at 1 Mbit/s
    "torque_enable",
    "present_position",
    "present_speed",
    "present_load",
    "present_voltage",
    "present_temperature",
    "status",
)


class Reading(NamedTuple):
    """What all servos told at `stamp_s` (wall clock); arrays (6,)."""

    stamp_s: float
    torque: np.ndarray  # bool
    ticks: np.ndarray
    q_rad: np.ndarray
    qd_rad_s: np.ndarray
    load_pct: np.ndarray
    temperature_c: np.ndarray
    voltage_v: np.ndarray
    error_bits: np.ndarray


class PartialRead(BusError):
    """Some servos did not answer a look at the arm."""


class FeetechArm:
    """The follower, or with `leader` settings the leader.

    Args:
        port: serial device.
        calibration: LeRobot file; where there is none the servos' own numbers count.
        clock: wall clock.
    """

    def __init__(
        self,
        robot: RobotConfig,
        port: str,
        calibration: Path | str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.robot, self.joint_names = robot, robot.joint_names
        self.bus = FeetechBus(port, robot.bus)
        self._file = Path(calibration)
        self._clock = clock
        self._servos = list(robot.bus.ids)
        self.calibration_fault: str | None = "not connected yet"
        self.notes: list[str] = []  # what the user should know, found while connecting

    def connect(self) -> None:
        """Open the port and look at every servo; writes nothing.

        Raises:
            BusError: the port cannot be opened, or servos are missing, of another kind, or badly supplied; all faults
                at once.
            CalibrationError: the calibration file cannot be used.
        """
        self.notes = []
        self.bus.open()
        try:
            self._check_servos()
            self._read_calibration()
        except Exception:
            self.bus.close()
            raise

    def read(self) -> Reading:
        """Look at all joints.

        Raises:
            PartialRead: a servo did not answer.
            PortLost: the port is gone.
        """
        answers = self.bus.sync_read(_FEEDBACK, self._servos)
        missing = [self._label(servo) for servo in self._servos if servo not in answers]
        if missing:
            raise PartialRead(f"{self.bus.port}: no answer from {', '.join(missing)}")
        torque, position, speed, load, voltage, temperature, status = (
            np.array([answers[servo][name] for servo in self._servos]) for name in _FEEDBACK
        )
        return Reading(
            stamp_s=self._clock(),
            torque=torque != 0,
            ticks=position,
            q_rad=ticks_to_rad(position, self._units, self.robot),
            qd_rad_s=ticks_to_rad(position + speed, self._units, self.robot)
            - ticks_to_rad(position, self._units, self.robot),
            load_pct=load / 10.0,
            temperature_c=temperature.astype(float),
            voltage_v=voltage / 10.0,
            error_bits=status,
        )

    def write_goal(self, q_rad: np.ndarray) -> np.ndarray:
        """Send joints (6,) rad, within the calibrated range; returns them as sent, whole ticks.

        Raises:
            BusError: not sent.
        """
        ticks = rad_to_ticks(q_rad, self._units, self.robot)
        ticks = np.clip(ticks, self._units.range_min, self._units.range_max).astype(int)
        self.bus.sync_write("goal_position", dict(zip(self._servos, ticks.tolist(), strict=True)))
        return ticks_to_rad(ticks, self._units, self.robot)

    def range_rad(self) -> tuple[np.ndarray, np.ndarray]:
        """(6,) lowest and highest joint of the calibrated range, rad."""
        ends = [ticks_to_rad(t, self._units, self.robot) for t in (self._units.range_min, self._units.range_max)]
        return np.minimum(*ends), np.maximum(*ends)

    def rad_per_tick(self) -> np.ndarray:
        """(6,) rad one tick is."""
        lower, upper = self.range_rad()
        return (upper - lower) / (self._units.range_max - self._units.range_min)

    def torque_on(self) -> np.ndarray:
        """Park all goals on the present pose, then energise; returns that pose (6,) rad.

        Raises:
            CalibrationError: the servos hold another calibration than the file, or than when the port was opened; or a
                limp joint is outside of its range, into which its servo would pull it at once.
            BusError: not all servos took it. Some may then have torque, on the pose they are in.
        """
        if self.calibration_fault:
            raise CalibrationError(self.calibration_fault)
        self._check_still_calibrated()
        self._write_setup()
        reading = self.read()
        self._check_in_range(reading)
        for servo, ticks in zip(self._servos, reading.ticks.tolist(), strict=True):
            self.bus.write(servo, "goal_position", ticks)
        for servo in self._servos:
            self.bus.write(servo, "torque_enable", 1)
        return reading.q_rad

    def torque_off(self) -> None:
        """Release all joints.

        Raises:
            BusError: not all of them acknowledged; each was tried.
        """
        faults = []
        for servo in self._servos:
            try:
                self.bus.write(servo, "torque_enable", 0)
            except BusError as error:
                faults.append(str(error))
        if faults:
            raise BusError("torque could not be switched off everywhere: " + "; ".join(faults))

    def close(self) -> None:
        """Let go of the port; torque stays as it is."""
        self.bus.close()

    def _label(self, servo: int) -> str:
        joint = self.joint_names[self._servos.index(servo)] if servo in self._servos else "?"
        return f"{joint} (servo {servo})"

    def _check_servos(self) -> None:
        models = {servo: self.bus.ping(servo) for servo in self._servos}
        silent = [servo for servo, model in models.items() if model is None and self.bus.ping(servo) is None]
        if len(silent) == len(self._servos):
            raise BusError(f"{self.bus.port}: no servo answers at {self.robot.bus.baud} baud; {self._elsewhere()}")
        faults = [f"{self._label(servo)} does not answer" for servo in silent]
        firmware = {}
        low, high = self.robot.bus.supply_v
        for servo in self._servos:
            if servo in silent:
                continue
            model = self.bus.read(servo, "model_number")
            volts = self.bus.read(servo, "present_voltage") / 10
            firmware[servo] = f"{self.bus.read(servo, 'firmware_major')}.{self.bus.read(servo, 'firmware_minor')}"
            if model != MODEL_NUMBER:
                faults.append(f"{self._label(servo)} has model number {model}, an STS3215 has {MODEL_NUMBER}")
            if not low <= volts <= high:
                faults.append(f"{self._label(servo)} is supplied with {volts:g} V; allowed: {low:g} to {high:g} V")
            status = error_texts(self.bus.read(servo, "status"))
            if status:
                self.notes.append(f"{self._label(servo)} reports: {', '.join(status)}")
        if faults:
            raise BusError(
                f"{self.bus.port}: {'; '.join(faults)}. Check plugs and supply; ./real status shows who answers"
            )
        if len(set(firmware.values())) > 1:
            self.notes.append(f"servos run different firmware: {firmware}; update them with Feetech's tool")

    def _elsewhere(self) -> str:
        """Where servos answer instead, for the error when none does."""
        for baud in BAUD_RATES:
            if baud == self.robot.bus.baud:
                continue
            self.bus.open(baud)
            if self.bus.ping(self._servos[0]) is not None:
                return f"servo {self._servos[0]} answers at {baud}: set it to {self.robot.bus.baud}, or robot.bus.baud"
        return "is the arm's power on, the bus cable in, and this the right port?"

    def _read_calibration(self) -> None:
        held = ArmCalibration.of_servos(self.bus, self.robot)
        self.calibration_fault = None
        if not self._file.exists():
            self.calibration = held
            if held.is_factory:
                self.calibration_fault = (
                    f"the arm at {self.bus.port} was never calibrated (or a servo is new), and {self._file} does not "
                    "exist; run ./real calibrate"
                )
            else:
                self.notes.append(f"no {self._file}: the numbers in the servos count")
        else:
            self.calibration = ArmCalibration.load(self._file, self.robot)
            ids = [self.calibration.motors[joint].id for joint in self.joint_names]
            differences = self.calibration.differences(held)
            if ids != self._servos:
                differences.insert(0, f"the file has the servos {ids}, robot.yaml: bus.ids {self._servos}")
            if differences:
                self.calibration_fault = (
                    f"{self._file} is not what the servos hold: {'; '.join(differences)}. It is another arm's file, or "
                    "the arm was calibrated since: ./real calibrate --write-file-to-servos brings them together"
                )
        if self.calibration_fault:
            self.notes.append(self.calibration_fault)
        self._units: Calibration = self.calibration.units(self.robot)

    def _check_still_calibrated(self) -> None:
        """Servos may have been reset, or exchanged, while the port stayed open."""
        changed = self.calibration.differences(ArmCalibration.of_servos(self.bus, self.robot))
        if changed:
            raise CalibrationError(
                f"the arm at {self.bus.port} is not the one that was connected: {'; '.join(changed)}. Connect again; "
                "./real calibrate makes calibration file and servos agree"
            )

    def _check_in_range(self, reading: Reading) -> None:
        low, high = self._units.range_min, self._units.range_max
        outside = np.maximum(low - reading.ticks, reading.ticks - high)
        faults = [
            f"{self.joint_names[j]} is at {reading.ticks[j]} ticks, its range is {low[j]:.0f} to {high[j]:.0f}"
            for j in np.flatnonzero((outside > self.robot.safety.arrival_ticks) & ~reading.torque)
        ]
        if faults:
            raise CalibrationError(
                f"not energised: {'; '.join(faults)}. Its servo would jump back into the range: move it there by hand"
            )

    def _write_setup(self) -> None:
        """The registers of robot.yaml: bus.setup, where they differ."""
        jaw = self._servos[-1]
        wanted = {servo: self.robot.bus.setup.model_dump() for servo in self._servos}
        wanted[jaw] |= self.robot.bus.jaw_setup.model_dump()
        for servo, registers in wanted.items():
            differing = {name: v for name, v in registers.items() if self.bus.read(servo, name) != v}
            if not differing:
                continue
            if self.bus.read(servo, "torque_enable") and "operating_mode" in differing:
                raise BusError(f"{self._label(servo)} has torque and is not in position mode; switch its power off, on")
            with self.bus.unlocked([servo]):
                for name, value in differing.items():
                    self.bus.write(servo, name, value)
        self.bus.write(jaw, "torque_limit", self.robot.bus.jaw_setup.max_torque)  # else from the next power-on
