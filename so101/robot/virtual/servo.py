"""One servo on the bus: answers instructions as an STS3215 does."""

from __future__ import annotations

from collections.abc import Mapping

from so101.config.virtual import VirtualServoConfig
from so101.robot.virtual import packets
from so101.robot.virtual.memory import Memory
from so101.robot.virtual.motor import Motor
from so101.robot.virtual.packets import BROADCAST, Packet
from so101.robot.virtual.registers import BAUD_RATES


class VirtualServo:
    """Memory, motor and protocol of one servo.

    Args:
        eeprom: registers that differ from the maker's.
        ticks: where its encoder stands.
    """

    def __init__(self, eeprom: Mapping[str, int], settings: VirtualServoConfig, ticks: float) -> None:
        self.memory = Memory(eeprom)
        self.motor = Motor(self.memory, settings, ticks)
        self.powered = True
        self.motor.restart()
        self._registered: tuple[int, bytes] | None = None

    @property
    def id(self) -> int:
        return self.memory["id"]

    @property
    def baud_rate(self) -> int:
        return BAUD_RATES[self.memory["baud_rate"]]

    def power(self, on: bool) -> None:
        """Power goes or comes back; SRAM and unsaved EEPROM are forgotten."""
        if on and not self.powered:
            self.memory.restart()
            self.motor.restart()
            self._registered = None
        self.powered = on

    def handle(self, packet: Packet) -> bytes | None:
        """Carry out an instruction that reached this servo.

        Returns:
            the status packet, None when there is nothing to answer.
        """
        asked = packet.id == self.id
        if not self.powered or not (asked or packet.id == BROADCAST):
            return None
        match packet.instruction:
            case packets.PING:
                return self._status()
            case packets.READ if asked and len(packet.parameters) == 2:
                return self._status(self._read(*packet.parameters))
            case packets.SYNC_READ if self.id in packet.parameters[2:]:
                return self._status(self._read(*packet.parameters[:2]))
            case packets.WRITE if len(packet.parameters) >= 2:
                self._write(packet.parameters[0], packet.parameters[1:])
            case packets.REG_WRITE if len(packet.parameters) >= 2:
                self._registered = packet.parameters[0], packet.parameters[1:]
                self.memory["write_flag"] = 1
            case packets.ACTION:
                if self._registered:
                    self._write(*self._registered)
                self._registered = None
                self.memory["write_flag"] = 0
            case packets.SYNC_WRITE if len(packet.parameters) >= 2:
                self._sync_write(packet.parameters)
            case packets.RESET:
                self.memory.reset()
                self.motor.restart()
            case _:
                return None
        return self._status(id=packet.id) if asked and self.memory["response_level"] else None

    def _read(self, address: int, length: int) -> bytes:
        self.motor.report()
        return self.memory.read(address, length)

    def _write(self, address: int, data: bytes) -> None:
        self.motor.written(self.memory.write(address, data))

    def _sync_write(self, parameters: bytes) -> None:
        """Address, length, then id and data of every servo."""
        address, length = parameters[:2]
        for start in range(2, len(parameters) - length, length + 1):
            if parameters[start] == self.id:
                self._write(address, parameters[start + 1 : start + 1 + length])

    def _status(self, data: bytes = b"", *, id: int | None = None) -> bytes:
        """A status packet, from the id that was asked even where the instruction changed it."""
        return packets.pack(self.id if id is None else id, self.motor.errors, data)
