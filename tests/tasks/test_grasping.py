"""Pinches: across the axis, in the arm's plane, over the table, reached; and what is held can be stood up."""

from __future__ import annotations

import itertools

import mujoco
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from so101.config import load_config
from so101.geometry import invert_pose, make_pose, pose_from_pos_quat, rotation_about_axis, rotation_angle
from so101.kinematics import ArmKinematics
from so101.sim.bake import baked_model
from so101.tasks.grasping import PinchFinder, ServeCheck, finger_corners, table_top_m, turned_radial, upright
from so101.tasks.placement import nominal_placements

UP = np.array([0.0, 0.0, 1.0])
CONFIG = load_config(overrides=["task.name=vial_to_rack_wide"])
SETTINGS = CONFIG.task.pinch
KINEMATICS = ArmKinematics(CONFIG)
FINDER = PinchFinder(CONFIG, KINEMATICS)
DIPS = np.deg2rad(SETTINGS.dips_deg)
RACK = pose_from_pos_quat(nominal_placements(CONFIG)["rack"])

headings = st.floats(-np.pi, np.pi)
azimuths = st.floats(-1.2, 1.2)
distances = st.floats(0.14, 0.30)  # of the object from the pan axis
leans = st.floats(0.0, 0.35)


def spot(distance: float, azimuth: float, height: float = 0.05) -> np.ndarray:
    """(3,) in base, from the pan axis."""
    return np.array([*(FINDER.pan_axis + distance * np.array([np.cos(azimuth), np.sin(azimuth)])), height])


def lying(heading: float) -> np.ndarray:
    """Axis (3,) of a lying object."""
    return np.array([np.cos(heading), np.sin(heading), 0.0])


def vial_at(point: np.ndarray, heading: float, offset: float) -> np.ndarray:
    """T_base_obj of a lying vial whose point `offset` along its axis is at `point`."""
    axis = lying(heading)
    return make_pose(np.column_stack([np.cross(UP, axis), UP, axis]), point - offset * axis)


def left(point: np.ndarray) -> np.ndarray:
    """Normal (3,) of the arm's plane through a point."""
    outward = point[:2] - FINDER.pan_axis
    return np.array([-outward[1], outward[0], 0.0]) / np.linalg.norm(outward)


def turned(T: np.ndarray, angle: float) -> np.ndarray:
    """(4, 4) turned about the pan axis."""
    axis = make_pose(np.eye(3), np.array([*FINDER.pan_axis, 0.0]))
    return axis @ make_pose(rotation_about_axis(UP, angle), np.zeros(3)) @ invert_pose(axis) @ T


# Pinches


@given(distances, azimuths, headings, st.sampled_from(list(DIPS)), st.booleans())
def test_a_pinch_is_across_the_axis_in_the_arms_plane_within_the_tilt_and_reached(
    distance, azimuth, heading, dip, flipped
):
    point, axis = spot(distance, azimuth), lying(heading)
    pinch = FINDER.pinch(point, axis, dip, flipped)
    assume(pinch is not None)
    x, _, z = pinch.T_base_ee[:3, :3].T
    assert abs(z @ axis) < 1e-9  # the jaws close across the object
    assert abs(x @ left(point)) < 1e-9 and x[2] == pytest.approx(-np.sin(dip))
    assert x[:2] @ (point[:2] - FINDER.pan_axis) > 0  # away from the arm
    assert abs(np.arcsin(np.clip(z[2], -1, 1))) <= np.deg2rad(SETTINGS.max_tilt_deg) + 1e-9
    assert (np.cross(axis, x) @ z < 0) == flipped == pinch.flipped
    assert ((pinch.q >= KINEMATICS.lower[:5]) & (pinch.q <= KINEMATICS.upper[:5])).all()
    p, R = KINEMATICS.update(pinch.q)
    np.testing.assert_allclose(p, pinch.T_base_ee[:3, 3], atol=1e-9)
    assert rotation_angle(R, pinch.T_base_ee[:3, :3]) < SETTINGS.tolerance_rad


@given(distances, azimuths, headings, st.sampled_from(list(DIPS)), st.booleans(), st.floats(0.036, 0.08))
def test_the_fingers_stay_over_the_table_and_the_hand_is_raised_no_more_than_that_takes(
    distance, azimuth, heading, dip, flipped, height
):
    point = spot(distance, azimuth, height)
    pinch = FINDER.pinch(point, lying(heading), dip, flipped)
    assume(pinch is not None)
    corners = finger_corners(CONFIG, SETTINGS.closed_jaw_rad) @ pinch.T_base_ee[:3, :3].T + pinch.T_base_ee[:3, 3]
    room = corners[:, 2].min() - table_top_m(CONFIG) - SETTINGS.table_clearance_m
    raised = pinch.T_base_ee[:3, 3] - point
    np.testing.assert_allclose(raised[:2], 0, atol=1e-12)
    assert room > -1e-9 and raised[2] >= 0
    assert raised[2] < 1e-12 or room < 1e-9


@given(distances, st.floats(-0.6, 0.6), headings, st.floats(-0.5, 0.5))
def test_turning_the_object_about_the_pan_axis_turns_the_pinch(distance, azimuth, heading, angle):
    before = FINDER.pinch(spot(distance, azimuth), lying(heading), DIPS[0], False)
    after = FINDER.pinch(spot(distance, azimuth + angle), lying(heading + angle), DIPS[0], False)
    assert (before is None) == (after is None)
    assume(before is not None)
    np.testing.assert_allclose(after.T_base_ee, turned(before.T_base_ee, angle), atol=1e-9)
    np.testing.assert_allclose(after.q, before.q + [-angle, 0, 0, 0, 0], atol=1e-8)


def test_pinches_come_in_the_order_of_dips_then_sides_and_are_all_there_are():
    point, axis = spot(0.2, -0.3), lying(0.4)
    found = [(p.dip_rad, p.flipped) for p in FINDER.pinches(point, axis, DIPS)]
    every = [(d, f) for d, f in itertools.product(DIPS, (False, True)) if FINDER.pinch(point, axis, d, f) is not None]
    assert found == every and len(found) > 4
    assert [p.flipped for p in FINDER.pinches(point, axis, DIPS, flips=[True])] == [True] * sum(f for _, f in every)


def test_what_cannot_be_pinched_is_none():
    point = spot(0.2, 0.0)
    along_the_approach = np.array([np.cos(DIPS[0]), 0.0, -np.sin(DIPS[0])])
    assert FINDER.pinch(point, along_the_approach, DIPS[0], False) is None
    assert FINDER.pinch(spot(0.8, 0.0), lying(0.0), DIPS[0], False) is None  # out of reach
    across = np.deg2rad(40.0)  # seen along the ray, the jaws of a 40 degree dip would close at a slope over the bound
    assert FINDER.pinch(point, lying(np.pi / 4), across, False) is None
    assert FINDER.pinch(point, lying(0.0), across, False) is not None


def test_a_hand_turned_out_of_the_plane_is_not_reachable():
    T = FINDER.pinch(spot(0.2, 0.1), lying(0.3), DIPS[2], False).T_base_ee
    assert FINDER.reachable(T)
    for angle, within in ((0.0, True), (3 * SETTINGS.tolerance_rad, False)):
        out = make_pose(rotation_about_axis(T[:3, 1], angle) @ T[:3, :3], T[:3, 3])
        for_the_arm = FINDER.joints(out)
        np.testing.assert_allclose(KINEMATICS.update(for_the_arm)[0], T[:3, 3], atol=1e-9)  # nearest, with no promise
        assert FINDER.reachable(out) == within


def test_fingers_and_table_are_those_of_the_model():
    model = baked_model(CONFIG)
    data = mujoco.MjData(model)
    data.qpos[:6] = 0.0
    vial = CONFIG.task.tasks["vial_to_rack"].objects["vial"]
    cap_radius = CONFIG.scene.props["vial"].geoms[1].size_m[0]
    resting = vial.position_m[2] - CONFIG.robot.base_position_m[2] - cap_radius
    assert table_top_m(CONFIG) == pytest.approx(resting, abs=0.004)  # a lying vial starts just above it
    closed, wide = (finger_corners(CONFIG, jaw).reshape(-1, 8, 3) for jaw in (SETTINGS.closed_jaw_rad, 0.8))
    names = [box.name for box in CONFIG.robot.jaw_boxes]
    for name, a, b in zip(names, closed, wide, strict=True):
        assert np.allclose(a, b) != name.startswith("moving")  # the jaw moves its own boxes and no others
    tip, moving = (closed[names.index(name)] for name in ("fixed_finger_tip", "moving_jaw_tip"))
    tube = 2 * CONFIG.scene.props["vial"].geoms[0].size_m[0]
    assert moving[:, 2].min() - tip[:, 2].max() == pytest.approx(tube, abs=1e-3)  # what closed_jaw_rad stands for


# Standing it up


def held(heading: float, dip: float, offset: float = 0.049) -> np.ndarray:
    """T_ee_obj (4, 4) of a lying vial pinched `offset` along its axis."""
    T_base_obj = vial_at(spot(0.2, -0.2), heading, offset)
    pinch = FINDER.pinch(spot(0.2, -0.2), lying(heading), dip, False)
    assume(pinch is not None)
    return invert_pose(pinch.T_base_ee) @ T_base_obj


@given(distances, azimuths, headings, st.sampled_from(list(DIPS)), leans)
def test_the_pivot_stays_over_the_opening_and_the_top_leans_away_in_the_arms_plane(
    distance, azimuth, heading, dip, lean
):
    place, T_ee_obj, pivot = spot(distance, azimuth, 0.1), held(heading, dip), np.array([0.0, 0.0, 0.01])
    T = upright(place, T_ee_obj, lean, pivot, FINDER.pan_axis)
    np.testing.assert_allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(T[:3, 3] + T[:3, :3] @ pivot, place + pivot, atol=1e-9)
    assert T[2, 2] == pytest.approx(np.cos(lean), abs=1e-9)
    outward = np.cross(left(place), UP)
    np.testing.assert_allclose(T[:3, 2], np.cos(lean) * UP + np.sin(lean) * outward, atol=1e-9)
    approach = (T @ invert_pose(T_ee_obj))[:3, 0]
    assert abs(approach @ left(place)) < 1e-9 and approach @ outward > 0


@given(azimuths, headings, st.sampled_from(list(DIPS)), headings)
def test_an_object_turned_radial_keeps_its_place_and_tilt_whatever_its_yaw_was(azimuth, heading, dip, yaw):
    T_ee_obj = held(heading, dip)
    T = make_pose(rotation_about_axis(UP, yaw), spot(0.25, azimuth, 0.1))
    radial = turned_radial(T, T_ee_obj, FINDER.pan_axis)
    np.testing.assert_allclose(radial[:3, 3], T[:3, 3])
    np.testing.assert_allclose(radial[:3, 2], UP, atol=1e-9)
    other = turned_radial(make_pose(rotation_about_axis(UP, yaw + 1.0), T[:3, 3]), T_ee_obj, FINDER.pan_axis)
    np.testing.assert_allclose(other, radial, atol=1e-9)
    assert abs((radial @ invert_pose(T_ee_obj))[:3, 0] @ left(T[:3, 3])) < 1e-9


@given(distances, azimuths, headings)
def test_what_can_be_served_has_a_pinch_from_which_an_opening_is_reached(distance, azimuth, heading):
    check, success = ServeCheck(CONFIG, FINDER), CONFIG.task.active.success
    T_base_obj = vial_at(spot(distance, azimuth), heading, 0.049)
    pinch = check.pinch(T_base_obj, 0.049, RACK)
    assume(pinch is not None)
    T_ee_obj = invert_pose(pinch.T_base_ee) @ T_base_obj
    opening = check.opening(T_ee_obj, RACK)
    seated = 0.5 * (success.strict.min_height_m + success.strict.max_height_m) + SETTINGS.place_height_m
    place = (RACK @ [*success.openings_m[opening], seated, 1.0])[:3]
    stands = [upright(place, T_ee_obj, np.deg2rad(lean), success.pivot_m, FINDER.pan_axis)
              for lean in SETTINGS.place_lean_deg]  # fmt: skip
    assert any(FINDER.reachable(T @ invert_pose(T_ee_obj)) for T in stands)


def test_the_first_pinch_that_serves_is_taken_and_no_container_serves_none():
    check, point = ServeCheck(CONFIG, FINDER), spot(0.2, -0.4)
    T_base_obj = vial_at(point, 0.3, 0.049)
    serving = [
        pinch for pinch in FINDER.pinches(point, lying(0.3), DIPS)
        if check.opening(invert_pose(pinch.T_base_ee) @ T_base_obj, RACK) is not None
    ]  # fmt: skip
    np.testing.assert_array_equal(check.pinch(T_base_obj, 0.049, RACK).q, serving[0].q)
    far = make_pose(np.eye(3), np.array([1.0, 0.0, 0.03]))
    assert check.pinch(T_base_obj, 0.049, far) is None
    assert check.pinch(vial_at(spot(0.6, 0.0), 0.3, 0.049), 0.049, RACK) is None
