"""The judge: every criterion alone flips the verdict, only the end counts, and nothing is latched."""

from __future__ import annotations

import numpy as np
import pytest

from so101.config import load_config
from so101.geometry import make_pose, pose_from_pos_quat, pose_to_pos_quat, rotation_about_axis
from so101.tasks.success import free_openings, judge

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
    episode.vial[:-frames] = episode.seated(x=0.3)
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


# Several objects


class Shelf:
    """Three vials that stand seated in openings of a turned rack, jaw open."""

    def __init__(self, openings=(0, 1, 2)):
        self.config = load_config(overrides=["task.name=three_vials_to_rack"])
        self.success = self.config.task.active.success
        self.T_rack = make_pose(rotation_about_axis(UP, -0.4), np.array([0.22, 0.05, 0.04]))
        self.objects = {"rack": pose_to_pos_quat(self.T_rack)}
        for name, opening in zip(self.success.objects, openings, strict=True):
            self.put(name, *self.success.openings_m[opening])

    def put(self, name: str, x: float, y: float, z: float = 0.031, R: np.ndarray | None = None) -> None:
        T = make_pose(np.eye(3) if R is None else R, np.array([x, y, z]))
        self.objects[name] = pose_to_pos_quat(self.T_rack @ T)

    def verdict(self):
        q = np.zeros((T, 6))
        q[:, 5] = 1.0
        return judge(self.config, {name: np.tile(pose, (T, 1)) for name, pose in self.objects.items()}, q)

    def free(self, **kwargs) -> list[int]:
        return free_openings(self.config, self.objects, **kwargs)


@pytest.mark.parametrize("openings", [(0, 1, 2), (3, 0, 2)])
def test_all_objects_in_openings_of_their_own_is_success(openings):
    verdict = Shelf(openings).verdict()
    assert verdict.strict and verdict.geometric


def test_two_objects_nearest_to_one_opening_are_no_success():
    """No real vials could; a judge of arrays must still not count one opening twice."""
    verdict = Shelf((0, 1, 1)).verdict()
    assert not verdict.strict and verdict.geometric


@pytest.mark.parametrize("name", ["vial_1", "vial_2", "vial_3"])
def test_one_object_that_is_not_in_fails_all_and_gives_the_figures(name):
    shelf = Shelf()
    shelf.put(name, 0.03, 0.20)
    verdict = shelf.verdict()
    assert not verdict.strict and not verdict.geometric
    assert verdict.axis_distance_m == pytest.approx(0.11)  # to the opening at (0.03, 0.09)


def test_among_good_objects_the_figures_are_of_the_one_farthest_off_its_axis():
    shelf = Shelf()
    shelf.put("vial_2", 0.09 + 0.004, 0.03)
    verdict = shelf.verdict()
    assert verdict.strict and verdict.axis_distance_m == pytest.approx(0.004)


# Free openings


@pytest.mark.parametrize("openings", [(0, 1, 2), (3, 0, 2)])
def test_openings_with_an_object_in_are_not_free(openings):
    shelf = Shelf(openings)
    assert shelf.free() == sorted({0, 1, 2, 3} - set(openings))
    assert shelf.free(but="vial_2") == sorted({0, 1, 2, 3} - {openings[0], openings[2]})


def test_an_object_parked_far_away_or_lying_beside_the_rack_takes_nothing():
    lying = rotation_about_axis(np.array([0.0, 1.0, 0.0]), np.pi / 2)
    shelf = Shelf()
    shelf.put("vial_1", 2.0, 1.0, -3.0)
    shelf.put("vial_2", -0.05, 0.03, 0.01, lying)
    assert shelf.free() == [0, 1, 3]
    shelf.put("vial_3", 0.03, 0.03, 0.5)  # high over an opening, as in the hand or parked
    assert shelf.free() == [0, 1, 2, 3]


@pytest.mark.parametrize(("key", "taken", "free"), [("x", 0.0299, 0.0301), ("z", 0.099, 0.101)])
def test_an_opening_is_free_beyond_the_bounds_of_occupied(key, taken, free):
    for offset, expected in ((taken, [1, 2, 3]), (free, [0, 1, 2, 3])):
        shelf = Shelf()
        for name in ("vial_2", "vial_3"):
            shelf.put(name, 5.0, 5.0)
        shelf.put("vial_1", **{"x": 0.03, "y": 0.03, "z": 0.0, key: (0.03 if key == "x" else 0.0) - offset})
        assert shelf.free() == expected


def test_free_openings_move_with_the_rack():
    shelf = Shelf((2, 3, 0))
    shift = make_pose(rotation_about_axis(UP, 2.1), np.array([0.3, -0.2, 0.0]))
    shelf.objects = {name: pose_to_pos_quat(shift @ pose_from_pos_quat(p)) for name, p in shelf.objects.items()}
    assert shelf.free() == [1]
