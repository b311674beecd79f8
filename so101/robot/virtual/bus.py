"""`VirtualBus`: a serial port with six servos on it and a plant behind them. A driver of real servos runs on it as it
is."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from so101.config import Config
from so101.errors import So101Error
from so101.robot.calibration import ArmCalibration, MotorCalibration
from so101.robot.virtual.calibration import joint_map, made_calibration
from so101.robot.virtual.faults import Faults
from so101.robot.virtual.line import SerialLine
from so101.robot.virtual.packets import BROADCAST, SYNC_READ, Packet, Parser
from so101.robot.virtual.plant import KinematicPlant, Plant
from so101.robot.virtual.servo import VirtualServo

_BITS_PER_BYTE = 10  # start, 8 bits, stop
_RETURN_DELAY_UNIT_S = 2e-6


class VirtualBusError(So101Error):
    """The virtual bus cannot do that."""


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


@dataclass
class BusCounts:
    """Of the traffic since the start."""

    instructions: int = 0
    replies: int = 0
    skipped_bytes: int = 0
    behind_s: float = 0.0  # time that physics gave up to be in time again


class VirtualBus:
    """Six servos of an SO-101 on a pseudo terminal. Use it in a `with`, or `start` and `close` it.

    Args:
        plant: what the motors move; without weight and objects when None. `twin_plant.TwinPlant` has both.
        calibration: how the servos sit on the joints; a LeRobot file or its content, a made one when None.
        seed: of the faults.
        pacing: bytes take their time; as in robot.yaml when None.
        link: path of the port; in a folder of its own when None.
        real_time: physics follows the clock; else it moves in `advance` only.
        reply_delay_s: as in robot.yaml when None.

    Attributes:
        port: path to open, the same after unplugging and plugging in again.
        faults: add what is to go wrong.
        servos: joint -> servo.
        calibration: what fits this arm; `calibration.write` makes the LeRobot file.

    Raises:
        CalibrationError: the file is no calibration.
    """

    def __init__(
        self,
        config: Config,
        *,
        plant: Plant | None = None,
        calibration: ArmCalibration | Path | str | None = None,
        seed: int = 0,
        pacing: bool | None = None,
        link: Path | str | None = None,
        real_time: bool = True,
        reply_delay_s: float | None = None,
    ) -> None:
        self.config, settings = config, config.robot.virtual
        self.plant = KinematicPlant(config) if plant is None else plant
        if calibration is None:
            calibration = made_calibration(config.robot)
        elif not isinstance(calibration, ArmCalibration):
            calibration = ArmCalibration.load(calibration, config.robot)
        self.calibration = calibration
        self.faults = Faults(np.random.default_rng(seed))
        self.counts = BusCounts()
        self._pacing = settings.pacing if pacing is None else pacing
        self._reply_delay_s = settings.reply_delay_s if reply_delay_s is None else reply_delay_s
        self._real_time, self._settings = real_time, settings
        self._scale, self._offset = joint_map(config.robot, calibration)
        motors = [calibration.motors[name] for name in config.robot.joint_names]
        self._homing = np.array([motor.homing_offset for motor in motors], float)
        ticks = self._ticks(self.plant.state()[0])
        self.servos = {
            name: VirtualServo(_eeprom(motor), settings.servo, at)
            for name, motor, at in zip(config.robot.joint_names, motors, ticks.tolist(), strict=True)
        }
        self._in_order = list(self.servos.values())
        self._own_folder = Path(tempfile.mkdtemp(prefix="so101-bus-")) if link is None else None
        self.line = SerialLine(self._own_folder / "port" if link is None else Path(link))
        self._lock = threading.RLock()  # servos and counts
        self._physics_lock = threading.Lock()
        self._stop = threading.Event()
        self._plugged, self._plug_settled = True, threading.Event()
        self._replugs_s = float("inf")
        self._waker, self._wake = -1, -1
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> str:
        return self.line.port

    def start(self) -> VirtualBus:
        """The port appears, physics begins."""
        if self._stop.is_set() or self._threads:
            raise VirtualBusError("a virtual bus is started once; make another one")
        self._wake, self._waker = os.pipe()
        self.line.plug()
        loops = [self._serve, self._run_physics] if self._real_time else [self._serve]
        self._threads = [
            threading.Thread(target=loop, name=f"virtual bus {loop.__name__}", daemon=True) for loop in loops
        ]
        for thread in self._threads:
            thread.start()
        return self

    def close(self) -> None:
        """The port disappears, everything stops. Twice is fine."""
        if not self._threads:
            return
        self._stop.set()
        os.write(self._waker, b"x")
        for thread in self._threads:
            thread.join()
        self._threads = []
        self._plug_settled.set()
        self.line.unplug()
        os.close(self._wake)
        os.close(self._waker)
        if self._own_folder:
            shutil.rmtree(self._own_folder, ignore_errors=True)

    def __enter__(self) -> VirtualBus:
        return self.start()

    def __exit__(self, *_) -> None:
        self.close()

    def check(self) -> None:
        """
        Raises:
            VirtualBusError: a thread of a started bus died; the log says why.
        """
        dead = [thread.name for thread in self._threads if not thread.is_alive()]
        if dead:
            raise VirtualBusError(f"{', '.join(dead)} of {self.port} ended by an error; see the log above")

    def unplug(self) -> None:
        """Pull the USB cable. The servos keep their power and hold what they held."""
        self._plug(False)
        self._plug_settled.wait()

    def replug(self) -> None:
        """Put it back: the same path, as a link by name does."""
        self._plug(True)
        self._plug_settled.wait()

    def power_cycle(self) -> None:
        """Switch the servos' supply off and on: limp, SRAM and what was written to locked EEPROM forgotten."""
        with self._lock:
            for servo in self._in_order:
                servo.power(False)
                servo.power(True)

    def advance(self, seconds: float) -> None:
        """Run physics for this long, at once."""
        for _ in range(round(seconds / self.plant.step_s)):
            self._apply_faults()
            self._step()

    def state(self) -> BusState:
        """How things are now."""
        q, speed, load = (column.copy() for column in self.plant.state())
        with self._lock:
            return BusState(
                q=q,
                speed=speed,
                load=load,
                torque_on=np.array([bool(s.powered and s.memory["torque_enable"] == 1) for s in self._in_order]),
                temperature_c=np.array([servo.motor.temperature_c for servo in self._in_order]),
                errors=np.array([servo.motor.errors for servo in self._in_order]),
                plugged=self.line.plugged,
            )

    def _ticks(self, q: np.ndarray) -> np.ndarray:
        """(6,) encoder ticks of joints in rad: what the servos report, without their homing offset taken off."""
        return (q - self._offset) / self._scale + self._homing

    def _plug(self, wanted: bool) -> None:
        """Have the bus thread pull or put back the cable: nobody else touches the line while that thread reads it."""
        if not self._threads:
            raise VirtualBusError("the cable of a virtual bus is there between start and close only")
        self._plugged, self._replugs_s = wanted, float("inf")
        self._plug_settled.clear()
        os.write(self._waker, b"x")

    # The bus thread: bytes in, replies out.

    def _serve(self) -> None:
        parser, free_s = Parser(), 0.0
        while not self._stop.is_set():
            if self._plugged != self.line.plugged:
                self.line.plug() if self._plugged else self.line.unplug()
            self._plug_settled.set()
            data = self.line.receive(self._settings.silence_s if parser.waiting else None, self._wake)
            now = time.monotonic()
            if data is None:
                os.read(self._wake, 64)
                continue
            if not data:
                parser.clear()
                continue
            baud = self.line.host_baud_rate
            packets = list(parser.feed(data))
            self.counts.skipped_bytes = parser.skipped
            free_s = max(free_s, now) + self._bytes_s(len(data), baud)
            for packet in packets:
                free_s = self._answer(packet, baud, free_s)

    def _answer(self, packet: Packet, baud: int, free_s: float) -> float:
        """Let the servos carry it out and send their replies; when the line is free again."""
        with self._lock:
            self.counts.instructions += 1
            replies = [(servo, reply) for servo in self._hearing(packet, baud) if (reply := servo.handle(packet))]
        for servo, reply in replies:
            own_delay_s = servo.memory["return_delay"] * _RETURN_DELAY_UNIT_S + self._reply_delay_s
            with self._lock:
                reply, late_s = self.faults.spoil(servo.id, reply)
            if self._pacing:
                free_s += own_delay_s + self._bytes_s(len(reply), baud)
            free_s += late_s
            if (wait_s := free_s - time.monotonic()) > 0:
                self._stop.wait(wait_s) if wait_s > self._settings.silence_s else time.sleep(wait_s)
            if reply and self._plugged:
                self.line.send(reply)
                self.counts.replies += 1
        return free_s

    def _hearing(self, packet: Packet, baud: int) -> list[VirtualServo]:
        """Servos that understand the host, in the order of their replies: as a SYNC_READ lists them, else by id."""
        hearing = [s for s in self._in_order if s.baud_rate == baud and not self.faults.holds("silent", s.id)]
        if packet.instruction == SYNC_READ and packet.id == BROADCAST:
            asked = list(packet.parameters[2:])
            return sorted((s for s in hearing if s.id in asked), key=lambda servo: asked.index(servo.id))
        return sorted(hearing, key=lambda servo: servo.id)

    def _bytes_s(self, count: int, baud: int) -> float:
        return count * _BITS_PER_BYTE / baud if self._pacing and baud else 0.0

    # The physics thread.

    def _run_physics(self) -> None:
        step_s, done_s = self.plant.step_s, time.monotonic()
        while not self._stop.wait(self._settings.wake_s):
            behind_s = time.monotonic() - done_s
            if behind_s > self._settings.max_behind_s:
                self.counts.behind_s += behind_s - self._settings.wake_s
                done_s += behind_s - self._settings.wake_s
            self._apply_faults()
            while done_s + step_s <= time.monotonic() and not self._stop.is_set():
                self._step()
                done_s += step_s

    def _step(self) -> None:
        dt = self.plant.step_s
        with self._physics_lock:
            with self._lock:
                drives = [servo.motor.command(dt) for servo in self._in_order]
                powered = [servo.powered for servo in self._in_order]
            targets, strength, stiffness = np.array(drives).T
            q_target = (targets - self._homing) * self._scale + self._offset
            self.plant.step(q_target, strength * powered, stiffness)
            q, speed, load = self.plant.state()
            ticks = self._ticks(q)
            felt = np.array([ticks, speed / self._scale, load * np.sign(self._scale)]).T.tolist()
            with self._lock:
                for servo, values in zip(self._in_order, felt, strict=True):
                    servo.motor.feel(*values, dt)

    def _apply_faults(self) -> None:
        """What faults do to servos, supply, joints and cable."""
        faults, settings = self.faults, self._settings.servo
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
                for servo in filter(lambda s: overload.fault.concerns(s.id), self._in_order):
                    servo.motor.overload()
            for wrong in faults.beginning("eeprom_mismatch"):
                for servo in filter(lambda s: wrong.fault.concerns(s.id), self._in_order):
                    servo.memory.save("homing_offset", servo.memory["homing_offset"] + round(wrong.fault.amount))
            for pulled in faults.beginning("unplug"):
                self._plug(False)
                if pulled.fault.duration_s is not None:
                    self._replugs_s = time.monotonic() + pulled.fault.duration_s
            if time.monotonic() >= self._replugs_s:
                self._plug(True)


def _eeprom(motor: MotorCalibration) -> dict[str, int]:
    """Registers of a servo that was calibrated."""
    own = {"id": motor.id, "homing_offset": motor.homing_offset}
    return own | {"min_position": motor.range_min, "max_position": motor.range_max}
