"""Servo ticks to the joints of a model: laws on every calibration, numbers of one real arm, error texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from so101.config import load_config
from so101.config.reach import TickMapConfig
from so101.datasets.units import Calibration, load_calibration, ticks_to_rad
from so101.errors import ConfigError
from so101.robot.base import CalibrationError
from so101.robot.tick_map import TickMap

CONFIG = load_config()
ROBOT, NOMINAL = CONFIG.robot, CONFIG.deploy.reach.tick_map
LOWER = np.array([joint.lower_rad for joint in ROBOT.joints])
UPPER = np.array([joint.upper_rad for joint in ROBOT.joints])
REAL = [
    path
    for path in sorted((Path(__file__).parents[2].parent / "shared/data/calibration").glob("arm*.json"))
    if path.stem not in ("arm22_so100", "arm23_so100")  # LeRobot's old list format
]

# One real follower; ticks and the joints that others' program gives for them, in rad.
RANGES = [(592, 3317), (816, 3236), (927, 3130), (875, 3212), (0, 4095), (2030, 3513)]
GOLDEN = [
    [(592, -2.090559213927), (1954, -0.000767177693), (3317, 2.090559213927), (1500, -0.697364523105)],
    [(816, -1.856570017506), (2026, 0.0), (3236, 1.856570017506), (1622, -0.619879576093)],
    [(927, -1.690092458085), (2028, -0.000767177693), (3130, 1.690092458085), (1661, -0.563875604490)],
    [(875, -1.792894268972), (2043, -0.000767177693), (3212, 1.792894268972), (1654, -0.597631422991)],
    [(0, -np.pi), (2047, -0.000767177693), (4095, np.pi), (1365, -1.047197551197)],
    [(2030, -0.174532925199), (2771, 0.784750873385), (3513, 1.745329251994), (2524, 0.464989607190)],
]


def calibration(ranges=RANGES) -> Calibration:
    low, high = np.array(ranges, float).T
    return Calibration(low, high, np.ones(6), "a test")


def tick_map(ranges=RANGES, **changes) -> TickMap:
    return TickMap(ROBOT, calibration(ranges), TickMapConfig(**{**NOMINAL.model_dump(), **changes}))


REFERENCE = tick_map()
JOINT_RANGES = st.lists(
    st.tuples(st.integers(0, 1900), st.integers(2100, 4095)), min_size=6, max_size=6
)  # a swept joint


@pytest.mark.parametrize("joint", range(6), ids=ROBOT.joint_names)
def test_the_numbers_of_a_real_arm(joint):
    for ticks, rad in GOLDEN[joint]:
        row = np.full(6, ticks)
        tolerance = 1e-12 if joint < 5 else 5e-6
        assert REFERENCE.unclamped(row)[joint] == pytest.approx(rad, abs=tolerance)
        assert REFERENCE.clamped(row)[joint] == pytest.approx(np.clip(rad, LOWER[joint], UPPER[joint]), abs=5e-6)
        assert REFERENCE.ticks(REFERENCE.unclamped(row))[joint] == ticks


def test_it_is_the_map_of_the_driver():
    ticks = np.array([1500, 900, 3000, 2047, 4000, 2100])
    assert (REFERENCE.unclamped(ticks) == ticks_to_rad(ticks, calibration(), ROBOT)).all()
    assert REFERENCE.departures() == []


def test_which_joints_of_the_real_arm_go_beyond_the_model():
    report = REFERENCE.range_report()
    beyond = {each.joint: (each.below_rad, each.above_rad) for each in report}
    for joint in ("shoulder_pan", "shoulder_lift", "wrist_flex"):
        assert min(beyond[joint]) > 0.05
    assert beyond["elbow_flex"] == pytest.approx((9.2e-5, 9.2e-5), abs=1e-6)
    assert beyond["wrist_roll"][0] > 0.3 and beyond["wrist_roll"][1] > 0.2
    assert beyond["gripper"] == (0.0, 0.0)
    assert [each.joint for each in report if each.continuous] == ["wrist_roll"]
    assert report[0].gap_rad == pytest.approx(2 * (2.090559213927 - 1.91986), abs=1e-9)
    assert "whole turn" in report[4].text() and report[0].text().endswith("gap +19.6 deg")


@given(JOINT_RANGES, st.integers(0, 2**32 - 1))
def test_ticks_come_back_and_order_is_kept(ranges, seed):
    made = tick_map(ranges)
    ticks = np.sort(np.random.default_rng(seed).integers(-500, 4600, (20, 6)), axis=0)  # also outside of the range
    joints = made.unclamped(ticks)
    assert (made.ticks(joints) == ticks).all()
    assert (np.diff(joints, axis=0) >= 0).all() and (np.diff(joints, axis=0) > 0)[np.diff(ticks, axis=0) > 0].all()
    inside = made.clamped(ticks)
    assert (inside >= LOWER).all() and (inside <= UPPER).all()
    assert np.abs(np.abs(joints - inside) - made.overshoot(ticks)).max() <= 1e-5
    assert made.round_trip_error_rad([0.25, 0.5, 0.75]) <= 1e-9


@given(JOINT_RANGES)
def test_the_middle_is_zero_and_the_jaw_ends_at_its_limits(ranges):
    low, high = np.array(ranges, float).T
    made = tick_map(ranges)
    assert np.abs(made.unclamped((low + high) / 2)[:5]).max() < 1e-9
    assert made.unclamped(low)[5] == pytest.approx(LOWER[5], abs=5e-6)
    assert made.unclamped(high)[5] == pytest.approx(UPPER[5], abs=5e-6)
    assert made.overshoot(low)[5] == made.overshoot(high)[5] == 0


@given(JOINT_RANGES, st.integers(0, 2**32 - 1))
def test_a_mirrored_joint_turns_the_other_way_and_a_mirrored_jaw_opens_where_it_closed(ranges, seed):
    ticks = np.random.default_rng(seed).integers(0, 4095, 6)
    plain, mirrored = tick_map(ranges), tick_map(ranges, sign=[-1] * 6)
    assert np.abs(plain.unclamped(ticks)[:5] + mirrored.unclamped(ticks)[:5]).max() < 1e-9
    ends = np.radians([-10.0, 100.0]).sum()
    assert plain.unclamped(ticks)[5] + mirrored.unclamped(ticks)[5] == pytest.approx(ends)
    assert (mirrored.ticks(mirrored.unclamped(ticks)) == ticks).all()


def test_an_offset_moves_body_joints_and_speeds_follow_the_sign():
    offset = [0.1, -0.2, 0.3, 0.0, 0.05, 0.0]
    moved = tick_map(offset_rad=offset, sign=[1, -1, 1, 1, 1, 1])
    ticks = np.array([1500, 900, 3000, 2047, 4000, 2100])
    assert moved.unclamped(ticks) - REFERENCE.unclamped(ticks) * [1, -1, 1, 1, 1, 1] == pytest.approx(offset)
    assert moved.speeds(np.ones(6)) == pytest.approx([1, -1, 1, 1, 1, 1])
    driver = np.array([0.3, 0.2, -0.1, 0.4, 0.5, 0.6])
    assert moved.to_joints(moved.of_joints(driver)) == pytest.approx(driver)
    assert moved.departures() == [
        "shoulder_lift: mirrored (sign -1)",
        "shoulder_pan: zero moved by +5.73 deg",
        "shoulder_lift: zero moved by -11.46 deg",
        "elbow_flex: zero moved by +17.19 deg",
        "wrist_roll: zero moved by +2.86 deg",
    ]


def test_a_jaw_of_another_span_and_4096_ticks():
    """The zeros and jaw that somebody measured on one follower: a hinge of 130 degrees."""
    wide = tick_map(jaw_span_rad=[-0.16147, -0.16147 + 2.27698], ticks_per_turn=4096)
    assert wide.unclamped(np.full(6, 2030))[5] == pytest.approx(-0.16147)
    assert wide.unclamped(np.full(6, 3513))[5] == pytest.approx(2.11551)
    assert wide.overshoot(np.full(6, 3513))[5] == pytest.approx(2.11551 - UPPER[5])
    assert wide.unclamped(np.full(6, 1500))[0] == pytest.approx(-0.697364523105 * 4095 / 4096)
    assert len(wide.departures()) == 2


def test_a_goal_stays_near_and_in_the_calibrated_range():
    present = REFERENCE.unclamped(np.array([1954, 2026, 2028, 2043, 2047, 2771]))
    far = present + [0.01, 1.0, -1.0, 0.0, 3.0, -1.0]
    near, shortened = REFERENCE.nearby(far, present, 60)
    assert shortened
    assert REFERENCE.ticks(near).tolist() == [1961, 2086, 1968, 2043, 2107, 2711]
    near, shortened = REFERENCE.nearby(far, present, 4095)
    assert not shortened  # only the range held it
    assert REFERENCE.ticks(near)[5] == 2030 and REFERENCE.ticks(near)[4] == 4002
    outside = REFERENCE.unclamped(np.array([400, 2026, 2028, 2043, 2047, 2771]))
    near, _ = REFERENCE.nearby(outside, outside, 60)
    assert REFERENCE.ticks(near)[0] == 592


@pytest.mark.skipif(not REAL, reason="no real calibration files here")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_on_real_calibrations(path):
    loaded = load_calibration(path, ROBOT)
    made = TickMap(ROBOT, loaded, NOMINAL)
    assert made.round_trip_error_rad(CONFIG.deploy.reach.map_fractions) < 1e-9
    mid = (loaded.range_min + loaded.range_max) / 2
    assert np.abs(made.unclamped(mid)[:5]).max() < 1e-9
    grid = np.linspace(loaded.range_min, loaded.range_max, 50).round()
    assert (made.ticks(made.unclamped(grid)) == grid).all()
    assert (np.diff(made.unclamped(grid), axis=0) > 0).all()
    report = made.range_report()
    assert (report[5].below_rad, report[5].above_rad) == (0.0, 0.0)
    assert all(each.continuous for each in report if each.joint == "wrist_roll" and loaded.range_max[4] == 4095)
    for each, low, high in zip(report, loaded.range_min, loaded.range_max, strict=True):
        if each.joint != "gripper":
            assert each.real_rad[1] - each.real_rad[0] == pytest.approx((high - low) * 2 * np.pi / 4095)


def test_the_data_of_one_arm_are_refused_on_another():
    mids = [1954.5, 2026.0, 2028.5, 2043.5, 2047.5, 2771.5]
    assert tick_map(offset_rad=[0.1, 0, 0, 0, 0, 0], fits_mid_ticks=mids).departures()
    with pytest.raises(
        CalibrationError, match=r"belongs to an arm with its middles at .* a test has .*calibrated anew"
    ):
        tick_map(fits_mid_ticks=[1987, 2064, 1896.5, 2079, 2047, 2773])


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("offset_rad=[0,0,0,0,0,0.1]", "the jaw goes by the fraction of its range and takes no offset"),
        ("jaw_span_rad=[1.7,-0.1]", r"jaw_span_rad is \[1.7, -0.1\]; it must be \[closed, open\]"),
        ("sign=[1,1,1,1,1,0]", "sign.5"),
        ("ticks_per_turn=4000", "ticks_per_turn is 4000"),
        ("offset_rad=[0,0]", "offset_rad is"),
    ],
)
def test_a_wrong_setting_is_told(setting, told):
    with pytest.raises(ConfigError, match=told):
        load_config(overrides=[f"deploy.reach.tick_map.{setting}"])
