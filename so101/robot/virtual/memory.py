"""The memory of one servo: what a host may read and write, and what survives without power."""

from __future__ import annotations

from collections.abc import Mapping

from so101.robot.virtual.registers import MEMORY_BYTES, REGISTERS, SRAM_START, Register


class Memory:
    """Registers by name for the servo itself, bytes by address for the host.

    Args:
        eeprom: values that differ from the maker's.
    """

    def __init__(self, eeprom: Mapping[str, int]) -> None:
        self._factory = bytes(MEMORY_BYTES)
        for register in REGISTERS.values():
            self._factory = _written(self._factory, register, register.default)
        self._saved = self._factory
        for name, value in eeprom.items():
            self._saved = _written(self._saved, REGISTERS[name], value)
        self._bytes = bytearray(self._saved)
        self._values: dict[str, int] = {}  # the same as the bytes; the motor reads it in every physics step
        self.restart()

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def __setitem__(self, name: str, value: int) -> None:
        register = REGISTERS[name]
        raw = register.encode(value)
        self._bytes[register.address : register.address + register.size] = raw
        self._values[name] = register.decode(raw)

    def save(self, name: str, value: int) -> None:
        """Set an EEPROM register for good, as the servo itself and the maker's tools do."""
        self[name] = value
        self._saved = _written(self._saved, REGISTERS[name], value)

    def read(self, address: int, length: int) -> bytes:
        """`length` bytes from `address`; zeros where there is no memory."""
        return bytes(self._bytes[address : address + length]).ljust(length, b"\0")

    def write(self, address: int, data: bytes) -> dict[str, int]:
        """Store what a host sends: whole registers that may be written and values that they take. EEPROM keeps it only
        while the lock is open.

        Returns:
            the registers that were written, also when the value is the old one.
        """
        written = {}
        for name, register in REGISTERS.items():
            first = register.address - address
            if first < 0 or first + register.size > len(data) or register.read_only:
                continue
            value = register.decode(data[first : first + register.size])
            if register.low <= value <= register.high:
                self[name] = written[name] = value
                if register.address < SRAM_START and not self["lock"]:
                    self._saved = _written(self._saved, register, value)
        return written

    def restart(self) -> None:
        """As after power on: EEPROM as it was saved, SRAM as the maker says."""
        self._bytes[:SRAM_START] = self._saved[:SRAM_START]
        self._bytes[SRAM_START:] = self._factory[SRAM_START:]
        for name, register in REGISTERS.items():
            self._values[name] = register.decode(self._bytes[register.address : register.address + register.size])
        self["torque_limit"] = self["max_torque"]

    def reset(self) -> None:
        """Factory settings, all but the id."""
        kept = self["id"]
        self._saved = _written(self._factory, REGISTERS["id"], kept)
        self.restart()


def _written(memory: bytes, register: Register, value: int) -> bytes:
    end = register.address + register.size
    return memory[: register.address] + register.encode(value) + memory[end:]
