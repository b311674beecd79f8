"""Segments serve every subtask that handles the same kinds of things, of whichever task."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from so101.config import load_config
from so101.errors import ConfigError, DataError
from so101.kinematics import ArmKinematics
from so101.skillgen.segment_pool import SegmentPool, role

THREE = "task.name=three_vials_to_rack"


def pool(seeds, *overrides: str) -> SegmentPool:
    config = load_config(overrides=list(overrides))
    return SegmentPool(config, seeds, ArmKinematics(config))


@pytest.fixture(scope="module")
def one(vial_seeds):
    return pool(vial_seeds, "task.name=vial_to_rack")


@pytest.fixture(scope="module")
def three(vial_seeds):
    return pool(vial_seeds, THREE)


def test_a_role_is_what_kind_of_thing_is_handled_not_its_name():
    tasks = load_config().task.tasks
    one, three = (
        [role(tasks[name], s) for s in tasks[name].subtasks] for name in ("vial_to_rack", "three_vials_to_rack")
    )
    assert one == [("vial", None), ("rack", "vial")]
    assert three == one * 3
    assert not set(one) & {role(tasks["cube_in_box"], s) for s in tasks["cube_in_box"].subtasks}


@pytest.mark.parametrize("index", range(6))
def test_segments_of_one_vial_serve_every_vial(one, three, vial_seeds, index):
    served, own = three.candidates(index, 6), one.candidates(index % 2, 6)
    assert [segment.seed_name for segment in served] == [seed.name for seed in vial_seeds]
    for a, b in zip(served, own, strict=True):
        assert (a.anchor, a.release_end) == (b.anchor, b.release_end)
        for name in ("T_base_obj", "T_base_target", "T_base_ee", "jaw_target"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        assert (a.T_ee_held is None) == (index % 2 == 0)


def test_cuts_are_kept_and_told_apart_by_their_end(one):
    (first, *_), (again, *_), (later, *_) = one.candidates(0, 6), one.candidates(0, 6), one.candidates(0, 10)
    assert first is again
    assert len(later.T_base_target) >= len(first.T_base_target) and later is not first


def test_a_task_of_its_own_seeds_takes_them(vial_seeds):
    """With two subtasks of one role in the seeds, each of them serves both."""
    both = ["task.name=two_vials_to_rack", "task.tasks.two_vials_to_rack.seed_task=null"]
    config = load_config(overrides=both)
    (seed, *_) = vial_seeds
    n = seed.num_frames
    rises = np.asarray(seed.signals["grasped"], bool)
    twice = dataclasses.replace(
        seed,
        q=np.tile(seed.q, (2, 1)), q_target=np.tile(seed.q_target, (2, 1)),
        objects={"vial_1": np.tile(seed.objects["vial"], (2, 1, 1)), "vial_2": np.tile(seed.objects["vial"], (2, 1, 1)),
                 "rack": np.tile(seed.objects["rack"], (2, 1, 1))},
        signals={"grasped_1": np.append(rises, rises), "placed_1": np.arange(2 * n) >= n,
                 "grasped_2": np.append(np.zeros(n, bool), rises)},
    )  # fmt: skip
    task = config.task.tasks["two_vials_to_rack"]
    task.subtasks[1] = task.subtasks[1].model_copy(update={"signal": "placed_1"})
    pool = SegmentPool(config, [twice], ArmKinematics(config))
    for index in range(4):
        subtasks = [segment.subtask.name for segment in pool.candidates(index, 6)]
        assert subtasks == (["grasp_1", "grasp_2"] if index % 2 == 0 else ["place_1", "place_2"])


def test_seeds_that_cannot_be_cut_are_left_out_while_others_can(vial_seeds):
    blind = dataclasses.replace(vial_seeds[0], name="blind", signals={})
    assert [seed.name for seed in pool([blind, *vial_seeds], THREE).usable] == [seed.name for seed in vial_seeds]
    with pytest.raises(DataError, match=r"no seed can be cut into the task's subtasks:\nseed blind: signal 'grasped'"):
        pool([blind], THREE)
    with pytest.raises(DataError, match="there are no seeds"):
        pool([], THREE)


def test_seeds_of_a_task_that_handles_other_things_are_refused(vial_seeds):
    with pytest.raises(
        DataError,
        match="task 'three_vials_to_rack' takes its seeds from task 'cube_in_box', which has nothing like the subtasks "
        "grasp_1, place_1, grasp_2, place_2, grasp_3, place_3; correct seed_task in task.yaml",
    ):
        pool(vial_seeds, THREE, "task.tasks.three_vials_to_rack.seed_task=cube_in_box")


def test_an_unknown_seed_task_is_a_fault_of_the_configuration():
    with pytest.raises(ConfigError, match="tasks.two_vials_to_rack.seed_task is 'vial_to_rac'; tasks: .*vial_to_rack"):
        load_config(overrides=["task.tasks.two_vials_to_rack.seed_task=vial_to_rac"])
