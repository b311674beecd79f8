"""A demo that succeeds, cut and changed: how far each came."""

import numpy as np
import pytest

from so101.evaluation.closed_loop.stages import NONE, STAGES, furthest, stage_frames
from so101.skillgen.subtasks import jaw_changes


@pytest.fixture(scope="module")
def demo(vial_runner):
    return next(demo for index in range(10) if (demo := vial_runner.run(index)).strict)


@pytest.fixture(scope="module")
def classify(vial_config, vial_runner):
    def frames_of(q, sent, objects):
        return stage_frames(vial_config, vial_runner.simulator.kinematics.fk(q), q, sent, objects)

    return frames_of


def cut(demo, end):
    return demo.q[:end], demo.q_target[:end], {name: poses[:end] for name, poses in demo.objects.items()}


def jaw_times(demo):
    """Frames where the jaw begins to close on the vial and to open over the rack, by its commands."""
    changes = [start for start, _ in jaw_changes(demo.q_target[:, 5], 0.05)]
    first, last = demo.meta["subtasks"][0][2], demo.num_frames
    jaw = demo.q_target[:, 5]
    closing = next(i for i in changes if jaw[min(i + 15, last - 1)] < jaw[i] - 0.3)
    opening = next(i for i in changes if i > first and jaw[min(i + 15, last - 1)] > jaw[i] + 0.3)
    return closing, opening


def test_a_demo_reaches_every_stage_in_order(demo, classify):
    frames = classify(*cut(demo, demo.num_frames))
    assert list(frames) == list(STAGES) and furthest(frames) == "released"
    assert sorted(frames.values()) == list(frames.values())


def test_stages_are_where_the_commands_of_the_jaw_put_them(demo, classify):
    frames, (closing, opening) = classify(*cut(demo, demo.num_frames)), jaw_times(demo)
    assert frames["approached"] <= closing < frames["grasped"] < frames["lifted"] < frames["over_rack"]
    assert frames["inserted"] <= opening + 10 and opening <= frames["released"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_demo_cut_off_and_held_there_came_as_far(demo, classify, stage):
    """Cut right before and right at a stage; then the arm is told to stay where it is, for a second."""
    at = classify(*cut(demo, demo.num_frames))[stage]
    before = STAGES[STAGES.index(stage) - 1] if stage != STAGES[0] else NONE
    for end, expected in ((at, before), (at + 1, stage)):
        q, sent, objects = cut(demo, end)
        held = [np.concatenate([a, np.repeat(q[-1:], 30, axis=0)]) for a in (q, sent)]
        held_objects = {name: np.concatenate([p, np.repeat(p[-1:], 30, axis=0)]) for name, p in objects.items()}
        assert furthest(classify(*held, held_objects)) == expected


def test_an_arm_that_stays_home_reaches_nothing(demo, classify):
    q, sent, objects = (demo.q[:1].repeat(60, 0), demo.q_target[:1].repeat(60, 0), {})
    objects = {name: poses[:1].repeat(60, 0) for name, poses in demo.objects.items()}
    assert furthest(classify(q, sent, objects)) == NONE


def test_an_arm_that_goes_through_the_motions_beside_the_vial_grasps_nothing(demo, classify):
    """The vial stays where it was; the jaw closes freely on nothing."""
    q = demo.q.copy()
    q[:, 5] = demo.q_target[:, 5]
    objects = {name: poses[:1].repeat(demo.num_frames, 0) for name, poses in demo.objects.items()}
    assert furthest(classify(q, demo.q_target, objects)) == "approached"


def test_a_vial_that_slips_out_at_once_was_grasped_and_not_lifted(demo, classify):
    at = classify(*cut(demo, demo.num_frames))["lifted"]
    objects = {name: poses.copy() for name, poses in demo.objects.items()}
    objects["vial"][at - 1 :] = objects["vial"][0]
    assert furthest(classify(demo.q, demo.q_target, objects)) == "grasped"


def test_a_vial_dropped_on_the_way_was_lifted(demo, classify):
    at = classify(*cut(demo, demo.num_frames))["over_rack"]
    objects = {name: poses.copy() for name, poses in demo.objects.items()}
    objects["vial"][at - 1 :] = objects["vial"][0]
    assert furthest(classify(demo.q, demo.q_target, objects)) == "lifted"


def test_a_vial_laid_upon_the_rack_was_over_it_and_not_inserted(demo, classify):
    at = classify(*cut(demo, demo.num_frames))["inserted"]
    objects = {name: poses.copy() for name, poses in demo.objects.items()}
    objects["vial"][at:] = objects["vial"][at - 1]
    assert furthest(classify(demo.q, demo.q_target, objects)) == "over_rack"


def test_a_vial_that_flies_by_itself_is_not_lifted(demo, classify):
    """It rises while the arm is at home: nothing counts."""
    q, sent = demo.q[:1].repeat(demo.num_frames, 0), demo.q_target[:1].repeat(demo.num_frames, 0)
    assert furthest(classify(q, sent, demo.objects)) in (NONE, "approached")


def test_of_two_objects_the_one_that_came_least_far_counts(demo, vial_runner):
    from so101.config import load_config

    config = load_config(overrides=["task.name=two_vials_to_rack"])
    stays = demo.objects["vial"][:1].repeat(demo.num_frames, 0) + np.array([-0.1, -0.1, 0, 0, 0, 0, 0])
    objects = {"vial_1": demo.objects["vial"], "vial_2": stays, "rack": demo.objects["rack"]}
    T_base_ee = vial_runner.simulator.kinematics.fk(demo.q)
    assert furthest(stage_frames(config, T_base_ee, demo.q, demo.q_target, objects)) == NONE
    both = {**objects, "vial_2": demo.objects["vial"]}
    assert furthest(stage_frames(config, T_base_ee, demo.q, demo.q_target, both)) == "released"
