"""The servo bus with the faults of a wire: what is asked is answered or said not to be, never half."""

import pytest

from so101.config import load_config
from so101.robot import BusError, FeetechArm, find_port
from so101.robot.feetech_bus import FeetechBus, PortLost
from so101.robot.tables import REGISTERS
from so101.robot.virtual import Fault, VirtualBus

CONFIG = load_config(overrides=["robot.bus.reply_timeout_ms=100"])  # a busy machine answers late
IDS = CONFIG.robot.bus.ids
ALL = list(REGISTERS)


@pytest.fixture
def virtual():
    with VirtualBus(CONFIG, pacing=False, real_time=False, reply_delay_s=0.0) as made:
        yield made


@pytest.fixture
def bus(virtual):
    opened = FeetechBus(virtual.port, CONFIG.robot.bus)
    opened.open()
    yield opened
    opened.close()


def test_group_and_single_reads_agree(bus):
    together = bus.sync_read(ALL, IDS)
    assert together == {servo: {name: bus.read(servo, name) for name in ALL} for servo in IDS}


def test_group_writes_arrive(bus):
    goals = {servo: 1500 + 100 * servo for servo in IDS}
    bus.sync_write("goal_position", goals)
    assert {servo: bus.read(servo, "goal_position") for servo in IDS} == goals


@pytest.mark.parametrize("kind", ["lost_reply", "corrupt_reply", "truncated_reply", "noise"])
def test_one_bad_reply_is_asked_for_again(bus, virtual, kind):
    for servo in IDS:
        virtual.faults.add(Fault(kind, ids=(servo,), count=1))
        assert bus.sync_read(["id"], IDS) == {each: {"id": each} for each in IDS}
        virtual.faults.add(Fault(kind, ids=(servo,), count=1))
        assert bus.read(servo, "id") == servo


@pytest.mark.parametrize("kind", ["lost_reply", "corrupt_reply", "truncated_reply"])
def test_who_never_answers_well_is_missing_and_the_others_are_not(bus, virtual, kind):
    virtual.faults.add(Fault(kind, ids=(3,)))
    assert sorted(set(IDS) - set(bus.sync_read(["id"], IDS))) in ([3], [3, 4])  # half a reply may spoil the next
    with pytest.raises(BusError, match="servo 3 did not give its present_position"):
        bus.read(3, "present_position")


def test_a_late_reply_never_answers_the_next_question(bus, virtual):
    virtual.faults.add(Fault("slow_reply", ids=(2,), count=2, value=0.15))
    assert bus.read(2, "p_coefficient") == 32  # the second try got the answer to the first
    for name, value in (("id", 2), ("d_coefficient", 32), ("lock", 1), ("id", 2)):
        assert bus.read(2, name) == value


def test_a_late_reply_that_the_sdk_stumbles_over_is_no_answer(bus, monkeypatch):
    ping, failures = bus._handler.ping, [IndexError("list index out of range")]

    def stumbling(*arguments):
        if failures:
            raise failures.pop()
        return ping(*arguments)

    monkeypatch.setattr(bus._handler, "ping", stumbling)
    assert bus.ping(3) == 777
    failures.extend([IndexError()] * 100)
    assert bus.ping(3) is None


def test_eeprom_is_written_once_and_locked_again(bus, virtual):
    with bus.unlocked([1]):
        assert bus.write_eeprom(1, "p_coefficient", 17)
        assert not bus.write_eeprom(1, "p_coefficient", 17)
    virtual.power_cycle()
    assert bus.read(1, "p_coefficient") == 17 and bus.read(1, "lock") == 1


def test_the_lock_closes_after_an_error_too(bus):
    with pytest.raises(RuntimeError), bus.unlocked([1, 2]):
        raise RuntimeError
    assert [bus.read(servo, "lock") for servo in (1, 2)] == [1, 1]


def test_an_unplugged_port_is_told_at_once_and_opens_again(bus, virtual):
    virtual.unplug()
    with pytest.raises(PortLost):
        bus.read(1, "id")
    assert not bus.is_open
    with pytest.raises(PortLost, match="is the arm plugged in"):
        bus.open()
    virtual.replug()
    bus.open()
    assert bus.read(1, "id") == 1


def test_a_port_in_use_is_told(bus, virtual):
    with pytest.raises(PortLost, match="another program"):
        FeetechBus(virtual.port, CONFIG.robot.bus).open()


def test_all_faults_of_the_start_are_told_at_once(virtual, tmp_path):
    virtual.faults.add(Fault("silent", ids=(2, 5)))
    virtual.faults.add(Fault("voltage_sag", value=4.2))
    virtual.advance(0.1)
    with pytest.raises(BusError) as error:
        FeetechArm(CONFIG.robot, virtual.port, tmp_path / "none.json").connect()
    text = str(error.value)
    assert "shoulder_lift (servo 2) does not answer" in text and "wrist_roll (servo 5) does not answer" in text
    assert "shoulder_pan (servo 1) is supplied with 4.2 V; allowed: 4.5 to 13 V" in text


def test_a_dead_bus_is_told(virtual, tmp_path):
    virtual.faults.add(Fault("silent"))
    with pytest.raises(BusError, match="no servo answers at 1000000 baud; is the arm's power on"):
        FeetechArm(CONFIG.robot, virtual.port, tmp_path / "none.json").connect()


def test_without_a_file_the_servos_count(virtual, tmp_path):
    arm = FeetechArm(CONFIG.robot, virtual.port, tmp_path / "none.json")
    arm.connect()
    assert arm.calibration_fault is None and "the numbers in the servos count" in arm.notes[0]
    assert arm.calibration.differences(virtual.calibration) == []
    arm.close()


def test_ports_found_or_listed(monkeypatch):
    monkeypatch.setattr("so101.robot.ports.usb_ports", lambda: {"/dev/ttyACM0": "USB Single Serial"})
    assert find_port("auto", "robot.bus.port") == "/dev/ttyACM0"
    assert find_port("/dev/pts/3", "robot.bus.port") == "/dev/pts/3"
    monkeypatch.setattr("so101.robot.ports.usb_ports", lambda: {"a": "one", "b": "two"})
    with pytest.raises(BusError, match=r"robot.bus.port is auto.*found: a \(one\), b \(two\)"):
        find_port("auto", "robot.bus.port")
