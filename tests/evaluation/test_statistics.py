"""Laws of the statistics, then worked numbers, then errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from so101.config.task import PlacementConfig
from so101.evaluation.statistics import (
    bin_counts,
    bin_indices,
    cause_table,
    heading_range,
    path_length,
    path_smoothness,
    source_usage,
    start_offset,
    summarise,
    trajectory_statistics,
    wilson_interval,
)
from so101.geometry import rotation_from_rotation_vector

from .factory import start_pose, world_base

counts = st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
paths = st.integers(0, 10_000).map(lambda seed: np.random.default_rng(seed).normal(size=(40, 3)).cumsum(axis=0))


@given(counts)
def test_wilson_holds_the_share_and_stays_in_range(case):
    successes, n = case
    low, high = wilson_interval(successes, n)
    assert 0 <= low <= successes / n <= high <= 1
    assert low < high


@given(counts)
def test_wilson_of_failures_mirrors_that_of_successes(case):
    successes, n = case
    low, high = wilson_interval(successes, n)
    mirrored = wilson_interval(n - successes, n)
    assert (1 - high, 1 - low) == pytest.approx(mirrored, abs=1e-12)


@given(counts, st.floats(0.5, 0.98))
def test_wilson_grows_with_confidence_and_shrinks_with_n(case, confidence):
    successes, n = case
    low, high = wilson_interval(successes, n, confidence)
    wide_low, wide_high = wilson_interval(successes, n, confidence + 0.01)
    assert wide_low <= low and high <= wide_high
    more_low, more_high = wilson_interval(4 * successes, 4 * n, confidence)
    assert more_high - more_low < high - low


def test_wilson_solves_its_equation():
    """The ends are the p with |share - p| = z sqrt(p (1 - p) / n)."""
    for end in wilson_interval(37, 50):
        assert abs(37 / 50 - end) == pytest.approx(1.959963984540054 * np.sqrt(end * (1 - end) / 50), rel=1e-9)


def test_wilson_worked_numbers():
    assert wilson_interval(8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert wilson_interval(0, 20)[0] == 0.0 and wilson_interval(20, 20)[1] == 1.0


@pytest.mark.parametrize(("successes", "n", "confidence"), [(5, 4, 0.95), (-1, 4, 0.95), (1, 4, 1.0), (1, 4, 95)])
def test_wilson_refuses(successes, n, confidence):
    with pytest.raises(ValueError, match="needs"):
        wilson_interval(successes, n, confidence)


@given(paths, st.tuples(*[st.floats(-3, 3)] * 6), st.floats(0.1, 10))
@settings(max_examples=40)
def test_path_measures_under_motion_and_scale(path, motion, scale):
    moved = scale * (path @ rotation_from_rotation_vector(np.array(motion[:3])).T + motion[3:])
    assert path_length(moved) == pytest.approx(scale * path_length(path))
    assert path_smoothness(moved) == pytest.approx(path_smoothness(path))
    assert path_length(path[::-1]) == pytest.approx(path_length(path))


def test_path_worked_numbers():
    line = np.linspace([0, 0, 0], [3.0, 4.0, 0], 11)
    assert path_length(line) == pytest.approx(5.0)
    assert path_smoothness(line) == pytest.approx(0.0, abs=1e-12)
    corner = np.array([[0, 0, 0], [1.0, 0, 0], [1.0, 1.0, 0]])
    assert path_smoothness(corner) == pytest.approx(np.sqrt(2) / 2)
    assert path_smoothness(np.ones((5, 3))) == 0.0 and path_length(np.ones((1, 3))) == 0.0


def test_trajectory_statistics_of_a_steady_turn(fk):
    """Pan alone at 0.5 rad/s: the hand draws an arc of radius r about the pan axis."""
    q = np.zeros((61, 6))
    q[:, 0] = np.linspace(0, 1.0, 61)
    result = trajectory_statistics(q, q, 30.0, fk)
    start, end = fk(q[[0, -1]])[:, :3, 3]
    radius = np.linalg.norm(end - start) / (2 * np.sin(0.5))
    assert result.path_length_m == pytest.approx(radius * 1.0, rel=1e-3)
    assert result.duration_s == pytest.approx(61 / 30)
    assert result.mean_joint_speed_rad_s == pytest.approx(0.5 / 5)  # over five joints
    assert result.peak_joint_speed_rad_s == pytest.approx(0.5)
    assert result.command_jerk_rad_s3 == pytest.approx(0.0, abs=1e-6)


def test_jerk_of_a_cubic(fk):
    time = np.arange(40) / 30
    targets = np.tile(time[:, None] ** 3 / 6, (1, 6))
    assert trajectory_statistics(np.zeros((40, 6)), targets, 30.0, fk).command_jerk_rad_s3 == pytest.approx(1.0)


def test_a_single_frame_has_statistics(fk):
    assert np.isfinite(trajectory_statistics(np.zeros((1, 6)), np.zeros((1, 6)), 30.0, fk)).all()


@pytest.mark.parametrize("name", ["vial", "rack"])
def test_start_offset_gives_back_what_was_drawn(config, name):
    rng = np.random.default_rng(3)
    placement = config.task.active.objects[name]
    upright = name == "vial"  # its x axis stands: roll is heading, and points down, so it turns the other way
    for _ in range(30):
        x, y, turn = rng.uniform(-0.05, 0.05, 2).tolist() + [rng.uniform(-1, 1)]
        draw = {"roll": turn} if upright else {"yaw": turn}
        pose = start_pose(config, name, x, y, **draw)
        expected = (x, y, -turn if upright else turn)
        assert start_offset(pose, placement, world_base(config)) == pytest.approx(expected, abs=1e-6)


def test_start_offset_turns_about_the_yaw_centre(config):
    """Turning about the centre of the object must not look like a shift."""
    placement = PlacementConfig(prop="rack", position_m=(0.2, 0.1, 0.0), yaw_center_m=(0.06, 0.06, 0.0))
    angle = 0.4
    cos, sin = np.cos(angle), np.sin(angle)
    center = np.array([0.2 + 0.06, 0.1 + 0.06])
    corner = center - np.array([[cos, -sin], [sin, cos]]) @ [0.06, 0.06]
    pose = np.array([*corner, 0.0, np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)])
    assert start_offset(pose, placement, np.eye(4)) == pytest.approx((0.0, 0.0, angle), abs=1e-12)


def test_heading_range(config):
    objects = config.task.tasks["vial_to_rack"].objects
    low, high = objects["vial"].roll_rad
    assert heading_range(objects["vial"]) == pytest.approx((-high, -low), abs=1e-6)
    assert heading_range(objects["rack"]) == objects["rack"].yaw_rad


def test_bins_count_everything_once():
    rng = np.random.default_rng(0)
    values, success = rng.uniform(-1.2, 1.2, 500), rng.random(500) < 0.3
    tries, wins = bin_counts(bin_indices(values, -1, 1, 4), success, (4,))
    assert tries.sum() == 500 and wins.sum() == success.sum()
    assert tries.tolist()[1] == ((values >= -0.5) & (values < 0)).sum()
    assert bin_indices(np.array([-1.0, -0.5, 0.999, 1.0]), -1, 1, 4).tolist() == [0, 1, 3, 3]
    assert bin_indices(np.array([3.0, 4.0]), 0, 0, 4).tolist() == [0, 0]


def test_source_usage_orders_and_counts():
    uses = [("b", True), ("a", False), ("a", True), ("c", False), ("c", False)]
    assert source_usage(uses) == [("a", 2, 1), ("c", 2, 0), ("b", 1, 1)]


def test_cause_table_leaves_success_out():
    assert cause_table(["slipped", "", "dropped", "slipped", ""]) == [("slipped", 2), ("dropped", 1)]


def test_summary():
    assert summarise([]) is None
    assert summarise([3.0]) == (1, 3.0, 3.0, 3.0, 3.0)
    assert summarise(range(101)) == pytest.approx((101, 5, 50, 95, 50))
