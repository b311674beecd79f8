"""Planned transits keep clear of what stands around and carry what is held, wherever the robot stands in the world."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from so101.config import load_config
from so101.geometry import make_pose, rotation_about_axis
from so101.geometry.frames import base_from_world, world_from_base
from so101.kinematics import ArmKinematics
from so101.kinematics.boxes import RoundedBoxes, distance, fill_with_spheres

pytest.importorskip("curobo")
torch.set_num_threads(1)

QUICK = ["ik.curobo.spheres.samples_per_part=300", "ik.curobo.spheres.rounds=4"]
Z = np.array([0.0, 0.0, 1.0])


@pytest.fixture(scope="module")
def planner(vial_config):
    from so101.kinematics.curobo_planner import CuroboPlanner

    return CuroboPlanner(load_config(overrides=QUICK), ArmKinematics(vial_config))


@pytest.fixture(scope="module")
def arm(vial_config):
    return ArmKinematics(vial_config)


@pytest.fixture(scope="module")
def ends(vial_config) -> tuple[np.ndarray, np.ndarray]:
    """Home turned to one side and to the other."""
    home = np.array([joint.home_rad for joint in vial_config.robot.joints[:5]])
    return home + [-0.6, 0, 0, 0, 0], home + [0.9, 0, 0, 0, 0]


def block(arm: ArmKinematics, ends, offset=(0.0, 0.0, 0.0)) -> RoundedBoxes:
    """A box in the way, halfway, of the point of the hand `offset` m from the pinch point."""
    T = arm.fk((ends[0] + ends[1]) / 2)
    position = T[:3, 3] + T[:3, :3] @ np.array(offset) - [0, 0, 0.02]
    return RoundedBoxes(make_pose(np.eye(3), position)[None], np.array([[0.03, 0.02, 0.03]]), np.zeros(1))


def hand_clearance(arm: ArmKinematics, path: np.ndarray, boxes: RoundedBoxes, offset=(0.0, 0.0, 0.0)) -> float:
    """Least distance of a point of the hand, `offset` m from the pinch point, to the boxes along a path."""
    T = arm.fk(path)
    points = torch.as_tensor(T[:, :3, 3] + T[:, :3, :3] @ np.array(offset))[:, None]
    parts = (torch.as_tensor(a) for a in (boxes.T[:, :3, 3], boxes.T[:, :3, :3], boxes.half, boxes.radius))
    return float(distance(points, *parts).min())


def test_nothing_in_the_way_gives_the_straight_line(planner, ends):
    far = RoundedBoxes(make_pose(np.eye(3), np.array([3.0, 0, 0]))[None], np.full((1, 3), 0.1), np.zeros(1))
    path = planner.plan(*ends, far)
    along = np.linspace(0, 1, len(path))[:, None]
    np.testing.assert_allclose(path, ends[0] + along * (ends[1] - ends[0]), atol=1e-4)


def test_a_block_in_the_way_is_passed_with_the_clearance(planner, arm, ends):
    boxes = block(arm, ends)
    straight = ends[0] + np.linspace(0, 1, 60)[:, None] * (ends[1] - ends[0])
    assert hand_clearance(arm, straight, boxes) < 0
    path = planner.plan(*ends, boxes)
    assert path is not None
    np.testing.assert_allclose(path[[0, -1]], ends, atol=1e-6)
    assert hand_clearance(arm, path, boxes) > planner.settings.clearance_m  # spheres around the pinch point are nearer
    assert (path >= arm.lower[:5]).all() and (path <= arm.upper[:5]).all()
    assert np.abs(np.diff(path, axis=0)).max() < 0.1  # no jump


def test_what_is_held_is_carried_past_as_well(planner, arm, ends):
    """A block far ahead of the hand, which the bare hand clears and the tip of a rod in it does not."""
    tip = (0.10, 0.0, 0.0)
    boxes = block(arm, ends, tip)
    rod = RoundedBoxes(np.eye(4)[None], np.array([[0.0, 0.0, 0.05]]), np.array([0.01]))
    T_ee_rod = make_pose(rotation_about_axis(np.array([0.0, 1.0, 0.0]), np.pi / 2), [0.05, 0.0, 0.0])
    bare = planner.plan(*ends, boxes)
    assert hand_clearance(arm, bare, boxes, tip) < 0.01
    carrying = planner.plan(*ends, boxes, rod, T_ee_rod)
    assert carrying is not None
    assert hand_clearance(arm, carrying, boxes, tip) > 0.01 + planner.settings.clearance_m * 0.7


def test_held_spheres_stand_where_the_object_is(planner, arm, ends):
    rod = RoundedBoxes(np.eye(4)[None], np.array([[0.0, 0.0, 0.05]]), np.array([0.01]))
    T_ee_rod = make_pose(rotation_about_axis(np.array([0.3, 0.9, 0.316]), 0.7), [0.05, 0.02, -0.01])
    carried = planner._carried(rod, T_ee_rod)
    with torch.no_grad():
        centers = planner._spheres(planner._tensor(ends[0][None, None]), carried)[0][0, 0]
    own, _ = fill_with_spheres(rod, planner.settings.held_sphere_spacing)
    T = arm.fk(ends[0]) @ T_ee_rod
    np.testing.assert_allclose(centers[-len(own) :].cpu().numpy(), own @ T[:3, :3].T + T[:3, 3], atol=2e-5)


def test_a_wall_without_a_way_round_gives_no_plan(vial_config, arm, ends):
    from so101.kinematics.curobo_planner import CuroboPlanner

    hasty = CuroboPlanner(load_config(overrides=[*QUICK, "ik.curobo.planner.max_iterations=20"]), arm)
    T = arm.fk((ends[0] + ends[1]) / 2)
    wall = RoundedBoxes(make_pose(np.eye(3), T[:3, 3])[None], np.array([[0.6, 0.005, 0.6]]), np.zeros(1))
    assert hasty.plan(*ends, wall) is None


def test_the_same_question_gets_the_same_bits(planner, arm, ends):
    boxes = block(arm, ends)
    first = planner.plan(*ends, boxes)
    planner.plan(ends[1], ends[0], boxes)
    np.testing.assert_array_equal(planner.plan(*ends, boxes), first)


def test_many_environments_with_random_bases_get_one_plan(planner, arm, ends):
    """Obstacles given in world, plans wanted in world: with the base of each environment they are all the same."""
    boxes, rng = block(arm, ends), np.random.default_rng(3)
    T_world_base = np.stack(
        [make_pose(rotation_about_axis(Z, rng.uniform(-3, 3)), rng.uniform(-2, 2, 3)) for _ in range(3)]
    )
    T_world_obstacle = world_from_base(T_world_base, np.repeat(boxes.T[None], 3, 0))
    T_base_obstacle = base_from_world(T_world_base, T_world_obstacle)
    here = planner.plan(*ends, boxes)
    for env in range(3):
        path = planner.plan(*ends, boxes._replace(T=T_base_obstacle[env]))
        np.testing.assert_allclose(path, here, atol=1e-3)
        T_world_ee = world_from_base(T_world_base[env], arm.fk(path))
        np.testing.assert_allclose(base_from_world(T_world_base[env], T_world_ee), arm.fk(path), atol=1e-9)


# Boxes


def test_distance_to_rounded_boxes():
    one = [torch.tensor([[0.0, 0.0, 0.0]], dtype=torch.double), torch.eye(3, dtype=torch.double)[None]]
    box = [*one, torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.double), torch.zeros(1, dtype=torch.double)]
    points = torch.tensor([[2.0, 0, 0], [2.0, 3.0, 0], [0.5, 0, 0], [0, 0, -4.0]], dtype=torch.double)
    np.testing.assert_allclose(distance(points, *box), [1.0, 2**0.5, -0.5, 1.0], atol=1e-5)
    capsule = [*one, torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.double), torch.tensor([0.5], dtype=torch.double)]
    np.testing.assert_allclose(distance(points[:1], *capsule), [1.5], atol=1e-5)
    turned = [box[0], torch.as_tensor(rotation_about_axis(Z, np.pi / 2))[None], *box[2:]]
    np.testing.assert_allclose(distance(points[:1], *turned), [0.0], atol=1e-5)  # its long side now points this way


def test_spheres_fill_a_capsule_and_stay_inside():
    T = make_pose(rotation_about_axis(np.array([1.0, 0, 0]), 0.4), [0.1, 0.2, 0.3])
    capsule = RoundedBoxes(T[None], np.array([[0.0, 0.0, 0.04]]), np.array([0.015]))
    centers, radii = fill_with_spheres(capsule, 1.0)
    parts = [torch.as_tensor(a) for a in (capsule.T[:, :3, 3], capsule.T[:, :3, :3], capsule.half, capsule.radius)]
    np.testing.assert_allclose(distance(torch.as_tensor(centers), *parts), -radii, atol=1e-4)
    ends = np.array([T[:3, 3] + T[:3, 2] * z for z in (-0.04, 0.04)])
    assert np.linalg.norm(centers[:, None] - ends, axis=-1).min(0).max() < 1e-9
    assert np.linalg.norm(np.diff(centers, axis=0), axis=1).max() <= 0.015 + 1e-9
