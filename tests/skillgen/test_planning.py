"""From a segment to joints: which openings, in the arm's plane, clear of what stands around."""

from __future__ import annotations

import numpy as np
import pytest

from so101.config import load_config
from so101.geometry import make_pose, pose_from_pos_quat, pose_to_pos_quat, rotation_about_axis
from so101.skillgen import causes
from so101.skillgen.causes import AttemptFailed
from so101.skillgen.ik_rollout import AttemptRunner
from so101.skillgen.transit import HeldObject
from so101.tasks.placement import nominal_placements

HOME = np.array([-0.15, -0.61, -0.07, 1.51, 1.57])
UP = np.array([0.0, 0.0, 1.0])
GRASP, PLACE = 0, 1


@pytest.fixture(scope="module")
def runner(vial_seeds):
    return AttemptRunner(load_config(overrides=["task.name=three_vials_to_rack"]), vial_seeds)


@pytest.fixture
def objects(runner):
    return nominal_placements(runner.config)


def stand(runner, objects, name: str, opening: int) -> None:
    """Puts a vial into an opening, seated."""
    x, y = runner.task.success.openings_m[opening]
    T_base_rack = pose_from_pos_quat(objects["rack"])
    objects[name] = pose_to_pos_quat(T_base_rack @ make_pose(np.eye(3), np.array([x, y, 0.031])))


def opening_of(runner, objects, point: np.ndarray) -> tuple[int, float]:
    """Nearest opening to a point in base, and how far off its axis."""
    T_base_rack = pose_from_pos_quat(objects["rack"])
    xy = (np.linalg.inv(T_base_rack) @ [*point, 1.0])[:2]
    off = np.linalg.norm(np.array(runner.task.success.openings_m) - xy, axis=-1)
    return int(off.argmin()), float(off.min())


def segment_for(runner, index: int):
    return runner.pool.candidates(index, runner.task.subtasks[index].end_offset_frames[0])[0]


def plans(runner, index, objects, references=None, held=None):
    subtask, segment = runner.task.subtasks[index], segment_for(runner, index)
    if references is None:
        references = runner.planner.references(subtask, objects)
    if held is None and subtask.held:
        held = HeldObject(subtask.held, segment.T_ee_held)
    return runner.planner.plans(subtask, segment, references, HOME, 0.2, held, objects)


def pivot(runner, plan, held: HeldObject, joints: np.ndarray) -> np.ndarray:
    """Where the held object's pivot is in base."""
    T = runner.simulator.fk(joints) @ held.T_ee_obj
    return (T @ [*runner.task.success.pivot_m, 1.0])[:3]


# References


def test_a_grasp_refers_to_the_object_itself(runner, objects):
    (reference,) = runner.planner.references(runner.task.subtasks[GRASP], objects)
    np.testing.assert_array_equal(reference, pose_from_pos_quat(objects["vial_1"]))


@pytest.mark.parametrize("yaw", [-0.5, 0.0, 0.5])
def test_free_openings_come_farthest_from_the_shoulder_first(runner, objects, yaw):
    T_base_rack = pose_from_pos_quat(objects["rack"])
    T_base_rack[:3, :3] = rotation_about_axis(UP, yaw)
    objects["rack"] = pose_to_pos_quat(T_base_rack)
    references = runner.planner.references(runner.task.subtasks[PLACE], objects)
    away = [np.linalg.norm(T[:2, 3] - runner.settings.transit.pan_axis_m) for T in references]
    assert away == sorted(away, reverse=True) and len(away) == 4
    assert sorted(opening_of(runner, objects, T[:3, 3])[0] for T in references) == [0, 1, 2, 3]
    for T in references:
        np.testing.assert_allclose(T[:3, :3], T_base_rack[:3, :3], atol=1e-12)


@pytest.mark.parametrize("opening", range(4))
def test_an_opening_with_an_object_in_is_no_reference(runner, objects, opening):
    stand(runner, objects, "vial_2", opening)
    for subtask in (
        runner.task.subtasks[PLACE],
        runner.task.subtasks[PLACE].model_copy(update={"openings": [3, 1, 0, 2]}),
    ):
        references = runner.planner.references(subtask, objects)
        assert {opening_of(runner, objects, T[:3, 3])[0] for T in references} == {0, 1, 2, 3} - {opening}


def test_listed_openings_are_tried_in_their_order_and_only_they(runner, objects):
    subtask = runner.task.subtasks[PLACE].model_copy(update={"openings": [2, 0]})
    references = runner.planner.references(subtask, objects)
    assert [opening_of(runner, objects, T[:3, 3])[0] for T in references] == [2, 0]


def test_what_is_in_the_hand_does_not_take_the_opening_it_hangs_over(runner, objects):
    stand(runner, objects, "vial_1", 2)
    assert len(runner.planner.references(runner.task.subtasks[PLACE], objects)) == 4


# Plans


def test_plans_put_the_object_into_the_first_free_opening_and_avoid_the_occupied(runner, objects):
    held = HeldObject("vial_1", segment_for(runner, PLACE).T_ee_held)
    free = runner.planner.references(runner.task.subtasks[PLACE], objects)
    first = opening_of(runner, objects, free[0][:3, 3])[0]
    for expected_first in (True, False):
        if not expected_first:
            stand(runner, objects, "vial_2", first)
        plan = next(plans(runner, PLACE, objects))
        opening, off = opening_of(runner, objects, pivot(runner, plan, held, plan.q[plan.segment.anchor]))
        assert (opening == first) == expected_first
        assert off < runner.task.success.strict.max_axis_distance_m


def test_all_openings_taken_leave_no_reference_and_the_attempt_is_blocked(runner, objects, monkeypatch):
    monkeypatch.setattr(runner.planner, "references", lambda subtask, objects: [])
    demo = runner.run(0)
    assert demo.cause == causes.BLOCKED and demo.meta["sources"] == []


def test_grasps_close_across_the_vial_in_the_arms_plane_with_room_for_the_fixed_finger(runner, objects):
    T_base_obj = pose_from_pos_quat(objects["vial_1"])
    axis, standoff = T_base_obj[:3, 2], runner.settings.grasp.standoff_m
    for plan in list(plans(runner, GRASP, objects))[:4]:
        T = plan.T_wanted[plan.segment.anchor]
        x, _, z = T[:3, :3].T
        assert abs(z @ axis) < 1e-9
        outward = T[:2, 3] - runner.settings.transit.pan_axis_m
        assert abs(np.cross([*outward, 0.0], x)[2]) / np.linalg.norm(outward) < 0.03
        along = (T[:3, 3] + standoff * z - T_base_obj[:3, 3]) @ axis
        on_axis = T_base_obj[:3, 3] + along * axis
        off = T[:3, 3] + standoff * z - on_axis
        seed_off = grasp_offset(plan.segment)
        assert abs(np.linalg.norm(off) - seed_off) < 0.01  # as near the tube's axis as the seed's hand was
        assert (
            (plan.q >= runner.simulator.kinematics.lower[:5]) & (plan.q <= runner.simulator.kinematics.upper[:5])
        ).all()


def grasp_offset(segment) -> float:
    """Distance of the seed's hand to the axis of its object where the jaw closes."""
    T = np.linalg.inv(segment.T_base_obj) @ segment.T_base_ee[segment.anchor]
    return float(np.linalg.norm(T[:2, 3]))


def test_no_more_grasps_than_max_ways_and_several_of_them(runner, objects):
    found = list(plans(runner, GRASP, objects))
    assert 2 <= len(found) <= runner.settings.grasp.max_ways
    anchors = [plan.T_wanted[plan.segment.anchor] for plan in found]
    assert len({tuple(np.round(T.ravel(), 6)) for T in anchors}) == len(anchors)


def test_the_jaw_opens_no_wider_than_neighbours_allow(runner, objects):
    """The next vial is laid beside the one to be grasped, nearer and nearer."""
    alone = next(plans(runner, GRASP, objects))
    widest = []
    for gap in (0.06, 0.012, 0.006):
        beside = pose_from_pos_quat(objects["vial_1"])
        beside[1, 3] -= 2 * 0.0177 + gap
        objects["vial_3"] = pose_to_pos_quat(beside)
        try:
            plan = next(plans(runner, GRASP, objects))
        except AttemptFailed as failure:
            assert failure.cause == causes.BLOCKED
            widest.append(0.0)
            continue
        anchor = plan.segment.anchor
        widest.append(plan.jaw_target[: anchor + 1].max())
        stride, s = runner.settings.neighbours.check_stride, runner.settings.neighbours
        runner.transits.checker.start(objects)
        for t in range(0, anchor + 1, stride):
            assert runner.transits.checker.clear_of(
                np.append(plan.q[t], plan.jaw_target[t]), ["vial_2", "vial_3", "rack"], s.clearance_m
            )
    assert widest[0] == alone.jaw_target[: alone.segment.anchor + 1].max()
    assert widest == sorted(widest, reverse=True)


def test_an_object_walled_in_by_others_is_blocked(runner, objects):
    T = pose_from_pos_quat(objects["vial_1"])
    for name, side in (("vial_2", 1), ("vial_3", -1)):
        beside = T.copy()
        beside[1, 3] += side * 2 * 0.0177
        objects[name] = pose_to_pos_quat(beside)
    with pytest.raises(AttemptFailed) as caught:
        next(plans(runner, GRASP, objects))
    assert caught.value.cause == causes.BLOCKED


def test_out_of_reach_is_unreachable_with_how_far(runner, objects):
    objects["vial_1"][:2] = 0.6, 0.3
    with pytest.raises(AttemptFailed) as caught:
        next(plans(runner, GRASP, objects))
    assert caught.value.cause == causes.UNREACHABLE
    assert caught.value.figures["position_error_m"] > runner.settings.causes.unreachable_m


def test_where_the_vial_leans_too_much_when_let_go_is_taken_last(runner, objects, monkeypatch):
    """Openings whose lean is over the bound come after all others."""
    leans = iter([0.5, 0.1, 0.5, 0.1])
    monkeypatch.setattr(runner.planner, "_lean_rad", lambda plan, wanted, held: next(leans))
    references = runner.planner.references(runner.task.subtasks[PLACE], objects)
    found = list(plans(runner, PLACE, objects))
    T_held = segment_for(runner, PLACE).T_ee_held
    order = [
        opening_of(runner, objects, pivot(runner, p, HeldObject("vial_1", T_held), p.q[p.segment.anchor]))[0]
        for p in found
    ]
    wanted = [opening_of(runner, objects, T[:3, 3])[0] for T in references]
    assert order == [wanted[1], wanted[3], wanted[0], wanted[2]]


# Look-ahead


class Said:
    """Takes the place of `SegmentPlanner.plans`: serves some grasps, told apart by their first joints."""

    def __init__(self, served):
        self.served, self.asked = served, []

    def __call__(self, subtask, segment, references, q_now, jaw_now, held, objects):
        self.asked.append(held.name)
        if q_now[0] not in self.served:
            raise AttemptFailed(causes.BLOCKED)
        yield None


def grasps(runner, objects) -> list:
    return list(plans(runner, 2, objects))


def test_with_something_in_the_rack_grasps_that_can_be_put_down_come_first(runner, objects, monkeypatch):
    stand(runner, objects, "vial_1", 3)
    found = grasps(runner, objects)[:4]
    said = Said({plan.q[-1][0] for plan in found[2:]})
    monkeypatch.setattr(runner.planner, "plans", said)
    order = runner._servable_first(2, iter(found), objects)
    assert next(order) is found[2]
    assert said.asked == ["vial_2"] * 3  # no further than the first that serves
    assert [id(plan) for plan in order] == [id(plan) for plan in (found[3], *found[:2])]


def test_an_empty_rack_and_a_last_subtask_need_no_look_ahead(runner, objects, monkeypatch):
    said = Said(set())
    monkeypatch.setattr(runner.planner, "plans", said)
    assert list(runner._servable_first(GRASP, iter([1, 2, 3]), objects)) == [1, 2, 3]
    stand(runner, objects, "vial_1", 3)
    assert list(runner._servable_first(len(runner.task.subtasks) - 1, iter([1, 2, 3]), objects)) == [1, 2, 3]
    assert not said.asked
