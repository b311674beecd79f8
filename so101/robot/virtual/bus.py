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
from so101.robot.calibration import ArmCalibration
from so101.robot.virtual.arm import BusState, VirtualArm
from so101.robot.virtual.calibration import made_calibration
from so101.robot.virtual.faults import Faults
from so101.robot.virtual.line import SerialLine
from so101.robot.virtual.packets import Packet, Parser
from so101.robot.virtual.plant import KinematicPlant, Plant

_BITS_PER_BYTE = 10  # start, 8 bits, stop
_RETURN_DELAY_UNIT_S = 2e-6


class VirtualBusError(So101Error):
    """The virtual bus cannot do that."""


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
        plant, servos: what is behind; joint -> servo.
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
        self._settings = settings = config.robot.virtual
        if calibration is None:
            calibration = made_calibration(config.robot)
        elif not isinstance(calibration, ArmCalibration):
            calibration = ArmCalibration.load(calibration, config.robot)
        self.calibration = calibration
        self.plant = KinematicPlant(config) if plant is None else plant
        self.faults = Faults(np.random.default_rng(seed))
        self.counts = BusCounts()
        self._arm = VirtualArm(config, self.plant, calibration, self.faults)
        self.servos = self._arm.servos
        self._pacing = settings.pacing if pacing is None else pacing
        self._reply_delay_s = settings.reply_delay_s if reply_delay_s is None else reply_delay_s
        self._real_time = real_time
        self._own_folder = Path(tempfile.mkdtemp(prefix="so101-bus-")) if link is None else None
        self._line = SerialLine(self._own_folder / "port" if link is None else Path(link))
        self._stop = threading.Event()
        self._plugged, self._plug_settled = True, threading.Event()
        self._replugs_s = float("inf")
        self._waker, self._wake = -1, -1
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> str:
        return self._line.port

    def start(self) -> VirtualBus:
        """The port appears, physics begins."""
        if self._stop.is_set() or self._threads:
            raise VirtualBusError("a virtual bus is started once; make another one")
        self._wake, self._waker = os.pipe()
        self._line.plug()
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
        self._line.unplug()
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
        self._arm.power_cycle()

    def advance(self, seconds: float) -> None:
        """Run physics for this long, at once."""
        for _ in range(round(seconds / self.plant.step_s)):
            self._apply_faults()
            self._arm.step()

    def state(self) -> BusState:
        """How things are now."""
        return self._arm.state(plugged=self._line.plugged)

    def _plug(self, wanted: bool) -> None:
        """Have the bus thread pull or put back the cable: nobody else touches the line while that thread reads it."""
        if not self._threads:
            raise VirtualBusError("the cable of a virtual bus is there between start and close only")
        self._plugged, self._replugs_s = wanted, float("inf")
        self._plug_settled.clear()
        os.write(self._waker, b"x")

    # The bus thread: bytes in, replies out.

    def _serve(self) -> None:
        line, parser, free_s = self._line, Parser(), 0.0
        while not self._stop.is_set():
            if self._plugged != line.plugged:
                line.plug() if self._plugged else line.unplug()
                parser.clear()
            self._plug_settled.set()
            data = line.receive(self._settings.silence_s if parser.waiting else None, self._wake)
            now = time.monotonic()
            if data is None:
                os.read(self._wake, 64)
                continue
            if not data:
                parser.clear()
                continue
            baud = line.host_baud_rate
            packets = list(parser.feed(data))
            self.counts.skipped_bytes = parser.skipped
            free_s = max(free_s, now) + self._bytes_s(len(data), baud)
            for packet in packets:
                free_s = self._answer(packet, baud, free_s)

    def _answer(self, packet: Packet, baud: int, free_s: float) -> float:
        """Have it carried out and send the replies; when the line is free again."""
        self.counts.instructions += 1
        for servo, reply in self._arm.hear(packet, baud):
            reply, late_s = self.faults.spoil(servo.id, reply)
            if self._pacing:
                own_delay_s = servo.memory["return_delay"] * _RETURN_DELAY_UNIT_S + self._reply_delay_s
                free_s += own_delay_s + self._bytes_s(len(reply), baud)
            free_s += late_s
            if (wait_s := free_s - time.monotonic()) > 0:
                self._stop.wait(wait_s) if wait_s > self._settings.silence_s else time.sleep(wait_s)
            if reply and self._plugged:
                self._line.send(reply)
                self.counts.replies += 1
        return free_s

    def _bytes_s(self, count: int, baud: int) -> float:
        return count * _BITS_PER_BYTE / baud if self._pacing and baud else 0.0

    # The physics thread.

    def _run_physics(self) -> None:
        step_s, done_s = self.plant.step_s, time.monotonic()
        while not self._stop.wait(self._settings.wake_s):
            now = time.monotonic()
            behind_s = now - done_s
            if behind_s > self._settings.max_behind_s:  # never spirals: what cannot be caught up is given up
                self.counts.behind_s += behind_s - self._settings.wake_s
                done_s += behind_s - self._settings.wake_s
            self._apply_faults()
            while done_s + step_s <= now:
                self._arm.step()
                done_s += step_s

    def _apply_faults(self) -> None:
        self._arm.suffer()
        for pulled in self.faults.beginning("unplug"):
            self._plug(False)
            if pulled.fault.duration_s is not None:
                self._replugs_s = time.monotonic() + pulled.fault.duration_s
        if time.monotonic() >= self._replugs_s:
            self._plug(True)
