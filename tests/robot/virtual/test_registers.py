"""The servo's memory map, and that the driver's own table says the same."""

from __future__ import annotations

import pytest

from so101.robot import tables
from so101.robot.virtual.memory import Memory
from so101.robot.virtual.registers import MEMORY_BYTES, REGISTERS, SRAM_START


@pytest.mark.parametrize("name", REGISTERS)
def test_values_survive_the_bytes(name):
    register = REGISTERS[name]
    for value in {register.low, register.high, register.default, (register.low + register.high) // 2}:
        assert register.decode(register.encode(value)) == value


def test_registers_do_not_overlap_and_defaults_are_allowed():
    taken = [address for r in REGISTERS.values() for address in range(r.address, r.address + r.size)]
    assert len(taken) == len(set(taken)) and max(taken) < MEMORY_BYTES
    assert all(r.read_only or r.low <= r.default <= r.high for r in REGISTERS.values())


def test_the_driver_has_the_same_addresses_sizes_and_signs():
    for name, register in tables.REGISTERS.items():
        mine = REGISTERS[name]
        assert (mine.address, mine.size, mine.sign_bit) == (register.address, register.size, register.sign_bit), name
    assert tables.MODEL_NUMBER == REGISTERS["model_number"].default
    assert tables.EEPROM_END == SRAM_START


def test_sign_is_a_bit_of_its_own():
    assert REGISTERS["homing_offset"].encode(-430) == (0x800 | 430).to_bytes(2, "little")
    assert REGISTERS["goal_position"].encode(-1) == b"\x01\x80"
    assert REGISTERS["present_load"].decode((0x400 | 250).to_bytes(2, "little")) == -250


def _write(memory: Memory, name: str, value: int) -> dict[str, int]:
    return memory.write(REGISTERS[name].address, REGISTERS[name].encode(value))


def test_eeprom_is_kept_only_when_the_lock_is_open():
    memory = Memory({"id": 3})
    assert memory["lock"] == 1
    _write(memory, "homing_offset", 100)
    assert memory["homing_offset"] == 100
    memory.restart()
    assert memory["homing_offset"] == 0
    _write(memory, "lock", 0)
    _write(memory, "homing_offset", 100)
    memory.restart()
    assert (memory["homing_offset"], memory["lock"], memory["id"]) == (100, 1, 3)


def test_sram_is_forgotten_without_power_and_the_torque_limit_follows_the_eeprom():
    memory = Memory({"max_torque": 500})
    assert memory["torque_limit"] == 500
    _write(memory, "torque_limit", 300)
    _write(memory, "goal_position", 2000)
    memory.restart()
    assert (memory["torque_limit"], memory["goal_position"]) == (500, 0)


def test_feedback_and_values_out_of_range_are_not_taken():
    memory = Memory({})
    assert _write(memory, "model_number", 1) == {}
    assert _write(memory, "torque_limit", 1001) == {}
    assert memory.write(REGISTERS["id"].address, b"\xfe") == {}
    assert memory["model_number"] == 777


def test_one_write_may_hold_many_registers_but_no_half_one():
    memory = Memory({})
    written = memory.write(41, bytes([50, 0x00, 0x08, 0, 0, 0x2C, 0x01, 0xF4]))  # acceleration to half of torque_limit
    assert written == {"acceleration": 50, "goal_position": 2048, "goal_time": 0, "goal_speed": 300}
    assert memory["torque_limit"] == 1000


def test_reading_beyond_the_memory_gives_zeros():
    assert Memory({}).read(MEMORY_BYTES - 1, 4) == bytes([1, 0, 0, 0])


def test_reset_keeps_the_id():
    memory = Memory({"id": 4, "homing_offset": 7})
    memory.reset()
    assert (memory["id"], memory["homing_offset"]) == (4, 0)
