"""One servo: its answers, its ramp, its protections. Time is counted in steps, not on the clock."""

from __future__ import annotations

import pytest

from so101.config import load_config
from so101.robot.virtual import packets
from so101.robot.virtual.packets import BROADCAST, Packet, Parser
from so101.robot.virtual.registers import REGISTERS, SET_MIDDLE, ErrorBit
from so101.robot.virtual.servo import VirtualServo

SETTINGS = load_config().robot.virtual.servo
DT = 0.002


def _servo(ticks: float = 2000.0, **eeprom: int) -> VirtualServo:
    return VirtualServo({"id": 5, **eeprom}, SETTINGS, ticks)


def _set(servo: VirtualServo, id: int = 5, **registers: int) -> None:
    for name, value in registers.items():
        register = REGISTERS[name]
        servo.handle(Packet(id, packets.WRITE, bytes([register.address]) + register.encode(value)))


def _get(servo: VirtualServo, name: str) -> int:
    register = REGISTERS[name]
    reply = servo.handle(Packet(servo.id, packets.READ, bytes([register.address, register.size])))
    return register.decode(_body(reply).parameters)


def _body(reply: bytes) -> Packet:
    (packet,) = Parser().feed(reply)
    return packet


def _move(servo: VirtualServo, seconds: float, load: float = 0.0) -> list[float]:
    """The shaft follows the ramp exactly; its ticks after every step."""
    path = []
    for _ in range(round(seconds / DT)):
        target, strength, _ = servo.motor.command(DT)
        servo.motor.feel(target if strength else servo.motor.ticks, 0.0, load, DT)
        path.append(servo.motor.ticks)
    return path


def test_who_is_asked_answers_and_nobody_else():
    servo = _servo()
    assert _body(servo.handle(Packet(5, packets.PING, b""))) == Packet(5, 0, b"")
    assert servo.handle(Packet(4, packets.PING, b"")) is None
    assert servo.handle(Packet(BROADCAST, packets.PING, b"")) is not None
    assert servo.handle(Packet(BROADCAST, packets.WRITE, bytes([40, 1]))) is None
    assert servo.memory["torque_enable"] == 1


def test_response_level_0_answers_ping_and_read_only():
    servo = _servo(response_level=0)
    assert servo.handle(Packet(5, packets.WRITE, bytes([40, 1]))) is None
    assert servo.handle(Packet(5, packets.PING, b"")) is not None
    assert _get(servo, "torque_enable") == 1


def test_reg_write_waits_for_action():
    servo = _servo()
    servo.handle(Packet(5, packets.REG_WRITE, bytes([40, 1])))
    assert (_get(servo, "torque_enable"), _get(servo, "write_flag")) == (0, 1)
    servo.handle(Packet(BROADCAST, packets.ACTION, b""))
    assert (_get(servo, "torque_enable"), _get(servo, "write_flag")) == (1, 0)


def test_sync_write_takes_its_own_part_and_sync_read_its_own_turn():
    servo = _servo()
    assert servo.handle(Packet(BROADCAST, packets.SYNC_WRITE, bytes([42, 2, 4, 1, 0, 5, 0x34, 0x08, 6, 2, 0]))) is None
    assert _get(servo, "goal_position") == 0x834
    assert servo.handle(Packet(BROADCAST, packets.SYNC_READ, bytes([42, 2, 4, 6]))) is None
    assert _body(servo.handle(Packet(BROADCAST, packets.SYNC_READ, bytes([42, 2, 4, 5])))).parameters == b"\x34\x08"


@pytest.mark.parametrize("parameters", [b"", b"\x28", bytes(3)])
@pytest.mark.parametrize("instruction", [packets.READ, packets.WRITE, packets.SYNC_READ, packets.SYNC_WRITE, 0x77])
def test_malformed_instructions_do_not_hurt(instruction, parameters):
    servo = _servo()
    servo.handle(Packet(5, instruction, parameters))
    servo.handle(Packet(BROADCAST, instruction, parameters))
    assert servo.handle(Packet(5, packets.PING, b"")) is not None


def test_a_new_id_answers_once_under_the_old_one():
    servo = _servo()
    assert _body(servo.handle(Packet(5, packets.WRITE, bytes([5, 9])))).id == 5
    assert servo.id == 9


def test_positions_are_those_of_the_encoder_less_the_offset_within_a_turn():
    for ticks, offset in ((2000.4, 0), (2000.4, 563), (100.0, 563), (4000.0, -430), (-5.0, 0)):
        servo = _servo(ticks, homing_offset=offset)
        assert _get(servo, "present_position") == (round(ticks) - offset) % 4096


def test_without_torque_it_is_limp_and_with_torque_it_goes_where_the_goal_says():
    servo = _servo()
    _set(servo, goal_position=2500)
    assert _move(servo, 0.5)[-1] == 2000.0
    _set(servo, torque_enable=1)
    assert _move(servo, 1.0)[-1] == pytest.approx(2500.0)


@pytest.mark.parametrize("offset", [0, 563, -353])
def test_goals_are_kept_within_the_limits_and_never_cross_the_end_of_the_turn(offset):
    servo = _servo(2000.0 + offset, homing_offset=offset, min_position=500, max_position=3500)
    _set(servo, torque_enable=1)
    for goal, reached in ((4000, 3500), (100, 500), (2048, 2048)):
        _set(servo, goal_position=goal)
        path = _move(servo, 2.0)
        assert path[-1] == pytest.approx(reached + offset)
        assert min(path) >= 499 + offset and max(path) <= 3501 + offset


def test_speed_and_acceleration_registers_make_a_trapezoid():
    servo = _servo()
    _set(servo, torque_enable=1, acceleration=10, goal_speed=500, goal_position=3000)  # 1000 ticks/s^2, 500 ticks/s
    path = [2000.0, *_move(servo, 3.0)]
    speed = [(b - a) / DT for a, b in zip(path, path[1:], strict=False)]
    change = [(b - a) / DT for a, b in zip(speed, speed[1:], strict=False)]
    assert max(speed) == pytest.approx(500, rel=0.01)
    braking = next(step for step, ticks in enumerate(path) if ticks > 2999)  # the last tick may be cut short
    assert max(change) <= 1001 and min(change[:braking]) >= -1050
    assert path[round(1.0 / DT)] == pytest.approx(2000 + 125 + 250, abs=5)  # v^2/2a of ramp, then 0.5 s at full speed
    assert path[-1] == pytest.approx(3000)


def test_without_a_speed_it_goes_as_fast_as_it_can():
    servo = _servo()
    _set(servo, torque_enable=1, acceleration=254, goal_position=3000)
    assert _move(servo, 0.1)[-1] == pytest.approx(2000 + 340)  # 68 * 50 ticks/s


def test_128_makes_the_present_position_2048_for_good():
    servo = _servo(700.0, homing_offset=20)
    _set(servo, torque_enable=SET_MIDDLE)
    assert _get(servo, "present_position") == 2048
    servo.power(False)
    servo.power(True)
    assert (_get(servo, "present_position"), _get(servo, "torque_enable")) == (2048, 0)


def test_overload_leaves_the_protective_torque_until_it_is_sent_the_other_way():
    servo = _servo()
    _set(servo, torque_enable=1, goal_position=3000)
    _move(servo, 2.1, load=0.7)
    assert servo.motor.errors == 0
    servo = _servo()
    _set(servo, torque_enable=1)
    _set(servo, goal_position=3000)
    for _ in range(round(2.1 / DT)):  # blocked
        servo.motor.command(DT)
        servo.motor.feel(2000.0, 0.0, 0.9, DT)
    assert _get(servo, "status") == ErrorBit.OVERLOAD
    assert servo.motor.command(DT).strength == pytest.approx(0.2)
    assert _body(servo.handle(Packet(5, packets.PING, b""))).instruction == ErrorBit.OVERLOAD  # the error byte
    _set(servo, goal_position=3100)
    assert servo.motor.errors == ErrorBit.OVERLOAD
    _set(servo, goal_position=1900)
    assert servo.motor.errors == 0 and servo.motor.command(DT).strength == 1.0


def test_an_overheated_servo_lets_go_and_takes_torque_again_when_it_is_cool():
    servo = _servo()
    _set(servo, torque_enable=1)
    servo.motor.heating_c_per_s = 50.0
    _move(servo, 1.0)
    assert _get(servo, "present_temperature") > 70
    assert (_get(servo, "torque_enable"), servo.motor.errors) == (0, ErrorBit.OVERHEAT)
    assert servo.motor.command(DT).strength == 0.0
    _set(servo, torque_enable=1)
    assert _get(servo, "torque_enable") == 0
    servo.motor.heating_c_per_s = -50.0
    _move(servo, 0.5)
    _set(servo, torque_enable=1)
    assert (_get(servo, "torque_enable"), servo.motor.errors) == (1, 0)


def test_voltage_out_of_limits_is_told_and_changes_nothing_else():
    servo = _servo(min_voltage=60)
    _set(servo, torque_enable=1)
    servo.motor.voltage_v = 5.0
    assert servo.motor.errors == ErrorBit.VOLTAGE
    assert servo.motor.command(DT).strength == 1.0


def test_without_power_it_says_nothing_and_wakes_up_limp():
    servo = _servo()
    _set(servo, torque_enable=1, goal_position=2100)
    _move(servo, 0.5)
    servo.power(False)
    assert servo.handle(Packet(5, packets.PING, b"")) is None
    servo.power(True)
    assert (_get(servo, "torque_enable"), _get(servo, "goal_position")) == (0, 2100)
