"""Units of recordings: never wrong on made-up arms, right on all real data, and questions that can be answered."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from so101.config import load_config
from so101.datasets.recordings import Recording, read_recording
from so101.datasets.unit_detection import UnitDecision, clamped, detect_recording_units, detect_units, to_radians
from so101.errors import DataError

CONFIG = load_config()
JOINTS = CONFIG.robot.joint_names
REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"
needs_real_data = pytest.mark.skipif(not REAL.is_dir(), reason="the real recordings are not here")
UNITS = ("degrees", "normalised", "radians", "pseudo_radians")


class Arm:
    """An arm with a calibration, whose encoder counts whole ticks, and recorders for every unit."""

    def __init__(self, spans, middles):
        self.spans = np.asarray(spans)
        self.low = np.floor(np.asarray(middles) - self.spans / 2)  # both ends of a range are whole ticks
        self.middles = self.low + self.spans / 2

    def ticks(self, q):
        """(T, 6) whole ticks of angles q from the middle of each range; the jaw's from its closed end."""
        zero = np.append(self.middles[:5], self.low[5])
        return np.round(q * 4096 / (2 * np.pi) + zero)

    def record(self, q, unit, decimals=None, clamp=True):
        ticks = self.ticks(q)
        fraction = (ticks - self.low) / self.spans
        if clamp:
            fraction = np.clip(fraction, 0, 1)
        if unit == "normalised":
            values = np.column_stack([fraction[:, :5] * 200 - 100, fraction[:, 5] * 100])
        elif unit == "pseudo_radians":
            values = np.column_stack([(fraction[:, :5] * 2 - 1) * np.pi, fraction[:, 5] * 1.7])
        else:
            turn = 360 / 4095 if unit == "degrees" else 2 * np.pi / 4096
            values = (ticks - self.middles) * turn
            values[:, 5] = fraction[:, 5] * 100 if unit == "degrees" else (ticks - self.low)[:, 5] * turn - 0.17
        return values.astype(np.float32) if decimals is None else np.round(values, decimals)


def motion(rng, frames=300, size=1.0):
    """(T, 6) smooth joint angles, rad, within every joint's reach."""
    t = np.linspace(0, 2 * np.pi, frames)[:, None]
    phase, rate = rng.uniform(0, 6, 6), rng.uniform(0.5, 2, 6)
    q = np.array([0.9, 0.9, 0.9, 0.9, 0.9, 0.3]) * size * np.sin(rate * t + phase)
    q[:, 5] += 0.4
    return q


spans = st.tuples(*[st.integers(1600, 2700)] * 4, st.sampled_from([3835, 4095, 3500]), st.integers(900, 1550)).map(
    lambda s: [*s[:4], s[4], s[5]]
)


def decide(values, joints=JOINTS, **more):
    return detect_units(values, joints, CONFIG, **more)


@settings(max_examples=60, deadline=None)
@given(spans, st.integers(0, 10**6), st.sampled_from(UNITS), st.sampled_from([1.0, 0.5, 0.1, 0.03, 0.01]))
def test_never_a_wrong_unit_for_a_real_encoder(spans, seed, unit, size):
    rng = np.random.default_rng(seed)
    arm = Arm(spans, 2047.5 + rng.integers(-100, 100, 6) / 2)
    try:
        decision = decide(arm.record(motion(rng, size=size), unit))
    except DataError:
        assert size < 1.0 or unit == "degrees"  # a small motion may be refused, a large one is decided
        return
    assert decision.unit == unit


@settings(max_examples=30, deadline=None)
@given(spans, st.integers(0, 10**6), st.sampled_from(["normalised", "pseudo_radians"]))
def test_calibrated_ranges_are_read_off_exactly(spans, seed, unit):
    rng = np.random.default_rng(seed)
    arm = Arm(spans, np.full(6, 2047))
    decision = decide(arm.record(motion(rng), unit))
    assert all(found in (None, span) for found, span in zip(decision.spans_ticks, arm.spans, strict=True))
    assert sum(found is not None for found in decision.spans_ticks) >= 4


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1.0, 0.2, 0.02]))
def test_smooth_numbers_without_ticks_are_refused_or_right(seed, size):
    """Filtered or simulated radians: nothing tells them from pseudo-radians, so the question comes back."""
    q = motion(np.random.default_rng(seed), size=size) + np.random.default_rng(seed).normal(0, 1e-3, (300, 6))
    with pytest.raises(DataError, match=r"which is it\? Answer with --set teleop\.recordings\.units="):
        decide(q)


@pytest.mark.parametrize("unit", UNITS)
def test_a_resting_arm_is_refused(unit):
    arm = Arm([2549, 2303, 2205, 2287, 3835, 1484], np.full(6, 2047.5))
    values = arm.record(np.full((200, 6), 0.01) + np.random.default_rng(0).normal(0, 0.001, (200, 6)), unit)
    with pytest.raises(DataError, match="cannot tell whether"):
        decide(values)


def test_values_beyond_100_are_degrees_even_without_ticks():
    q = motion(np.random.default_rng(1))
    q[:, 4] *= 2.5
    values = np.degrees(q) + np.random.default_rng(2).normal(0, 0.01, q.shape)
    values[:, 5] = np.clip(values[:, 5], 0, 100)
    assert decide(values).unit == "degrees"


def test_the_clamp_alone_is_evidence_for_normalised():
    rng = np.random.default_rng(3)
    values = np.clip(np.degrees(motion(rng)) * 1.3 + rng.normal(0, 0.01, (300, 6)), -100, 100)
    values[:, 5] = np.clip(values[:, 5], 0, 100)
    values[:40, 2] = 100.0
    decision = decide(values)
    assert decision.unit == "normalised" and "the clamp of this unit" in " ".join(decision.evidence)


def test_files_with_few_decimals_are_still_read():
    rng = np.random.default_rng(4)
    arm = Arm([2549, 2303, 2205, 2287, 3835, 1484], np.full(6, 2047.5))
    assert decide(arm.record(motion(rng), "normalised", decimals=3)).unit == "normalised"
    assert decide(arm.record(motion(rng), "radians", decimals=5)).unit == "radians"


def test_declared_units_are_trusted_unless_impossible():
    q = motion(np.random.default_rng(5), size=0.3) + np.random.default_rng(6).normal(0, 1e-3, (300, 6))
    assert decide(q, declared="radians").unit == "radians"
    with pytest.raises(DataError, match="declared as radians.*the joint turns 1.92 rad.*The numbers fit: "):
        decide(np.degrees(q), declared="radians")


def test_nothing_fits_is_said_with_the_evidence():
    with pytest.raises(DataError, match="fit no unit this program knows.*not degrees: shoulder_pan reaches"):
        decide(motion(np.random.default_rng(7)) * 1e4)


def recording(name, values, action=None):
    return Recording(name, 30.0, JOINTS, values if action is None else action, values, has_action=action is not None)


def test_a_silent_episode_follows_the_others_and_borrows_their_ranges():
    arm, rng = Arm([2549, 2304, 2206, 2288, 3836, 1484], np.full(6, 2048)), np.random.default_rng(8)
    moving = arm.record(motion(rng), "normalised")
    still_roll = motion(rng)
    still_roll[:, 4] = 0.3
    values = [moving, arm.record(still_roll, "normalised"), np.repeat(moving[:1], 50, axis=0)]
    decisions = detect_recording_units([recording(f"e{i}", v) for i, v in enumerate(values)], CONFIG)
    assert {d.unit for d in decisions} == {"normalised"}
    assert decisions[0].spans_ticks == decisions[1].spans_ticks
    assert "as the other episodes" in decisions[2].evidence[0]


def test_episodes_of_different_units_are_refused():
    arm, rng = Arm([2549, 2303, 2205, 2287, 3835, 1484], np.full(6, 2047.5)), np.random.default_rng(9)
    both = [recording(f"e{i}", arm.record(motion(rng), unit)) for i, unit in enumerate(("normalised", "radians"))]
    with pytest.raises(DataError, match="look like different units .*e0: normalised, e1: radians"):
        detect_recording_units(both, CONFIG)
    with pytest.raises(DataError, match="the measured joints look like normalised, the commands like radians"):
        detect_recording_units([recording("e", both[0].state, both[1].state)], CONFIG)


@pytest.mark.parametrize("unit", UNITS)
def test_to_radians_inverts_the_recorder(unit):
    arm, rng = Arm([2550, 2304, 2206, 2288, 3836, 1484], np.full(6, 2048)), np.random.default_rng(10)
    q = motion(rng)
    values = arm.record(q, unit).astype(float)
    found = to_radians(values, UnitDecision(unit, (), tuple(arm.spans)), CONFIG)
    nominal = [0.5 * (j.nominal_lower_deg + j.nominal_upper_deg) for j in CONFIG.robot.joints]
    zero = np.zeros(6) if unit in ("radians", "degrees") else np.radians(nominal)
    tolerance = 2 * np.pi / 4096  # one tick of rounding
    np.testing.assert_allclose(found[:, :5], (q + zero)[:, :5], atol=tolerance)
    lower = np.radians(CONFIG.robot.joints[5].nominal_lower_deg)
    offset = -0.17 if unit == "radians" else lower
    np.testing.assert_allclose(found[:, 5], q[:, 5] + offset, atol=tolerance)


def test_nominal_ranges_and_offsets_one_worked_number():
    values = np.array([[100.0, -100, 0, 50, 0, 100]])
    q = to_radians(values, UnitDecision("normalised", (), (None,) * 6), CONFIG, np.array([0, 0, 0.1, 0, 0, 0]))
    expected = np.radians([110, -100, -5, 47.5, 0, 100]) + [0, 0, 0.1, 0, 0, 0]
    np.testing.assert_allclose(q[0], expected, atol=1e-12)
    trap = np.append(values[0, :5] / 100 * np.pi, 1.7)[None]
    same = to_radians(trap, UnitDecision("pseudo_radians", (), (None,) * 6), CONFIG)
    np.testing.assert_allclose(same[0], np.radians([110, -100, -5, 47.5, 0, 100]), atol=1e-12)


def test_clamped_marks_the_ends():
    values = np.array([[100.0, 99.0, -100.0, 0, 0, 100.0]])
    assert clamped(values, UnitDecision("normalised", (), (None,) * 6)).tolist() == [[True, False, True, *[False] * 3]]
    assert not clamped(values, UnitDecision("degrees", (), (None,) * 6)).any()


@needs_real_data
def test_real_leader_recording_is_normalised():
    decisions = detect_recording_units(read_recording(REAL / "so101_record_test_4ep", CONFIG), CONFIG)
    assert {d.unit for d in decisions} == {"normalised"}
    assert {d.spans_ticks for d in decisions} == {(2549, 2303, 2205, 2287, 3835, 1484)}


@needs_real_data
def test_real_hand_moved_recordings_are_pseudo_radians_of_two_calibrations():
    decisions = detect_recording_units(read_recording(REAL / "so101_pickplace_100ep", CONFIG), CONFIG)
    assert {d.unit for d in decisions} == {"pseudo_radians"}
    first, second = (2512, 2402, 2208, 1870, 4095, 1484), (1631, 2154, 2196, 2212, 4095, 1501)
    assert [d.spans_ticks for d in decisions] == [first] * 50 + [second] * 50


@needs_real_data
def test_real_poses_are_normalised_with_the_range_of_their_calibration_file():
    poses = json.loads((REAL / "so100_poses/poses.json").read_text())
    joints = list(poses[0])
    decision = decide(np.array([[pose[joint] for joint in joints] for pose in poses]), joints)
    calibration = json.loads((REAL / "calibration/arm11_so100_follower.json").read_text())
    assert decision.unit == "normalised"
    for joint, span in zip(joints, decision.spans_ticks, strict=True):
        assert span in (None, calibration[joint]["range_max"] - calibration[joint]["range_min"])
    assert decision.spans_ticks[0] == 2321


@needs_real_data
def test_real_step_response_is_radians():
    with open(REAL / "so100_step_excerpt/shoulder_rotation_step_0p3rad.csv") as file:
        rows = list(csv.DictReader(file))
    measured = np.array([[float(row["pos_Shoulder_Rotation"])] for row in rows])
    assert decide(measured, ["shoulder_pan"]).unit == "radians"
