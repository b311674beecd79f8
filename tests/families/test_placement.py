"""Where episodes begin: in the regions, apart, and from the seed alone."""

from __future__ import annotations

import numpy as np
import pytest

from so101.families import find_task
from so101.families.declaration import FamilyTask
from so101.families.goals import make_goal
from so101.families.placement import JOINTS, POINT, SLOTS, PlacementError, draw_beginning, stream
from so101.families.scene import slot_names
from tests.families.worlds import TASKS, copied_configs, edit

SEEDS = range(1000)
OWN = [name for name in TASKS if name != "so101_vial_to_rack"]


def begin(task: FamilyTask | str, seed: int):
    task = find_task(task) if isinstance(task, str) else task
    return draw_beginning(task, make_goal(task), seed)


@pytest.mark.parametrize("name", OWN)
def test_1000_beginnings_honour_the_declaration(name):
    task = find_task(name)
    declared = task.family.declaration
    drawn = [begin(task, seed) for seed in SEEDS]
    q = np.array([each.q for each in drawn]) - declared.start.qpos_rad
    noise = np.array(declared.start.noise_rad)
    assert (np.abs(q) <= noise + 1e-12).all()
    assert (np.abs(q).max(0) >= 0.99 * noise - 1e-12).all()
    for slot, place in task.declaration.place.items():
        poses = np.array([each.poses[slot] for each in drawn])
        region, shape = declared.regions[place.region], declared.slots[slot]
        flat = poses[:, :2] - region.origin_m[:2]
        low, high = np.array(region.rect_m[:2]), np.array(region.rect_m[2:])
        assert (flat >= low).all()
        assert (flat <= high).all()
        assert (flat.min(0) < low + 0.03 * (high - low)).all(), "the region is used to its edges"
        assert (flat.max(0) > high - 0.03 * (high - low)).all(), "the region is used to its edges"
        assert poses[:, 2] == pytest.approx(region.origin_m[2] - shape.bottom_m + declared.start.drop_m)
        np.testing.assert_allclose(np.linalg.norm(poses[:, 3:], axis=1), 1.0, atol=1e-12)
        assert (poses[:, 4:6] == 0.0).all(), "upright"
        if not place.yaw:
            assert (poses[:, 3] == 1.0).all()
        else:
            yaw = 2 * np.arctan2(poses[:, 6], poses[:, 3])
            assert yaw.min() < -3.1
            assert yaw.max() > 3.1
    assert all(set(each.poses) == set(task.declaration.place) for each in drawn), "others are absent"


@pytest.mark.parametrize("name", OWN)
def test_1000_beginnings_are_apart(name):
    task = find_task(name)
    declared, placed = task.family.declaration, list(task.declaration.place)
    slots = [slot for slot in slot_names(task.family) if slot in placed]
    if len(slots) < 2:
        pytest.skip("one object or none")
    for seed in SEEDS:
        poses = begin(task, seed).poses
        for number, later in enumerate(slots):
            for other in slots[:number]:
                apart = np.hypot(*(poses[later] - poses[other])[:2])
                least = task.declaration.place[later].separation_m
                assert apart >= (least or declared.slots[later].radius_m + declared.slots[other].radius_m)


def test_numbers_of_one_seed():
    """Pinned: seeds are written into files and reports, so what they mean must not change."""
    start = begin("so101_tower_cube_in_bowl", 1_000_000)
    folded = (-1.745329, 1.544271, 1.342561)
    assert start.q == pytest.approx([0.882645911, *folded, 1.009982982, -0.019486298], abs=1e-8)
    assert start.poses["bowl"] == pytest.approx([0.270594978, -0.225926944, 0.012, 1, 0, 0, 0], abs=1e-8)
    yaw = (0.252233008, 0.0, 0.0, 0.967666528)
    assert start.poses["brick"] == pytest.approx([0.118342656, 0.141117869, 0.0245, *yaw], abs=1e-8)
    lift = begin("so101_tower_lift_brick", 1_000_000)
    assert lift.q.tobytes() == start.q.tobytes(), "the same joints in all tasks of a family"
    reach = begin("so101_reach", 1_000_000)
    assert reach.point == pytest.approx([-0.028581095, 0.130582362, 0.208936462], abs=1e-8)


def test_streams_do_not_move_each_other(tmp_path):
    """Noise on the joints, a yaw or one more object must leave the other draws where they were."""
    stock = begin("so101_tower_lift_brick", 5)
    configs = copied_configs(tmp_path)

    def change(data):
        data["start"]["noise_rad"] = [0.0] * 6
        data["tasks"]["lift_brick"]["place"]["bowl"]["yaw"] = True

    edit(configs, "so101_tower", change)
    changed = begin(find_task("so101_tower_lift_brick", configs), 5)
    assert changed.q == pytest.approx(find_task("so101_tower_lift_brick").family.declaration.start.qpos_rad)
    np.testing.assert_array_equal(changed.poses["brick"], stock.poses["brick"])
    np.testing.assert_array_equal(changed.poses["bowl"][:3], stock.poses["bowl"][:3])
    edit(configs, "so101_tower", lambda data: data["tasks"]["lift_brick"]["place"].pop("bowl"))
    alone = begin(find_task("so101_tower_lift_brick", configs), 5)
    np.testing.assert_array_equal(alone.poses["brick"], stock.poses["brick"])


def test_streams_are_distinct_and_reproducible():
    drawn = {
        (seed, kind, number, attempt): stream(seed, kind, number, attempt).integers(0, 2**63, 4).tobytes()
        for seed in (0, 1, 2**40)
        for kind in (JOINTS, POINT, SLOTS)
        for number in (0, 1)
        for attempt in (0, 1)
    }
    assert len(set(drawn.values())) == len(drawn)
    assert all(stream(*key).integers(0, 2**63, 4).tobytes() == value for key, value in drawn.items())


def test_a_rejected_draw_is_followed_by_another_attempt():
    """Seeds whose first draw overlaps exist, and end apart all the same."""
    task = find_task("so101_tower_cube_in_bowl")
    region = task.family.declaration.regions["desk_brick"]
    retried = 0
    for seed in SEEDS:
        first = stream(seed, SLOTS, 1, 0).uniform(region.rect_m[:2], region.rect_m[2:]) + region.origin_m[:2]
        retried += not np.array_equal(first, begin(task, seed).poses["brick"][:2])
    assert 50 < retried < 700


def test_no_room_is_said_with_names_and_numbers(tmp_path):
    configs = copied_configs(tmp_path)

    def change(data):
        data["tasks"]["cube_in_bowl"]["place"]["brick"]["separation_m"] = 0.9

    edit(configs, "so101_tower", change)
    task = find_task("so101_tower_cube_in_bowl", configs)
    with pytest.raises(PlacementError) as caught:
        begin(task, 7)
    text = str(caught.value)
    for word in ("so101_tower_cube_in_bowl", "'brick'", "'desk_brick'", "bowl", "64 attempts", "seed 7", "separation_m",
                 "configs/families/so101_tower.yaml"):  # fmt: skip
        assert word in text


def test_the_vial_begins_as_attempts_of_the_pipeline_do():
    from so101.families.scene import workshop
    from so101.tasks.start import draw_start

    task = find_task("so101_vial_to_rack")
    mine, theirs = begin(task, 11), draw_start(workshop(task.family), np.random.default_rng(11))
    np.testing.assert_array_equal(mine.q, theirs.q)
    for name, pose in theirs.objects.items():
        np.testing.assert_array_equal(mine.poses[name], pose)
