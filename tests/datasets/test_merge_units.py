"""Joints of a source in the units of a merge: what is known of its arm decides, and nothing is guessed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.merge_units import converter, find_units, to_rad
from so101.datasets.recordings import Recording
from so101.datasets.units import Calibration, load_calibration, make_units, rad_to_lerobot
from so101.errors import DataError

CONFIG = load_config()
NAMES = CONFIG.robot.joint_names
REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"
ARM = Calibration(np.array([800.0] * 6), np.array([3300.0, 3000, 3100, 3200, 3000, 2200]), np.ones(6))


@pytest.fixture
def calibration(tmp_path):
    joints = {
        name: {"id": 1, "drive_mode": 0, "homing_offset": 0, "range_min": int(low), "range_max": int(high)}
        for name, low, high in zip(NAMES, ARM.range_min, ARM.range_max, strict=True)
    }
    (tmp_path / "arm.json").write_text(json.dumps(joints))
    return tmp_path / "arm.json"


def motion(seed=0, frames=400) -> np.ndarray:
    """(T, 6) rad, on servo ticks, wide enough to tell units apart."""
    t = np.linspace(0, 6, frames)[:, None]
    phase = np.random.default_rng(seed).uniform(0, 6, 6)
    q = np.array([0.9, 0.8, 0.8, 0.9, 1.2, 0.35]) * np.sin(t + phase)
    q[:, 5] += 0.5
    tick = 2 * np.pi / 4095
    return np.round(q / tick) * tick


def recording(values) -> Recording:
    return Recording("set/episode_000000", 30.0, tuple(NAMES), values + 0, values, has_action=False)


def marker(kind) -> dict:
    units = make_units(kind, CONFIG.robot)
    return {"units": {"body": kind, "scale_per_rad": units.scale.tolist(), "offset": units.offset.tolist()}}


@pytest.mark.parametrize("kind", ["degrees", "normalized"])
def test_our_marker_says_units_and_the_way_to_radians(kind):
    q = motion()
    values = rad_to_lerobot(q, make_units(kind, CONFIG.robot))
    units = find_units(marker(kind), [], CONFIG)
    assert units.unit == {"degrees": "degrees", "normalized": "normalised"}[kind]
    np.testing.assert_allclose(to_rad(units, CONFIG)(0, values), q, atol=1e-12)
    assert converter(units, kind, CONFIG) is None


def test_between_our_own_units_there_and_back():
    values = rad_to_lerobot(motion(), make_units("degrees", CONFIG.robot))
    there = converter(find_units(marker("degrees"), [], CONFIG), "normalized", CONFIG)(0, values)
    back = converter(find_units(marker("normalized"), [], CONFIG), "degrees", CONFIG)(0, there)
    inside = (np.abs(there[:, :5]) < 100).all(1)
    assert inside.mean() > 0.9
    np.testing.assert_allclose(back[inside], values[inside], atol=1e-10)


@pytest.mark.parametrize("declared", ["normalised", "pseudo_radians"])
def test_a_calibration_turns_shares_into_degrees_of_its_arm(calibration, declared):
    """100 of a range of 2500 ticks is 1250 of 4095 ticks a turn: 109.9 degrees."""
    unit = make_units({"normalised": "normalized"}.get(declared, declared), CONFIG.robot, ARM)
    values = rad_to_lerobot(motion(), unit)
    units = find_units({}, [recording(values)], CONFIG, declared)
    degrees = converter(units, "degrees", CONFIG, calibration)(0, values)
    np.testing.assert_allclose(degrees[:, :5], np.degrees(motion())[:, :5], atol=1e-9)
    full = values[:1] * 0
    full[0, 0] = unit.upper[0]
    assert converter(units, "degrees", CONFIG, calibration)(0, full)[0, 0] == pytest.approx(1250 / 4095 * 360)


@pytest.mark.parametrize("declared", ["normalised", "pseudo_radians"])
def test_the_jaw_stays_the_share_it_is(calibration, declared):
    values = np.zeros((3, 6))
    values[:, 5] = np.array([0, 0.4, 1]) * (100 if declared == "normalised" else 1.7)
    units = find_units(
        {}, [recording(rad_to_lerobot(motion(), make_units("radians", CONFIG.robot)))], CONFIG, "radians"
    )
    units = type(units)(declared, None, units.decisions)
    np.testing.assert_allclose(converter(units, "degrees", CONFIG, calibration)(0, values)[:, 5], [0, 40, 100])


def test_radians_become_degrees_without_a_calibration():
    units = find_units({}, [recording(motion())], CONFIG, "radians")
    degrees = converter(units, "degrees", CONFIG)(0, motion())
    np.testing.assert_allclose(degrees[:, :5], np.degrees(motion())[:, :5])
    assert degrees[:, 5].min() >= 0 and degrees[:, 5].max() <= 100


def test_what_nobody_knows_is_refused(calibration):
    still = np.tile(rad_to_lerobot(motion(), make_units("normalized", CONFIG.robot, ARM))[:1], (50, 1))
    units = find_units({}, [recording(still)], CONFIG, "normalised")
    with pytest.raises(DataError, match="share of each joint's calibrated range .*shoulder_pan, .* is not known"):
        converter(units, "degrees", CONFIG)
    assert to_rad(units, CONFIG, nominal=True)(0, still).shape == (50, 6)
    degrees = find_units({}, [recording(motion())], CONFIG, "radians")
    with pytest.raises(DataError, match="only the arm's calibration says"):
        converter(degrees, "normalized", CONFIG)
    assert np.abs(converter(degrees, "normalized", CONFIG, calibration)(0, motion())[:, :5]).max() <= 100


@pytest.mark.parametrize(
    "units",
    [3, {}, *({"body": body, "scale_per_rad": scale, "offset": [0] * 6} for body, scale in (
        ("furlongs", [1] * 6), ("degrees", [1]), ("degrees", "x"), ("degrees", None), ("degrees", [0] * 6)))],
)  # fmt: skip
def test_a_marker_that_is_damaged_counts_for_nothing(units):
    found = find_units({"units": units}, [recording(motion())], CONFIG)
    assert (found.unit, found.marked) == ("radians", None)


@pytest.mark.skipif(not (REAL / "calibration").is_dir(), reason="shared data are not there")
def test_ranges_seen_in_numbers_and_a_calibration_file_give_the_same_degrees():
    """Values of a real arm's calibration, from its servo ticks: the numbers alone show its ranges."""
    file = REAL / "calibration" / "arm01_follower.json"
    arm = load_calibration(file, CONFIG.robot)
    ticks = np.round(2048 + motion(1) / (2 * np.pi) * 4096)
    middle, half = (arm.range_min + arm.range_max) / 2, (arm.range_max - arm.range_min) / 2
    values = ((ticks - middle) / half * 100).clip(-100, 100)
    values[:, 5] = ((ticks[:, 5] - arm.range_min[5]) / (2 * half[5]) * 100).clip(0, 100)
    values = values.astype(np.float32).astype(float)
    units = find_units({}, [recording(values)], CONFIG)
    assert units.unit == "normalised"
    seen = converter(units, "degrees", CONFIG)(0, values)
    told = converter(units, "degrees", CONFIG, file)(0, values)
    np.testing.assert_allclose(seen, told, atol=1e-9)
