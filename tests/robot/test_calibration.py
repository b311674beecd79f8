"""LeRobot's calibration files: real ones survive reading and writing, servos keep what they are given."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from so101.config import load_config
from so101.datasets.units import load_calibration
from so101.robot.base import CalibrationError
from so101.robot.calibration import HALF_TURN, ArmCalibration, MotorCalibration, RangeRecorder, homing_offset
from so101.robot.feetech_bus import FeetechBus
from so101.robot.virtual import VirtualBus

ROBOT = load_config().robot
REAL = sorted((Path(__file__).parents[2].parent / "shared/data/calibration").glob("arm0*.json")) + sorted(
    (Path(__file__).parents[2].parent / "shared/data/calibration").glob("arm1*.json")
)


@pytest.fixture
def bus():
    config = load_config(overrides=["robot.bus.reply_timeout_ms=100"])  # a busy machine answers late
    with VirtualBus(config, pacing=False, real_time=False, reply_delay_s=0.0) as virtual:
        opened = FeetechBus(virtual.port, config.robot.bus)
        opened.open()
        opened.virtual = virtual
        yield opened
        opened.close()


@pytest.mark.skipif(not REAL, reason="no real calibration files here")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_real_files_are_written_as_lerobot_wrote_them(path, tmp_path):
    calibration = ArmCalibration.load(path, ROBOT)
    calibration.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes().rstrip(b"\n")  # an editor added it to two files
    units, known = calibration.units(ROBOT), load_calibration(path, ROBOT)
    assert all(
        np.array_equal(getattr(units, name), getattr(known, name)) for name in ("range_min", "range_max", "sign")
    )


@pytest.mark.skipif(not REAL, reason="no real calibration files here")
@pytest.mark.parametrize("path", REAL[:4], ids=lambda path: path.stem)
def test_servos_keep_real_calibrations_without_power(path, bus):
    calibration = ArmCalibration.load(path, ROBOT)
    calibration.write_to_servos(bus)
    bus.virtual.power_cycle()
    assert calibration.differences(ArmCalibration.of_servos(bus, ROBOT)) == []
    assert all(bus.read(servo, "lock") == 1 for servo in ROBOT.bus.ids)


def test_nothing_is_written_under_torque(bus):
    bus.write(3, "torque_enable", 1)
    held = ArmCalibration.of_servos(bus, ROBOT)
    with pytest.raises(CalibrationError, match=r"torque is on \(elbow_flex\): the arm would jump"):
        bus.virtual.calibration.write_to_servos(bus)
    assert ArmCalibration.of_servos(bus, ROBOT) == held


def test_an_older_file_is_kept(tmp_path, bus):
    path = tmp_path / "arm.json"
    path.write_text("{}")
    backup = bus.virtual.calibration.write(path, now_s=0)
    assert backup.read_text() == "{}" and backup.name.startswith("arm.before-19")
    assert ArmCalibration.load(path, ROBOT).differences(bus.virtual.calibration) == []
    assert bus.virtual.calibration.write(tmp_path / "new.json") is None


def test_differences_name_joint_number_and_both_values(bus):
    held = ArmCalibration.of_servos(bus, ROBOT)
    changed = {**held.motors, "gripper": MotorCalibration(**{**vars(held.motors["gripper"]), "range_min": 7})}
    (difference,) = ArmCalibration(changed, "here").differences(held)
    assert difference.startswith("gripper range_min: 7 in here, ") and bus.port in difference


@given(st.integers(0, 4095), st.integers(-2047, 2047))
def test_the_homing_offset_makes_the_middle_pose_half_a_turn(encoder, former):
    reads = (encoder - former) % 4096
    offset = homing_offset(reads, former)
    assert -2047 <= offset <= 2047
    assert min((encoder - offset - HALF_TURN) % 4096, (HALF_TURN - encoder + offset) % 4096) <= 1


def test_ranges_are_the_ends_that_were_visited():
    recorder = RangeRecorder(["a", "b"])
    for a in (2000, 900, 2000, 3100, 2000):
        recorder.add({"a": a, "b": 2047})
    assert (recorder.lowest["a"], recorder.highest["a"]) == (900, 3100)
    assert recorder.faults(100) == ["b moved by 0 ticks only"]


def test_a_joint_that_goes_over_the_end_of_its_encoder_is_told():
    recorder = RangeRecorder(["a"])
    recorder.add({"a": 4090})
    with pytest.raises(CalibrationError, match="from 4090 to 5 ticks, over the end"):
        recorder.add({"a": 5})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"homing_offset": "x"}, "elbow_flex: homing_offset is 'x'"),
        ({"range_min": 4000, "range_max": 10}, "elbow_flex"),
    ],
)
def test_faulty_files_say_what_is_wrong(change, text, tmp_path, bus):
    content = json.loads(bus.virtual.calibration.text())
    content["elbow_flex"] |= change
    (tmp_path / "bad.json").write_text(json.dumps(content))
    with pytest.raises(CalibrationError, match=text):
        ArmCalibration.load(tmp_path / "bad.json", ROBOT)
