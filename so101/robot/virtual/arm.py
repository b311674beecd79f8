"""Six servos and what they move, without a port."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from so101.config import Config
from so101.robot.calibration import ArmCalibration, MotorCalibration
from so101.robot.virtual.calibration import joint_map
from so101.robot.virtual.faults import Faults
from so101.robot.virtual.packets import BROADCAST, SYNC_READ, Packet
from so101.robot.virtual.plant import Plant
from so101.robot.virtual.servo import VirtualServo


@dataclass(frozen=True)
class BusState:
    """What is the case, whatever the servos say. (6,) each, order of robot.yaml."""

    q: np.ndarray  # rad
    speed: np.ndarray  # rad/s
    load: np.ndarray  # share of the stall torque
    torque_on: np.ndarray  # bool
    temperature_c: np.ndarray
    errors: np.ndarray  # bits
    plugged: bool


class VirtualArm:
    """Servos of a calibrated arm on a plant. One thread steps, another one talks to the servos.

    Attributes:
        servos: joint -> servo.
    """

    def __init__(self, config: Config, plant: Plant, calibration: ArmCalibration, faults: Faults) -> None:
        self.plant, self._faults = plant, faults
        self._settings = config.robot.virtual.servo
        self._scale, self._offset = joint_map(config.robot, calibration)
        motors = [calibration.motors[name] for name in config.robot.joint_names]
        self._homing = np.array([motor.homing_offset for motor in motors], float)
        ticks = self._ticks(plant.state()[0]).tolist()
        self._in_order = [
            VirtualServo(_eeprom(motor), self._settings, at) for motor, at in zip(motors, ticks, strict=True)
        ]
        self.servos = dict(zip(config.robot.joint_names, self._in_order, strict=True))
        self._lock = threading.Lock()  # of the servos; never held while the plant steps
        self._stepping = threading.Lock()

    def hear(self, packet: Packet, baud: int) -> list[tuple[VirtualServo, bytes]]:
        """Let all servos that understand a host of this speed carry an instruction out.

        Returns:
            who answers what, in the order of the answers: as a SYNC_READ lists the servos, else by id.
        """
        with self._lock:
            hearing = [s for s in self._in_order if s.baud_rate == baud and not self._faults.holds("silent", s.id)]
            if packet.instruction == SYNC_READ and packet.id == BROADCAST:
                asked = list(packet.parameters[2:])
                hearing = sorted((s for s in hearing if s.id in asked), key=lambda servo: asked.index(servo.id))
            else:
                hearing.sort(key=lambda servo: servo.id)
            return [(servo, reply) for servo in hearing if (reply := servo.handle(packet))]

    def step(self) -> None:
        """Advance motors and plant by the plant's `step_s`."""
        dt = self.plant.step_s
        with self._stepping:
            with self._lock:
                targets, strength, stiffness = np.array([servo.motor.command(dt) for servo in self._in_order]).T
                powered = [servo.powered for servo in self._in_order]
            wanted = (targets - self._homing) * self._scale + self._offset
            self.plant.step(wanted, strength * powered, stiffness)
            q, speed, load = self.plant.state()
            felt = np.array([self._ticks(q), speed / self._scale, load * np.sign(self._scale)]).T.tolist()
            with self._lock:
                for servo, values in zip(self._in_order, felt, strict=True):
                    servo.motor.feel(*values, dt)

    def suffer(self) -> None:
        """What faults do to supply, servos and joints at this moment."""
        faults, settings = self._faults, self._settings
        with self._lock:
            sag = next(faults.going_on("voltage_sag"), None)
            supply_v = settings.supply_v if sag is None else sag.fault.amount
            voltage_v = supply_v - settings.supply_ohm * sum(servo.motor.current_a for servo in self._in_order)
            for number, servo in enumerate(self._in_order):
                servo.motor.voltage_v = voltage_v
                servo.power(voltage_v >= settings.brownout_v and not faults.holds("no_power", servo.id))
                hot = faults.holds("overheat", servo.id)
                servo.motor.heating_c_per_s = hot.fault.amount if hot else 0.0
                self.plant.stuck[number] = faults.holds("stuck", servo.id) is not None
            for overload in faults.beginning("overload"):
                for servo in self._in_order:
                    if overload.fault.concerns(servo.id):
                        servo.motor.overload()
            for wrong in faults.beginning("eeprom_mismatch"):
                for servo in self._in_order:
                    if wrong.fault.concerns(servo.id):
                        offset = servo.memory["homing_offset"] + round(wrong.fault.amount)
                        servo.memory.save("homing_offset", offset)

    def power_cycle(self) -> None:
        """Switch the supply off and on: limp, SRAM and what was written to locked EEPROM forgotten."""
        with self._lock:
            for servo in self._in_order:
                servo.power(False)
                servo.power(True)

    def state(self, *, plugged: bool) -> BusState:
        """How things are now."""
        q, speed, load = (column.copy() for column in self.plant.state())
        with self._lock:
            return BusState(
                q=q,
                speed=speed,
                load=load,
                torque_on=np.array([s.powered and s.memory["torque_enable"] == 1 for s in self._in_order]),
                temperature_c=np.array([servo.motor.temperature_c for servo in self._in_order]),
                errors=np.array([servo.motor.errors for servo in self._in_order]),
                plugged=plugged,
            )

    def _ticks(self, q: np.ndarray) -> np.ndarray:
        """(6,) encoder ticks of joints in rad: what the servos report, without their homing offset taken off."""
        return (q - self._offset) / self._scale + self._homing


def _eeprom(motor: MotorCalibration) -> dict[str, int]:
    """Registers of a servo that was calibrated."""
    own = {"id": motor.id, "homing_offset": motor.homing_offset}
    return own | {"min_position": motor.range_min, "max_position": motor.range_max}
