"""The memory of an STS3215, byte by byte, after the maker's memory table.

Written down apart from the driver's own table (`so101.robot.tables`) on purpose: an address or a sign bit that is wrong
in one of the two shows when they meet (tests/robot/virtual/test_registers.py).
"""

from __future__ import annotations

from dataclasses import dataclass

MEMORY_BYTES = 87
SRAM_START = 40  # below: EEPROM
TICKS = 4096  # of the encoder, one turn
TICKS_PER_SPEED_UNIT = 50  # of the factory registers 80 and 84; goal and present speed are in ticks/s
TICKS_PER_ACCELERATION_UNIT = 100  # ticks/s^2
SET_MIDDLE = 128  # written to torque_enable: the present position becomes 2048
BAUD_RATES = (1_000_000, 500_000, 250_000, 128_000, 115_200, 76_800, 57_600, 38_400)  # by the value of `baud_rate`


class ErrorBit:
    """Bits of the status register, of the error byte of every reply, and of the unloading condition."""

    VOLTAGE = 1
    ENCODER = 2
    OVERHEAT = 4
    CURRENT = 8
    OVERLOAD = 32


@dataclass(frozen=True)
class Register:
    """`size` bytes, low byte first. `sign_bit`: the bit that says minus, the others are the magnitude. A value out of
    [low, high] is not taken; `read_only`: no value is."""

    address: int
    size: int
    default: int
    low: int = 0
    high: int = 254
    read_only: bool = False
    sign_bit: int | None = None

    def encode(self, value: int) -> bytes:
        if self.sign_bit is not None:
            limit = (1 << self.sign_bit) - 1
            value = min(abs(value), limit) | (int(value < 0) << self.sign_bit)
        return int(value).to_bytes(self.size, "little")

    def decode(self, raw: bytes) -> int:
        value = int.from_bytes(raw, "little")
        if self.sign_bit is None:
            return value
        magnitude = value & ~(1 << self.sign_bit)
        return -magnitude if value >> self.sign_bit & 1 else magnitude


def _fixed(address: int, size: int, default: int = 0, sign_bit: int | None = None) -> Register:
    return Register(address, size, default, read_only=True, sign_bit=sign_bit)


REGISTERS: dict[str, Register] = {
    # EEPROM
    "firmware_major": _fixed(0, 1, 3),
    "firmware_minor": _fixed(1, 1, 10),
    "model_number": _fixed(3, 2, 777),
    "id": Register(5, 1, 1, high=253),
    "baud_rate": Register(6, 1, 0, high=7),
    "return_delay": Register(7, 1, 250),  # 2 us each
    "response_level": Register(8, 1, 1, high=1),  # 0: only PING and READ are answered
    "min_position": Register(9, 2, 0, high=4094),
    "max_position": Register(11, 2, 4095, high=4095),
    "max_temperature": Register(13, 1, 70, high=100),  # degrees C
    "max_voltage": Register(14, 1, 140),  # 0.1 V; of the 12 V servo
    "min_voltage": Register(15, 1, 40),
    "max_torque": Register(16, 2, 1000, high=1000),  # 0.1 %; torque_limit starts as this
    "phase": Register(18, 1, 12),
    "unloading_condition": Register(19, 1, 44),  # error bits that take torque away
    "led_condition": Register(20, 1, 47),
    "p_coefficient": Register(21, 1, 32),
    "d_coefficient": Register(22, 1, 32),
    "i_coefficient": Register(23, 1, 0),
    "startup_force": Register(24, 2, 16, high=1000),
    "cw_dead_zone": Register(26, 1, 1, high=32),
    "ccw_dead_zone": Register(27, 1, 1, high=32),
    "protection_current": Register(28, 2, 500, high=511),  # 6.5 mA
    "angular_resolution": Register(30, 1, 1, low=1, high=100),
    "homing_offset": Register(31, 2, 0, low=-2047, high=2047, sign_bit=11),
    "operating_mode": Register(33, 1, 0, high=3),
    "protective_torque": Register(34, 1, 20),  # %, while overloaded
    "protection_time": Register(35, 1, 200),  # 10 ms over overload_torque, then overloaded
    "overload_torque": Register(36, 1, 80),  # %
    "velocity_p": Register(37, 1, 10),
    "over_current_time": Register(38, 1, 200),
    "velocity_i": Register(39, 1, 10),
    # SRAM, written by the host
    "torque_enable": Register(40, 1, 0, high=SET_MIDDLE),
    "acceleration": Register(41, 1, 0),  # 100 ticks/s^2, 0: as fast as it can
    "goal_position": Register(42, 2, 0, low=-32767, high=32767, sign_bit=15),
    "goal_time": Register(44, 2, 0, high=1000),
    "goal_speed": Register(46, 2, 0, low=-32767, high=32767, sign_bit=15),  # ticks/s, 0: the highest
    "torque_limit": Register(48, 2, 1000, high=1000),  # 0.1 %
    "lock": Register(55, 1, 1, high=1),  # 1: what is written to EEPROM is forgotten without power
    # SRAM, feedback
    "present_position": _fixed(56, 2, sign_bit=15),
    "present_speed": _fixed(58, 2, sign_bit=15),
    "present_load": _fixed(60, 2, sign_bit=10),  # 0.1 % of the duty cycle
    "present_voltage": _fixed(62, 1),  # 0.1 V
    "present_temperature": _fixed(63, 1),  # degrees C
    "write_flag": _fixed(64, 1),  # 1: a REG_WRITE waits for ACTION
    "status": _fixed(65, 1),
    "moving": _fixed(66, 1),
    "present_current": _fixed(69, 2, sign_bit=15),  # 6.5 mA
    # factory
    "moving_threshold": Register(80, 1, 0),  # 50 ticks/s
    "dts": Register(81, 1, 4),
    "velocity_factor": Register(82, 1, 1),
    "hts": Register(83, 1, 0),
    "max_speed": Register(84, 1, 68),  # 50 ticks/s: 3400 ticks/s, 50 turns a minute
    "max_acceleration": Register(85, 1, 254),
    "acceleration_factor": Register(86, 1, 1),
}
