"""Registers of the STS3215, after its maker's memory table and LeRobot's, and what its status bits mean."""

from __future__ import annotations

from typing import NamedTuple


class Register(NamedTuple):
    """`size` bytes at `address`, low byte first. `sign_bit`: the bit that says minus; the others are the magnitude."""

    address: int
    size: int
    sign_bit: int | None = None

    def encode(self, value: int) -> list[int]:
        """Bytes of `value`.

        Raises:
            ValueError: it does not fit.
        """
        top = self.sign_bit if self.sign_bit is not None else 8 * self.size
        if abs(value) >> top or (value < 0 and self.sign_bit is None):
            raise ValueError(f"{value} does not fit into {top} bits{'' if self.sign_bit is None else ' and a sign'}")
        raw = abs(value) | (1 << top if value < 0 else 0)
        return list(raw.to_bytes(self.size, "little"))

    def decode(self, raw: list[int]) -> int:
        """Value of `size` bytes."""
        value = int.from_bytes(bytes(raw), "little")
        if self.sign_bit is None or not value >> self.sign_bit & 1:
            return value
        return -(value & ((1 << self.sign_bit) - 1))


EEPROM_END = 40  # registers below keep their value without power, and are written only while `lock` is 0

REGISTERS: dict[str, Register] = {
    "firmware_major": Register(0, 1),
    "firmware_minor": Register(1, 1),
    "model_number": Register(3, 2),
    "id": Register(5, 1),
    "baud_rate": Register(6, 1),
    "return_delay": Register(7, 1),  # 2 us each; the factory's 250 costs 0.5 ms a servo
    "min_position": Register(9, 2),
    "max_position": Register(11, 2),
    "max_temperature": Register(13, 1),  # degrees C
    "max_torque": Register(16, 2),  # 0.1 %
    "p_coefficient": Register(21, 1),
    "d_coefficient": Register(22, 1),
    "i_coefficient": Register(23, 1),
    "protection_current": Register(28, 2),  # 6.5 mA
    "homing_offset": Register(31, 2, sign_bit=11),
    "operating_mode": Register(33, 1),  # 0: position
    "overload_torque": Register(36, 1),  # %
    "torque_enable": Register(40, 1),
    "acceleration": Register(41, 1),  # 100 ticks/s^2
    "goal_position": Register(42, 2, sign_bit=15),
    "goal_speed": Register(46, 2, sign_bit=15),  # ticks/s; 0: as fast as it can
    "torque_limit": Register(48, 2),  # 0.1 %
    "lock": Register(55, 1),
    "present_position": Register(56, 2, sign_bit=15),
    "present_speed": Register(58, 2, sign_bit=15),  # ticks/s
    "present_load": Register(60, 2, sign_bit=10),  # 0.1 % of the greatest torque
    "present_voltage": Register(62, 1),  # 0.1 V
    "present_temperature": Register(63, 1),  # degrees C
    "status": Register(65, 1),
    "max_acceleration": Register(85, 1),  # 100 ticks/s^2
}

MODEL_NUMBER = 777  # of the STS3215
BAUD_RATES = (1_000_000, 500_000, 250_000, 128_000, 115_200, 57_600, 38_400)  # the servo can be set to
ERROR_BITS = {1: "voltage", 2: "encoder", 4: "overheated", 8: "current", 32: "overload"}


def error_texts(bits: int) -> list[str]:
    """The faults a status byte tells of."""
    return [text for bit, text in ERROR_BITS.items() if bits & bit]
