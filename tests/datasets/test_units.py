"""Units: inverse laws, the published tick table, LeRobot's own formulas, error texts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from so101.config.base import read_yaml, validate
from so101.config.robot import RobotConfig
from so101.datasets.units import (
    Calibration,
    lerobot_to_rad,
    load_calibration,
    make_units,
    rad_to_lerobot,
    rad_to_ticks,
    ticks_to_rad,
)
from so101.errors import DataError

REPOSITORY = Path(__file__).resolve().parents[2]
CALIBRATIONS = REPOSITORY.parent / "shared" / "data" / "calibration"
KINDS = ("degrees", "normalized", "radians", "pseudo_radians")

RANGES = [(592, 3317), (816, 3236), (927, 3130), (875, 3212), (0, 4095), (2030, 3513)]
# Reference table of the mapping: joint -> (ticks, rad) pairs, measured by others on one follower.
GOLDENS = [
    [(592, -2.090559213927), (1954, -0.000767177693), (3317, 2.090559213927), (1500, -0.697364523105)],
    [(816, -1.856570017506), (2026, 0.0), (3236, 1.856570017506), (1622, -0.619879576093)],
    [(927, -1.690092458085), (2028, -0.000767177693), (3130, 1.690092458085), (1661, -0.563875604490)],
    [(875, -1.792894268972), (2043, -0.000767177693), (3212, 1.792894268972), (1654, -0.597631422991)],
    [(0, -np.pi), (2047, -0.000767177693), (4095, np.pi), (1365, -1.047197551197)],
    [(2030, -0.174532925199), (2771, 0.784750873385), (3513, 1.745329251994), (2524, 0.464989607190)],
]


@pytest.fixture(scope="module")
def robot() -> RobotConfig:
    return validate(RobotConfig, read_yaml(REPOSITORY / "configs" / "robot.yaml"), "robot.yaml")


@pytest.fixture
def calibration() -> Calibration:
    low, high = np.array(RANGES, float).T
    return Calibration(low, high, np.ones(6))


def random_q(rows: int = 200) -> np.ndarray:
    return np.random.default_rng(0).uniform(-3, 3, (rows, 6))


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(robot, calibration, kind, calibrated):
    units = make_units(kind, robot, calibration if calibrated else None)
    q = random_q()
    np.testing.assert_allclose(lerobot_to_rad(rad_to_lerobot(q, units), units), q, atol=1e-13)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_every_tick_survives_the_round_trip(robot, calibration, sign):
    calibration = Calibration(calibration.range_min, calibration.range_max, np.full(6, sign))
    ticks = np.repeat(np.arange(4096)[:, None], 6, axis=1)
    q = ticks_to_rad(ticks, calibration, robot)
    assert np.all(np.sign(np.diff(q, axis=0)) == sign)
    np.testing.assert_array_equal(rad_to_ticks(q, calibration, robot), ticks)


def test_ticks_of_the_reference_table(robot, calibration):
    table = np.array(GOLDENS)  # (6, 4, 2)
    q = ticks_to_rad(table[:, :, 0].T, calibration, robot)
    np.testing.assert_allclose(q, table[:, :, 1].T, atol=1e-12)


def test_agrees_with_the_formulas_of_lerobot(robot, calibration):
    ticks = np.array([1500, 1622, 1661, 1654, 1365, 2524])
    low, high = calibration.range_min, calibration.range_max
    q = ticks_to_rad(ticks, calibration, robot)
    degrees = rad_to_lerobot(q, make_units("degrees", robot))
    normalized = rad_to_lerobot(q, make_units("normalized", robot, calibration))
    np.testing.assert_allclose(degrees[:5], ((ticks - (low + high) / 2) * 360 / 4095)[:5], atol=1e-12)
    np.testing.assert_allclose(normalized[:5], ((ticks - low) / (high - low) * 200 - 100)[:5], atol=1e-12)
    for values in (degrees, normalized):
        np.testing.assert_allclose(values[5], (ticks[5] - low[5]) / (high[5] - low[5]) * 100, atol=1e-12)


def test_nominal_spans_are_the_ends_of_the_normalised_range(robot):
    units = make_units("normalized", robot)
    lower = np.radians([joint.nominal_lower_deg for joint in robot.joints])
    upper = np.radians([joint.nominal_upper_deg for joint in robot.joints])
    np.testing.assert_allclose(rad_to_lerobot(lower, units), [-100] * 5 + [0], atol=1e-12)
    np.testing.assert_allclose(rad_to_lerobot(upper, units), [100] * 6, atol=1e-12)


def test_worked_numbers(robot):
    q = np.radians([90.0, -45.0, 0.0, 10.0, -160.0, 45.0])
    np.testing.assert_allclose(rad_to_lerobot(q, make_units("degrees", robot)), [90, -45, 0, 10, -160, 50], atol=1e-12)
    # elbow: nominal -100..90 deg, so 0 deg is 5 / 95 of the half span above its middle
    expected = [90 / 1.1, -45, 100 * 5 / 95, 10 / 0.95, -100, 50]
    np.testing.assert_allclose(rad_to_lerobot(q, make_units("normalized", robot)), expected, atol=1e-12)
    trap = np.array(expected) / 100 * np.array([np.pi] * 5 + [1.7])
    np.testing.assert_allclose(rad_to_lerobot(q, make_units("pseudo_radians", robot)), trap, atol=1e-12)


def test_clip_is_what_lerobot_would_report(robot):
    values = np.array([250.0, -101.0, 99.0, 0.0, 100.5, -3.0])
    np.testing.assert_array_equal(make_units("normalized", robot).clip(values), [100, -100, 99, 0, 100, 0])
    np.testing.assert_array_equal(make_units("degrees", robot).clip(values), [250, -101, 99, 0, 100.5, 0])


def test_reads_a_calibration_file(robot, tmp_path):
    joints = {
        name: {"id": i + 1, "drive_mode": int(i == 2), "homing_offset": 7, "range_min": low, "range_max": high}
        for i, (name, (low, high)) in enumerate(zip(robot.joint_names, RANGES, strict=True))
    }
    path = tmp_path / "arm.json"
    path.write_text(json.dumps(dict(reversed(joints.items()))))  # order in the file does not matter
    calibration = load_calibration(path, robot)
    np.testing.assert_array_equal(np.stack([calibration.range_min, calibration.range_max], 1), RANGES)
    np.testing.assert_array_equal(calibration.sign, [1, 1, -1, 1, 1, 1])


@pytest.mark.skipif(not CALIBRATIONS.is_dir(), reason="real calibration files are not here")
def test_real_calibration_files(robot):
    for path in sorted(CALIBRATIONS.glob("*.json")):
        if "calib_mode" in path.read_text():
            with pytest.raises(DataError, match="old list format"):
                load_calibration(path, robot)
        else:
            calibration = load_calibration(path, robot)
            ends = ticks_to_rad(np.stack([calibration.range_min, calibration.range_max]), calibration, robot)
            np.testing.assert_allclose(ends[0, :5], -ends[1, :5], atol=1e-12)
            np.testing.assert_allclose(ends[:, 5], np.radians([-10, 100]), atol=1e-12)


def test_bad_calibration_files_name_every_fault(robot, tmp_path):
    path = tmp_path / "arm.json"
    path.write_text("{")
    with pytest.raises(DataError, match="arm.json: cannot be read"):
        load_calibration(path, robot)
    joints = {name: {"range_min": 10, "range_max": 2000} for name in robot.joint_names[1:]}
    joints["elbow_flex"] = {"range_min": 3000, "range_max": 2000}
    joints["gripper"] = {"range_min": 1.5, "range_max": 2000}
    path.write_text(json.dumps(joints))
    with pytest.raises(DataError) as caught:
        load_calibration(path, robot)
    for text in ("shoulder_pan is missing", "elbow_flex: range [3000, 2000]", "gripper: range_min and range_max"):
        assert text in str(caught.value)


def test_unknown_units(robot):
    with pytest.raises(ValueError, match="unknown units 'turns'; known: degrees"):
        make_units("turns", robot)
