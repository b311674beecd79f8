"""The bus through the maker's own host library, on a real pseudo terminal."""

from __future__ import annotations

import os
import termios
import time

import numpy as np
import pytest
import scservo_sdk as sdk
import serial

from so101.config import load_config
from so101.datasets.units import rad_to_ticks, ticks_to_rad
from so101.robot.calibration import ArmCalibration
from so101.robot.virtual import Fault, FaultError, KinematicPlant, VirtualBus, VirtualBusError, made_calibration

CONFIG = load_config()
IDS = range(1, 7)
HANDLER = sdk.PacketHandler(0)
OK = (sdk.COMM_SUCCESS, 0)


@pytest.fixture
def bus():
    with VirtualBus(CONFIG, pacing=False) as bus:
        yield bus


@pytest.fixture
def port(bus):
    port = _open(bus)
    yield port
    port.closePort()


class PatientPort(sdk.PortHandler):
    """The library's port, which waits without spinning and for as long as a busy machine needs."""

    patience_ms = 5000.0

    def setupPort(self, cflag_baud):
        done = super().setupPort(cflag_baud)
        self.ser.timeout = 0.002
        return done

    def setPacketTimeout(self, packet_length):
        self.setPacketTimeoutMillis(self.patience_ms)


def _open(bus: VirtualBus, baud: int = 1_000_000) -> PatientPort:
    port = PatientPort(bus.port)
    assert port.setBaudRate(baud)
    return port


def _is_silent(port: PatientPort, id: int) -> bool:
    port.patience_ms, patience_ms = 100.0, port.patience_ms
    result = HANDLER.ping(port, id)[1]
    port.patience_ms = patience_ms
    return result == sdk.COMM_RX_TIMEOUT


def _answers_again(port: PatientPort, id: int) -> bool:
    """To one of a host's tries: the first ones may end what was garbage."""
    port.patience_ms, patience_ms = 200.0, port.patience_ms

    def answers() -> bool:
        port.ser.reset_input_buffer()
        return HANDLER.ping(port, id) == (777, *OK)

    answered = _until(answers)
    port.patience_ms = patience_ms
    return answered


def _read(port, address: int, length: int, ids=IDS) -> dict[int, int]:
    reader = sdk.GroupSyncRead(port, HANDLER, address, length)
    for id in ids:
        reader.addParam(id)
    assert reader.txRxPacket() == sdk.COMM_SUCCESS
    return {id: reader.getData(id, address, length) for id in ids}


def _send(port, goals: dict[int, int]) -> None:
    writer = sdk.GroupSyncWrite(port, HANDLER, 42, 2)
    for id, goal in goals.items():
        writer.addParam(id, [goal & 0xFF, goal >> 8])
    assert writer.txPacket() == sdk.COMM_SUCCESS


def _until(condition, seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_six_servos_of_the_right_model_answer(port):
    assert [HANDLER.ping(port, id) for id in IDS] == [(777, *OK)] * 6
    assert _is_silent(port, 7)


def test_positions_are_the_joints_in_ticks(bus, port):
    units = bus.calibration.units(CONFIG.robot)
    ticks = np.array(list(_read(port, 56, 2).values()))
    assert (ticks == rad_to_ticks(bus.state().q, units, CONFIG.robot)).all()


def test_goals_move_the_joints_where_the_ticks_say(bus, port):
    units = bus.calibration.units(CONFIG.robot)
    wanted = np.array([0.3, -0.9, 0.4, 1.0, -0.5, 0.8])
    for id in IDS:
        assert HANDLER.write1ByteTxRx(port, id, 40, 1) == OK
    goals = rad_to_ticks(wanted, units, CONFIG.robot)
    _send(port, dict(zip(IDS, goals.tolist(), strict=True)))
    sent = ticks_to_rad(goals, units, CONFIG.robot)
    assert np.abs(sent - wanted).max() < 1e-3
    assert _until(lambda: np.abs(bus.state().q - sent).max() < 1e-4)
    assert _until(lambda: list(_read(port, 66, 1).values()) == [0] * 6)  # not moving


def test_a_real_calibration_file_sits_in_the_servos(tmp_path):
    calibration = made_calibration(CONFIG.robot)
    calibration.write(tmp_path / "arm.json")
    with VirtualBus(CONFIG, calibration=tmp_path / "arm.json", pacing=False) as bus:
        port = _open(bus)
        assert bus.calibration.motors == ArmCalibration.load(tmp_path / "arm.json", CONFIG.robot).motors
        for motor in calibration.motors.values():
            raw, result, error = HANDLER.read2ByteTxRx(port, motor.id, 31)
            assert (sdk.SCS_TOHOST(raw, 11), result, error) == (motor.homing_offset, *OK)
            assert HANDLER.read2ByteTxRx(port, motor.id, 9)[0] == motor.range_min
        port.closePort()


def test_a_host_of_another_speed_is_not_understood(bus, port):
    port.setBaudRate(500_000)
    assert _is_silent(port, 1)
    port.setBaudRate(1_000_000)
    assert HANDLER.ping(port, 1) == (777, *OK)
    HANDLER.write1ByteTxRx(port, 2, 6, 1)  # this servo speaks 500 kbit/s from now on
    assert _is_silent(port, 2)
    port.setBaudRate(500_000)
    assert HANDLER.ping(port, 2) == (777, *OK)
    assert _is_silent(port, 1)


@pytest.mark.parametrize("seed", range(5))
def test_after_garbage_the_next_instruction_is_answered(bus, port, seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        port.ser.write(rng.bytes(int(rng.integers(1, 200))))
        assert _answers_again(port, 3)
    assert bus.counts.skipped_bytes > 0


def test_two_arms_on_two_ports_do_not_hear_each_other():
    leader_plant = KinematicPlant(CONFIG)
    with VirtualBus(CONFIG, pacing=False) as follower, VirtualBus(CONFIG, plant=leader_plant, pacing=False) as leader:
        ports = _open(follower), _open(leader)
        before = _read(ports[0], 56, 2)
        leader_plant.place(np.full(6, 0.2))  # a hand moves the leader
        assert _until(lambda: _read(ports[1], 56, 2) != before)
        assert _read(ports[0], 56, 2) == before
        assert leader.state().q == pytest.approx(np.full(6, 0.2))
        for port in ports:
            port.closePort()


def test_unplugged_the_host_gets_errors_and_the_servos_hold(bus, port):
    HANDLER.write1ByteTxRx(port, 1, 40, 1)
    where = bus.port
    bus.unplug()
    assert not os.path.lexists(where)
    with pytest.raises((serial.SerialException, OSError, termios.error)):
        for _ in range(3):
            HANDLER.ping(port, 1)
    with pytest.raises(serial.SerialException):
        _open(bus)
    assert bus.state().torque_on[0] and not bus.state().plugged
    bus.replug()
    again = _open(bus)
    assert bus.port == where
    assert HANDLER.read1ByteTxRx(again, 1, 40) == (1, *OK)
    again.closePort()


def test_power_cycle_forgets_sram_and_locked_eeprom(bus, port):
    HANDLER.write1ByteTxRx(port, 1, 40, 1)
    HANDLER.write1ByteTxRx(port, 1, 21, 99)
    bus.power_cycle()
    assert HANDLER.read1ByteTxRx(port, 1, 40)[0] == 0
    assert HANDLER.read1ByteTxRx(port, 1, 21)[0] == 32


def test_pacing_takes_as_long_as_the_bytes_at_least():
    """Half-duplex arithmetic as a lower bound: no wire is faster than its bytes."""
    with VirtualBus(CONFIG, pacing=True) as bus:
        port = _open(bus, 1_000_000)
        for id in IDS:
            HANDLER.write1ByteTxRx(port, id, 6, 4)  # 115200
        port.setBaudRate(115_200)
        begun = time.monotonic()
        for _ in range(5):
            _read(port, 56, 15)
        taken = time.monotonic() - begun
        assert taken >= 5 * 6 * (6 + 15) * 10 / 115_200
        port.closePort()


def test_replies_that_nobody_reads_do_not_stop_the_bus(bus, port):
    for _ in range(200):
        port.ser.write(b"\xff\xff\xfe\x0a\x82\x00\x57\x01\x02\x03\x04\x05\x06\x09")  # 87 bytes of all six
    assert _answers_again(port, 1)


def test_advance_moves_physics_without_a_clock():
    with VirtualBus(CONFIG, pacing=False, real_time=False) as bus:
        port = _open(bus)
        HANDLER.write1ByteTxRx(port, 1, 40, 1)
        goal = HANDLER.read2ByteTxRx(port, 1, 56)[0] + 200
        HANDLER.write2ByteTxRx(port, 1, 42, goal)
        assert HANDLER.read2ByteTxRx(port, 1, 56)[0] == goal - 200
        bus.advance(1.0)
        assert HANDLER.read2ByteTxRx(port, 1, 56)[0] == goal
        port.closePort()


def test_equal_seeds_give_equal_faults(bus):
    def spoilt() -> list[bytes]:
        with VirtualBus(CONFIG, seed=4) as other:
            other.faults.add(Fault("corrupt_reply", probability=0.5))
            other.faults.add(Fault("noise", ids=(2,), probability=0.5))
            return [other.faults.spoil(id, b"\xff\xff\x01\x02\x00\xfc")[0] for id in (1, 2) * 20]

    first = spoilt()
    assert first == spoilt() and len(set(first)) > 5


def test_wrong_faults_are_named():
    with pytest.raises(FaultError, match="cannot make fault 'overheated'; .*did you mean 'overheat'"):
        Fault("overheated")
    with pytest.raises(FaultError, match="fault noise: probability is 2; it must be 0 to 1"):
        Fault("noise", probability=2)
    with pytest.raises(FaultError, match="duration_s is -1; it must not be negative"):
        Fault("unplug", duration_s=-1)


def test_a_bus_is_started_once():
    bus = VirtualBus(CONFIG)
    with bus, pytest.raises(VirtualBusError, match="started once"):
        bus.start()
    bus.close()
    assert not os.path.lexists(bus.port)
