"""Register values: what goes in comes out, what does not fit is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from so101.robot.tables import REGISTERS, error_texts


@given(st.sampled_from(sorted(REGISTERS)), st.data())
def test_what_fits_survives_the_wire(name, data):
    register = REGISTERS[name]
    top = (1 << (8 * register.size if register.sign_bit is None else register.sign_bit)) - 1
    value = data.draw(st.integers(0 if register.sign_bit is None else -top, top))
    raw = register.encode(value)
    assert len(raw) == register.size and all(0 <= byte <= 255 for byte in raw)
    assert register.decode(raw) == value


@pytest.mark.parametrize(
    ("name", "value"), [("id", 256), ("id", -1), ("homing_offset", 2048), ("homing_offset", -2048)]
)
def test_what_does_not_fit_is_refused(name, value):
    with pytest.raises(ValueError, match="does not fit"):
        REGISTERS[name].encode(value)


def test_a_homing_offset_as_the_servo_stores_it():
    assert REGISTERS["homing_offset"].encode(-1720) == [0xB8, 0x0E]  # bit 11 says minus: 0x0800 | 1720


def test_addresses_do_not_overlap():
    taken = [a for register in REGISTERS.values() for a in range(register.address, register.address + register.size)]
    assert len(taken) == len(set(taken))


def test_error_bits_in_words():
    assert error_texts(0) == []
    assert error_texts(4 | 32) == ["overheated", "overload"]
