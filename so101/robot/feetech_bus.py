"""The half-duplex bus of STS servos: single and group reads and writes, retried, with the faults of a wire as errors.

Packets are made and read by Feetech's SDK. Its port is replaced: that one spins while it waits, takes its timeouts from
the wall clock, and lets the late reply to an old request answer a new one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from so101.config.driver import BusConfig
from so101.robot.base import BusError
from so101.robot.tables import EEPROM_END, REGISTERS

try:
    import termios

    _PORT_ERRORS: tuple[type[Exception], ...] = (OSError, termios.error)
except ImportError:  # Windows
    _PORT_ERRORS = (OSError,)

_SLICE_S = 0.002  # one blocking read of the port
_LATE = 4  # times the reply timeout: later than that no reply is waited for
_WRITE_S = 1.0  # the kernel takes a packet at once: a busy machine must not look like a lost port


class PortLost(BusError):
    """The serial port is gone: unplugged, or never there."""


class FeetechBus:
    """Servos on one serial port. For one thread at a time.

    Args:
        port: device name; a pty will do.
        settings: robot.yaml: bus.
    """

    def __init__(self, port: str, settings: BusConfig) -> None:
        self.port = port
        self._settings = settings
        self._sdk = _sdk()
        self._handler = self._sdk.PacketHandler(0)  # 0: low byte first
        self._port: Any = None
        self._question: tuple | None = None  # what was asked last

    @property
    def is_open(self) -> bool:
        return self._port is not None

    def open(self, baud: int | None = None) -> None:
        """Open the port, at the rate of robot.yaml unless told otherwise.

        Raises:
            PortLost: it cannot be opened.
        """
        self.close()
        port = _make_port(self._sdk, self.port, self._settings.reply_timeout_ms)
        try:
            if not port.setBaudRate(baud or self._settings.baud):
                raise BusError(f"robot.yaml: bus.baud is {baud or self._settings.baud}; the servo SDK has no such rate")
        except _PORT_ERRORS as error:
            raise PortLost(
                f"{self.port}: cannot be opened ({error}); is the arm plugged in, is another program using the port "
                "(./real status --service asks a driver service), may this user open it (group dialout)? Or give --port"
            ) from None
        self._port = port

    def close(self) -> None:
        port, self._port = self._port, None
        if port is not None:
            try:
                port.closePort()
            except _PORT_ERRORS:
                pass  # gone already

    def ping(self, servo: int) -> int | None:
        """The model number of a servo, None when it does not answer."""
        self._settle(("ping", servo))
        for _ in range(1 + self._settings.retries):
            try:
                model, result, _ = self._call(self._handler.ping, servo)
            except IndexError:  # the SDK takes a late reply without data for the model number
                continue
            if result == self._sdk.COMM_SUCCESS:
                return model
        return None

    def read(self, servo: int, name: str) -> int:
        """One register of one servo.

        Raises:
            BusError: no good answer after all tries.
        """
        register = REGISTERS[name]
        self._settle(("read", servo, name))
        for _ in range(1 + self._settings.retries):
            raw, result, _ = self._call(self._handler.readTxRx, servo, register.address, register.size)
            if result == self._sdk.COMM_SUCCESS and len(raw) == register.size:
                return register.decode(raw)
        raise BusError(f"{self.port}: servo {servo} did not give its {name}: {self._why(result)}")

    def write(self, servo: int, name: str, value: int) -> None:
        """One register of one servo, acknowledged. EEPROM registers need `unlocked`.

        Raises:
            BusError: not acknowledged after all tries. The value may have arrived all the same.
        """
        register = REGISTERS[name]
        raw = register.encode(value)
        self._settle(("write", servo, name))
        for _ in range(1 + self._settings.retries):
            result, _ = self._call(self._handler.writeTxRx, servo, register.address, register.size, raw)
            if result == self._sdk.COMM_SUCCESS:
                return
        raise BusError(f"{self.port}: servo {servo} did not acknowledge {name} = {value}: {self._why(result)}")

    def sync_read(self, names: Iterable[str], servos: Iterable[int]) -> dict[int, dict[str, int]]:
        """Registers of many servos by one request; who did not answer is asked again, and is missing in the result when
        that does not help. The registers are read as one block, from the first to the last."""
        registers = {name: REGISTERS[name] for name in names}
        start = min(register.address for register in registers.values())
        length = max(register.address + register.size for register in registers.values()) - start
        answers: dict[int, list[int]] = {}
        missing = list(servos)
        self._settle(("read", start, length))
        for _ in range(1 + self._settings.retries):
            if not missing:
                break
            result = self._call(self._handler.syncReadTx, start, length, missing, len(missing))
            if result == self._sdk.COMM_SUCCESS:
                answers |= self._collect(missing, length)
            missing = [servo for servo in missing if servo not in answers]
        return {
            servo: {
                name: register.decode(raw[register.address - start :][: register.size])
                for name, register in registers.items()
            }
            for servo, raw in answers.items()
        }

    def sync_write(self, name: str, values: dict[int, int]) -> None:
        """One register of many servos by one packet; nobody acknowledges it.

        Raises:
            BusError: it could not be sent.
        """
        register = REGISTERS[name]
        param = [byte for servo, value in values.items() for byte in (servo, *register.encode(value))]
        result = self._call(self._handler.syncWriteTxOnly, register.address, register.size, param, len(param))
        if result != self._sdk.COMM_SUCCESS:
            raise BusError(f"{self.port}: {name} could not be sent: {self._why(result)}")

    @contextmanager
    def unlocked(self, servos: Iterable[int]) -> Iterator[None]:
        """Inside, what is written to the EEPROM of `servos` stays there without power."""
        opened = []
        try:
            for servo in servos:
                opened.append(servo)
                self.write(servo, "lock", 0)
            yield
        finally:
            for servo in opened:
                self.write(servo, "lock", 1)

    def write_eeprom(self, servo: int, name: str, value: int) -> bool:
        """Write an EEPROM register when it differs, and read it back; returns whether it differed. Inside `unlocked`.

        Raises:
            BusError: it did not keep the value.
        """
        if REGISTERS[name].address >= EEPROM_END:
            raise ValueError(f"{name} is no EEPROM register")
        if self.read(servo, name) == value:
            return False
        self.write(servo, name, value)
        kept = self.read(servo, name)
        if kept != value:
            raise BusError(f"{self.port}: servo {servo} kept {kept} as its {name} instead of {value}; is it locked?")
        return True

    def _collect(self, servos: list[int], length: int) -> dict[int, list[int]]:
        """Replies as they come, until all have answered or the time is over. The SDK's own group read gives up at the
        first servo that is silent, and takes the answers of the others with it."""
        waiting, answers = set(servos), {}
        while waiting:
            packet, result = self._call(self._handler.rxPacket)
            if result == self._sdk.COMM_SUCCESS:
                if packet[2] in waiting and packet[3] == length + 2:
                    answers[packet[2]] = packet[5 : 5 + length]
                    waiting.discard(packet[2])
            elif self._port.expired:
                break
        return answers

    def _settle(self, question: tuple) -> None:
        """Before another question than the last one: replies carry no number, and one that was given up may still come.
        It would pass for the answer to this one."""
        if question != self._question and self._port is not None:
            self._question = question
            left_s = self._port.overdue_s + _LATE * self._settings.reply_timeout_ms / 1000 - time.monotonic()
            if left_s > 0:
                time.sleep(left_s)

    def _call(self, function: Any, *arguments: Any) -> Any:
        if self._port is None:
            raise PortLost(f"{self.port}: not open")
        try:
            return function(self._port, *arguments)
        except _PORT_ERRORS as error:
            self.close()
            raise PortLost(f"{self.port}: the port is gone ({error}); is the cable still in?") from None

    def _why(self, result: int) -> str:
        text = self._handler.getTxRxResult(result)
        return text.removeprefix("[TxRxResult] ").rstrip("!") or f"result {result}"


def _sdk() -> Any:
    try:
        import scservo_sdk
    except ImportError:
        raise BusError("the servo bus needs Feetech's SDK: pip install -e .[robot]") from None
    return scservo_sdk


def _make_port(sdk: Any, name: str, reply_timeout_ms: float) -> Any:
    import serial

    class Port(sdk.PortHandler):
        """The SDK's port: blocking reads, a clock that cannot jump, nothing left over from earlier requests."""

        overdue_s = float("-inf")  # when a reply was last given up

        def setupPort(self, cflag_baud: int) -> bool:
            if self.is_open:
                self.closePort()
            self.ser = serial.Serial(
                self.port_name, self.baudrate, timeout=_SLICE_S, write_timeout=_WRITE_S, exclusive=True
            )
            self.is_open = True
            self.ser.reset_input_buffer()
            self.tx_time_per_byte = 10_000.0 / self.baudrate  # ms; a byte is ten bits
            return True

        def clearPort(self) -> None:
            self.is_using = False
            self.ser.reset_input_buffer()

        def getCurrentTime(self) -> float:
            return time.monotonic() * 1000

        def setPacketTimeout(self, packet_length: int) -> None:
            self.packet_start_time = self.getCurrentTime()
            self.packet_timeout = self.tx_time_per_byte * packet_length + reply_timeout_ms

        def isPacketTimeout(self) -> bool:
            if not self.expired:
                return False
            self.overdue_s = time.monotonic()
            return True

        @property
        def expired(self) -> bool:
            return self.getCurrentTime() - self.packet_start_time > self.packet_timeout

    return Port(name)
