"""Starts of objects: within their ranges, seeded, and turned about the right axes."""

from __future__ import annotations

import numpy as np
import pytest

from so101.config import load_config
from so101.errors import ConfigError
from so101.geometry import make_pose, rotation_about_axis, rotation_angle
from so101.sim.bake import T_world_base
from so101.tasks.placement import draw_placements, nominal_placements, placed_pose

UP = np.array([0.0, 0.0, 1.0])
NOTHING = {"x_m": 0.0, "y_m": 0.0, "roll_rad": 0.0, "yaw_rad": 0.0}


def placement(config, name):
    return config.task.active.objects[name]


@pytest.mark.parametrize("task", ["vial_to_rack", "cube_in_box"])
def test_draws_fill_their_ranges_and_never_leave_them(task):
    config = load_config(overrides=[f"task.name={task}"])
    rng = np.random.default_rng(0)
    drawn = [draw_placements(config, rng)[1] for _ in range(300)]
    for name, place in config.task.active.objects.items():
        for key in NOTHING:
            low, high = getattr(place, key)
            values = np.array([draw[name][key] for draw in drawn])
            assert ((values >= low) & (values <= high)).all()
            assert np.ptp(values) >= 0.95 * (high - low)


def test_the_same_seed_draws_the_same(vial_config):
    first, second = (draw_placements(vial_config, np.random.default_rng(5)) for _ in range(2))
    assert first[1] == second[1]
    for name, pose in first[0].items():
        np.testing.assert_array_equal(pose, second[0][name])
    assert draw_placements(vial_config, np.random.default_rng(6))[1] != first[1]


def test_poses_are_those_of_the_draws_seen_from_the_base(vial_config):
    objects, draws = draw_placements(vial_config, np.random.default_rng(1))
    for name, pose in objects.items():
        T_world = placed_pose(placement(vial_config, name), draws[name])
        expected = (np.linalg.inv(T_world_base(vial_config)) @ T_world)[:3, 3]
        np.testing.assert_allclose(pose[:3], expected, atol=1e-12)
        assert pose.shape == (7,)


def test_nothing_drawn_is_the_nominal_place(vial_config):
    for name, pose in nominal_placements(vial_config).items():
        world = pose[:3] + vial_config.robot.base_position_m
        np.testing.assert_allclose(world, placement(vial_config, name).position_m, atol=1e-12)


@pytest.mark.parametrize("roll", [-0.3, 0.2])
def test_roll_turns_the_heading_of_a_lying_vial_and_keeps_it_lying(vial_config, roll):
    place = placement(vial_config, "vial")
    before, after = (placed_pose(place, {**NOTHING, "roll_rad": angle}) for angle in (0.0, roll))
    axis_before, axis_after = before[:3, 2], after[:3, 2]
    assert abs(axis_after[2]) < 1e-7  # still lying
    assert np.arccos(axis_before @ axis_after) == pytest.approx(abs(roll), abs=1e-7)
    np.testing.assert_allclose(after[:3, 3], before[:3, 3])  # about its own origin
    np.testing.assert_allclose(np.abs(before[:3, 0]), UP, atol=1e-7)  # its own x is the vertical


def test_yaw_turns_the_rack_about_its_corner(vial_config):
    place = placement(vial_config, "rack")
    before, after = (placed_pose(place, {**NOTHING, "yaw_rad": angle}) for angle in (0.0, 0.4))
    np.testing.assert_allclose(after[:3, 3], before[:3, 3], atol=1e-12)  # the frame is the corner, and stays
    np.testing.assert_allclose(after[:3, :3], rotation_about_axis(UP, 0.4) @ before[:3, :3], atol=1e-12)
    opening = np.array([0.03, 0.03, 0.0, 1.0])
    assert np.linalg.norm((after - before) @ opening) == pytest.approx(2 * np.hypot(0.03, 0.03) * np.sin(0.2))


def test_yaw_center_is_the_point_that_stays(vial_config):
    place = placement(vial_config, "rack").model_copy(update={"yaw_center_m": (0.06, 0.06, 0.0)})
    before, after = (placed_pose(place, {**NOTHING, "yaw_rad": angle}) for angle in (0.0, 0.4))
    center = np.array([0.06, 0.06, 0.0, 1.0])
    np.testing.assert_allclose(after @ center, before @ center, atol=1e-12)
    assert rotation_angle(before[:3, :3], after[:3, :3]) == pytest.approx(0.4)


def test_increments_are_along_the_world_axes(vial_config):
    place = placement(vial_config, "vial")
    moved = placed_pose(place, {"x_m": 0.01, "y_m": -0.02, "roll_rad": 0.3, "yaw_rad": 0.0})
    np.testing.assert_allclose(moved[:3, 3], np.array(place.position_m) + [0.01, -0.02, 0.0])
    assert np.linalg.det(make_pose(moved[:3, :3], np.zeros(3))) == pytest.approx(1.0)


def test_a_range_the_wrong_way_round_is_refused():
    with pytest.raises(ConfigError, match=r"x_m is \[0.1, -0.1\]; the first number must not exceed the second"):
        load_config(overrides=["task.tasks.vial_to_rack.objects.vial.x_m=[0.1, -0.1]"])
