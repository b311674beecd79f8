"""Starts of objects: within their ranges, seeded, turned about the right axes, apart from each other, servable."""

from __future__ import annotations

import numpy as np
import pytest

from so101.config import Config, load_config
from so101.errors import ConfigError
from so101.geometry import make_pose, rotation_about_axis, rotation_angle
from so101.geometry.frames import base_from_world
from so101.kinematics import ArmKinematics
from so101.sim.bake import T_world_base
from so101.tasks.grasping import PinchFinder, ServeCheck
from so101.tasks.placement import draw_placements, nominal_placements, overlapping, placed_pose

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


# Objects that would overlap

CROWDED = ["task.name=three_vials_to_rack"] + [
    f"task.tasks.three_vials_to_rack.objects.vial_{i}.{key}"
    for i in (1, 2, 3)
    for key in ("position_m=[0.23, -0.08, 0.0505]", "x_m=[-0.06, 0.06]", "y_m=[-0.06, 0.06]", "roll_rad=[-1.5, 1.5]")
]


def posed(config, **draws) -> dict[str, np.ndarray]:
    """Poses in world for increments by object."""
    return {name: placed_pose(place, {**NOTHING, **draws.get(name, {})})
            for name, place in config.task.active.objects.items()}  # fmt: skip


def test_objects_never_start_nearer_than_the_gap_and_would_without_another_draw():
    config = load_config(overrides=CROWDED)
    once = load_config(overrides=[*CROWDED, "task.max_redraws=0"])
    crowded = 0
    for seed in range(15):
        draws = draw_placements(config, np.random.default_rng(seed))[1]
        assert overlapping(config, posed(config, **draws)) == []
        first = draw_placements(once, np.random.default_rng(seed))[1]
        crowded += bool(overlapping(config, posed(config, **first)))
        if not overlapping(config, posed(config, **first)):
            assert first == draws  # nothing is drawn again without need
    assert crowded > 5


def test_where_there_is_no_room_the_last_draw_stays():
    config = load_config(overrides=[*CROWDED, "task.min_gap_m=2", "task.max_redraws=3"])
    draws = draw_placements(config, np.random.default_rng(0))[1]
    assert len(overlapping(config, posed(config, **draws))) == 6


def test_lying_side_by_side_overlap_ends_where_the_gap_begins():
    config = load_config(overrides=["task.name=three_vials_to_rack"])
    cap = max(geom.size_m[0] for geom in config.scene.props["vial"].geoms)
    apart = 2 * cap + config.task.min_gap_m
    place = config.task.active.objects
    for more, pairs in ((-1e-4, [("vial_1", "vial_3")]), (1e-4, [])):
        y = place["vial_1"].position_m[1] - apart - more - place["vial_3"].position_m[1]
        assert overlapping(config, posed(config, vial_3={"y_m": y})) == pairs


@pytest.mark.parametrize("angle", [0.7, -2.0])
def test_overlap_does_not_depend_on_where_one_looks_from(angle):
    """Vials across and beside each other: the same pairs whatever the turn of the scene."""
    config = load_config(overrides=["task.name=three_vials_to_rack"])
    shift = make_pose(rotation_about_axis(UP, angle), np.array([0.4, -0.3, 0.0]))
    rng, seen = np.random.default_rng(0), set()
    for _ in range(60):
        drawn = {name: {"x_m": rng.uniform(-0.1, 0.1), "y_m": rng.uniform(-0.1, 0.1), "yaw_rad": rng.uniform(-3, 3)}
                 for name in config.task.active.objects}  # fmt: skip
        poses = posed(config, **drawn)
        pairs = overlapping(config, poses)
        assert overlapping(config, {name: shift @ T for name, T in poses.items()}) == pairs
        seen.add(len(pairs))
    assert len(seen) > 2


# Turns that the arm can serve


@pytest.fixture(scope="module")
def wide() -> Config:
    return load_config(overrides=["task.name=vial_to_rack_wide"])


def served(config, draws) -> bool:
    """By the check that generation's grasps are made of, asked anew."""
    check = ServeCheck(config, PinchFinder(config, ArmKinematics(config)))
    T_vial, T_rack = (base_from_world(T_world_base(config), posed(config, **draws)[name]) for name in ("vial", "rack"))
    return check.pinch(T_vial, placement(config, "vial").servable_at_m, T_rack) is not None


def test_draws_on_the_wide_range_can_be_served_and_fill_the_area(wide):
    place = placement(wide, "vial")
    drawn = [draw_placements(wide, np.random.default_rng(seed))[1] for seed in range(150)]
    share = np.mean([served(wide, draws) for draws in drawn[:60]])
    assert share > 0.9  # at some places no turn will do
    middles = [placed_pose(place, draws["vial"]) @ [*place.yaw_center_m, 1.0] for draws in drawn]
    xy = np.array(middles)[:, :2] - (placed_pose(place, NOTHING) @ [*place.yaw_center_m, 1.0])[:2]
    for column, (low, high) in zip(xy.T, (place.x_m, place.y_m), strict=True):
        assert low - 1e-9 <= column.min() < low + 0.05 * (high - low)  # the area is that of the tube's middle
        assert high - 0.05 * (high - low) < column.max() <= high + 1e-9
        assert np.histogram(column, 4, (low, high))[0].min() > 150 / 4 / 2
    yaws = np.array([draws["vial"]["yaw_rad"] for draws in drawn])
    assert np.histogram(yaws, 6, (-np.pi, np.pi))[0].min() > 3  # no heading is left out


def test_only_turns_are_drawn_again_for_the_arms_sake():
    """A stern bound on tilt and dip makes many turns unservable; away from the rack nothing overlaps."""
    stern = ["task.name=vial_to_rack_wide", "task.pinch.max_tilt_deg=3", "task.pinch.dips_deg=[50.0]",
             "task.tasks.vial_to_rack_wide.objects.vial.y_m=[-0.1, -0.05]"]  # fmt: skip
    config = load_config(overrides=stern)
    anyhow = load_config(overrides=[*stern, "task.tasks.vial_to_rack_wide.objects.vial.servable_at_m=null"])
    again = 0
    for seed in range(20):
        chosen, first = (draw_placements(c, np.random.default_rng(seed))[1] for c in (config, anyhow))
        if not served(config, first):
            again += served(config, chosen)
            assert chosen["vial"]["yaw_rad"] != first["vial"]["yaw_rad"]
        else:
            assert chosen == first
        assert (chosen["rack"], chosen["vial"]["x_m"], chosen["vial"]["y_m"]) == (
            first["rack"], first["vial"]["x_m"], first["vial"]["y_m"]
        )  # fmt: skip
    assert again >= 5


def test_where_no_turn_will_do_the_last_stays():
    where = "task.tasks.vial_to_rack_wide.objects.vial.x_m=[1.0, 1.0]"
    config = load_config(overrides=["task.name=vial_to_rack_wide", where, "task.max_redraws=5"])
    draws = draw_placements(config, np.random.default_rng(0))[1]
    assert draws["vial"]["x_m"] == 1.0 and not served(config, draws)


def test_a_lying_vial_yaws_about_the_middle_of_its_tube(wide):
    place = placement(wide, "vial")
    middle = np.array([*place.yaw_center_m, 1.0])
    before, after = (placed_pose(place, {**NOTHING, "yaw_rad": angle}) for angle in (0.0, 2.0))
    np.testing.assert_allclose((after @ middle)[:3], (before @ middle)[:3], atol=1e-12)
    tube = wide.scene.props["vial"].geoms[0]
    np.testing.assert_allclose(place.yaw_center_m, tube.position_m, atol=1e-3)
    assert abs(after[2, 2]) < 1e-7  # still lying


def test_turns_and_overlaps_share_one_budget(monkeypatch):
    """A start that the arm cannot serve, in the rack's way: neither search may multiply the other."""

    class NeverServes:
        asked = 0

        def pinch(self, *_):
            self.asked += 1

    check, vial = NeverServes(), "task.tasks.vial_to_rack_wide.objects"
    monkeypatch.setattr("so101.tasks.placement._serve_check", lambda _: check)
    config = load_config(overrides=[
        "task.name=vial_to_rack_wide", "task.max_redraws=20", f"{vial}.vial.position_m=[0.2, 0.1, 0.05]",
        f"{vial}.vial.x_m=[0, 0]", f"{vial}.vial.y_m=[0, 0]",
    ])  # fmt: skip
    draw_placements(config, np.random.default_rng(0))
    assert 0 < check.asked <= 20
