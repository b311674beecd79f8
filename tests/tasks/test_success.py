"""The judge: every criterion alone flips the verdict, only the end counts, and nothing is latched."""

from __future__ import annotations

import numpy as np
import pytest

from so101.geometry import make_pose, pose_from_pos_quat, pose_to_pos_quat, rotation_about_axis
from so101.tasks.success import judge

T = 60
X, UP = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])


class Episode:
    """A vial that stands seated in the first opening of a turned rack, jaw open, from beginning to end."""

    def __init__(self, config):
        self.config = config
        self.success = config.task.active.success
        self.T_rack = make_pose(rotation_about_axis(UP, 0.3), np.array([0.2, 0.1, 0.04]))
        jaw = config.robot.joints[-1]
        self.q = np.zeros((T, 6))
        self.jaw_at = lambda fraction: jaw.lower_rad + fraction * (jaw.upper_rad - jaw.lower_rad)
        self.q[:, 5] = self.jaw_at(0.5)
        self.vial = np.tile(self.seated(), (T, 1))
        self.rack = np.tile(pose_to_pos_quat(self.T_rack), (T, 1))

    def seated(self, x=0.03, y=0.03, z=0.031, lean=0.0) -> np.ndarray:
        return pose_to_pos_quat(self.T_rack @ make_pose(rotation_about_axis(X, lean), np.array([x, y, z])))

    def verdict(self):
        return judge(self.config, {"vial": self.vial, "rack": self.rack}, self.q)


@pytest.fixture
def episode(vial_config):
    return Episode(vial_config)


def test_a_seated_still_vial_counts_for_both_tests(episode):
    verdict = episode.verdict()
    assert verdict.strict and verdict.geometric
    assert verdict.axis_distance_m == pytest.approx(0, abs=1e-12)
    assert verdict.height_m == pytest.approx(0.031)
    assert verdict.upright_cos == pytest.approx(1)
    assert verdict.jaw_open_fraction == pytest.approx(0.5)
    assert verdict.speed_m_s < 1e-9 and verdict.angular_speed_rad_s < 1e-9
    assert verdict.container_moved_m == 0


@pytest.mark.parametrize("opening", range(4))
def test_every_opening_counts(episode, opening):
    x, y = episode.success.openings_m[opening]
    episode.vial[:] = episode.seated(x, y)
    assert episode.verdict().strict


# Each pair: just inside and just outside of one bound, everything else as it should be.
BOUNDS = {
    "beside the axis": (dict(x=0.03 + 0.0149), dict(x=0.03 + 0.0151)),
    "diagonally beside the axis": (dict(x=0.03 + 0.0105, y=0.03 + 0.0105), dict(x=0.03 + 0.0107, y=0.03 + 0.0107)),
    "too low": (dict(z=0.0261), dict(z=0.0259)),
    "too high": (dict(z=0.0399), dict(z=0.0401)),
    "leaning": (dict(lean=np.arccos(0.901)), dict(lean=np.arccos(0.899))),
}


@pytest.mark.parametrize(("inside", "outside"), BOUNDS.values(), ids=BOUNDS)
def test_each_bound_of_the_pose_alone_flips_the_strict_verdict(episode, inside, outside):
    episode.vial[:] = episode.seated(**inside)
    assert episode.verdict().strict
    episode.vial[:] = episode.seated(**outside)
    verdict = episode.verdict()
    assert not verdict.strict
    assert verdict.geometric  # the loose test does not care


def test_a_jaw_that_is_not_open_flips_the_strict_verdict(episode):
    episode.q[-1, 5] = episode.jaw_at(0.21)
    assert episode.verdict().strict
    episode.q[-1, 5] = episode.jaw_at(0.19)
    assert not episode.verdict().strict


def moving(episode, speed_m_s: float, frame: int) -> None:
    """The vial shifts at `frame` once, sideways within the opening, and stays there."""
    hz = episode.config.scene.physics.control_hz
    episode.vial[frame:] = episode.seated(x=0.03 + speed_m_s / hz)


def turning(episode, speed_rad_s: float, frame: int) -> None:
    """The vial turns at `frame` once about its own axis."""
    hz = episode.config.scene.physics.control_hz
    T_vial = pose_from_pos_quat(episode.seated())
    T_vial[:3, :3] = T_vial[:3, :3] @ rotation_about_axis(UP, speed_rad_s / hz)
    episode.vial[frame:] = pose_to_pos_quat(T_vial)


@pytest.mark.parametrize(("move", "limit"), [(moving, 0.06), (turning, 0.8)])
def test_the_vial_must_be_still_for_all_of_the_last_frames(episode, move, limit):
    frames = episode.success.strict.still_frames
    move(episode, limit * 0.99, T - 3)
    assert episode.verdict().strict
    move(episode, limit * 1.01, T - 3)
    assert not episode.verdict().strict
    move(episode, 0.0, 0)
    move(episode, limit * 1.01, T - frames)
    assert not episode.verdict().strict  # still among the last frames
    move(episode, 0.0, 0)
    move(episode, limit * 1.01, T - frames - 1)
    assert episode.verdict().strict  # before them


def test_success_in_the_middle_is_not_success(episode):
    episode.vial[-20:] = episode.seated(z=0.2)  # taken out again
    verdict = episode.verdict()
    assert not verdict.strict and not verdict.geometric


def test_success_only_at_the_end_is_success(episode):
    frames = episode.success.strict.still_frames
    episode.vial[: -frames - 1] = episode.seated(x=0.3)
    assert episode.verdict().strict
    episode.vial[: -frames] = episode.seated(x=0.3)
    assert not episode.verdict().strict


@pytest.mark.parametrize(
    ("key", "inside", "outside"),
    [("z", 0.0395, 0.0403), ("z", 0.0265, 0.0257), ("x", 0.03 + 0.0147, 0.03 + 0.0153), ("lean", 0.445, 0.46)],
)
@pytest.mark.parametrize("way_in", [True, False])
def test_drifting_slowly_over_a_bound_within_the_last_frames_fails(episode, key, inside, outside, way_in):
    """Slow enough to count as still: every one of the last frames must be inside."""
    frames = episode.success.strict.still_frames + 1
    values = np.linspace(outside, inside, frames)
    for row, value in zip(episode.vial[-frames:], values if way_in else values[::-1], strict=True):
        row[:] = episode.seated(**{key: value})
    verdict = episode.verdict()
    assert verdict.speed_m_s < 0.06 and verdict.angular_speed_rad_s < 0.8
    assert not verdict.strict


def test_an_episode_shorter_than_the_still_time_cannot_count(episode):
    frames = episode.success.strict.still_frames
    for length, expected in ((frames, False), (frames + 1, True)):
        objects = {"vial": episode.vial[:length], "rack": episode.rack[:length]}
        assert judge(episode.config, objects, episode.q[:length]).strict is expected


def test_one_frame_is_judged_without_speed(episode):
    verdict = judge(episode.config, {"vial": episode.vial[:1], "rack": episode.rack[:1]}, episode.q[:1])
    assert not verdict.strict and verdict.geometric
    assert verdict.speed_m_s == 0


def test_a_vial_hopping_between_openings_is_near_none(episode):
    episode.vial[-5:] = episode.seated(0.09, 0.03)
    assert episode.verdict().axis_distance_m == pytest.approx(0.06)


LOOSE = {
    "beside the centre": (dict(x=0.06 + 0.0699, y=0.06), dict(x=0.06 + 0.0701, y=0.06)),
    "too low": (dict(x=0.06, y=0.06, z=0.01375 - 0.0199), dict(x=0.06, y=0.06, z=0.01375 - 0.0201)),
    "too high": (dict(x=0.06, y=0.06, z=0.01375 + 0.0999), dict(x=0.06, y=0.06, z=0.01375 + 0.1001)),
    "leaning": (dict(lean=np.arccos(0.501)), dict(lean=np.arccos(0.499))),
}


@pytest.mark.parametrize(("inside", "outside"), LOOSE.values(), ids=LOOSE)
def test_each_bound_of_the_loose_test_alone_flips_it(episode, inside, outside):
    episode.vial[:] = episode.seated(**inside)
    assert episode.verdict().geometric
    episode.vial[:] = episode.seated(**outside)
    assert not episode.verdict().geometric


def test_a_pushed_rack_is_measured_from_first_to_last_frame(episode):
    episode.rack[0, :2] -= [0.03, 0.04]
    assert episode.verdict().container_moved_m == pytest.approx(0.05)


def test_the_verdict_moves_with_the_scene(episode):
    """Rack and vial carried off together by any pose about the vertical: same verdict, same figures."""
    before = episode.verdict().figures()
    shift = make_pose(rotation_about_axis(UP, 1.1), np.array([0.3, -0.2, 0.1]))
    for poses in (episode.vial, episode.rack):
        poses[:] = pose_to_pos_quat(shift @ pose_from_pos_quat(poses))
    assert episode.verdict().figures() == pytest.approx(before, abs=1e-6)
