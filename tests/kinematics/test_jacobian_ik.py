"""The Jacobian IK reaches what can be reached, stays within limits, and puts position first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from so101.config import load_config
from so101.geometry import make_pose, rotation_about_axis, rotation_angle
from so101.kinematics import ArmKinematics, JacobianIk
from so101.kinematics.jacobian_ik import _rotation_error

FORMULATIONS = ["position_first", "weighted"]


def make(*overrides: str) -> JacobianIk:
    return JacobianIk(load_config(overrides=list(overrides)))


@pytest.fixture(scope="module", params=FORMULATIONS)
def ik(request):
    return make(f"ik.jacobian.formulation={request.param}", "ik.jacobian.null_space.gain=0.0")


@pytest.fixture(scope="module")
def targets(vial_config) -> np.ndarray:
    """(40, 5) joints well inside the limits."""
    arm = ArmKinematics(vial_config)
    middle, half = (arm.lower + arm.upper)[:5] / 2, (arm.upper - arm.lower)[:5] / 2
    return middle + half * np.random.default_rng(7).uniform(-0.6, 0.6, (40, 5))


def test_poses_of_the_arm_are_found_from_nearby(ik, targets):
    rng = np.random.default_rng(8)
    reached = 0
    for q in targets:
        T = ik.kinematics.fk(q)
        result = ik.solve(q + rng.uniform(-0.15, 0.15, 5), T, 300)
        reached += result.position_error_m < 1e-3 and result.rotation_error_rad < 0.02
    assert reached >= 39


def test_errors_returned_are_those_of_the_joints_returned(ik, targets):
    for q in targets[:10]:
        T = ik.kinematics.fk(q)
        result = ik.solve(q + 0.2, T, 4)
        now = ik.kinematics.fk(result.q)
        assert result.position_error_m == pytest.approx(np.linalg.norm(now[:3, 3] - T[:3, 3]), abs=1e-12)
        assert result.rotation_error_rad == pytest.approx(rotation_angle(now[:3, :3], T[:3, :3]), abs=1e-7)


def test_joints_stay_within_limits_when_the_target_lies_beyond(ik):
    arm = ik.kinematics
    for q in (arm.lower[:5], arm.upper[:5]):
        T = arm.fk(q)
        T[:3, 3] *= 1.0 / np.linalg.norm(T[:3, 3])  # 1 m away: the arm reaches half as far
        result = ik.solve(np.zeros(5), T, 100)
        assert (result.q >= arm.lower[:5]).all() and (result.q <= arm.upper[:5]).all()
        assert result.position_error_m > 0.01


def test_no_step_is_longer_than_the_clamp(ik, targets):
    for q, other in zip(targets[:-1], targets[1:], strict=True):
        dq, *_ = ik.step(q, ik.kinematics.fk(other))
        assert np.abs(dq).max() <= ik.settings.max_delta_q_rad + 1e-12


def test_nothing_moves_at_the_target(ik, targets):
    for q in targets[:5]:
        dq, _, position_error, rotation_error = ik.step(q, ik.kinematics.fk(q))
        np.testing.assert_allclose(dq, 0, atol=1e-9)
        assert position_error < 1e-12 and rotation_error < 1e-9


def test_a_solution_does_not_depend_on_what_was_asked_before(ik, targets):
    first = ik.solve(targets[0] + 0.1, ik.kinematics.fk(targets[0]), 5).q
    ik.solve(targets[3], ik.kinematics.fk(targets[4]), 5)
    np.testing.assert_array_equal(ik.solve(targets[0] + 0.1, ik.kinematics.fk(targets[0]), 5).q, first)


def test_position_first_reaches_a_place_whose_heading_the_arm_cannot_serve(targets):
    """A turn of 0.5 rad about the axis without a joint costs no position; the weighted form trades."""
    errors = {}
    for formulation in FORMULATIONS:
        ik = make(f"ik.jacobian.formulation={formulation}")
        q = np.array([0.0, 0.3, 0.2, 0.4, 1.57])
        T = ik.kinematics.fk(q)
        T[:3, :3] = T[:3, :3] @ rotation_about_axis(np.array([0.0, 1.0, 0.0]), 0.5)
        result = ik.solve(q, T, 200)
        errors[formulation] = result.position_error_m
        assert result.rotation_error_rad > 0.3
    assert errors["position_first"] < 1e-4
    assert errors["position_first"] < errors["weighted"] < 0.05


def test_adaptive_rotation_is_continuous_where_it_begins(targets):
    """At the threshold the joint step does not jump; far away it differs from the unscaled one."""
    scaled = make("ik.jacobian.max_delta_q_rad=10")
    plain = make("ik.jacobian.max_delta_q_rad=10", "ik.jacobian.adaptive_rotation.enabled=false")
    threshold = scaled.settings.adaptive_rotation.threshold_m
    q, direction = targets[0], np.array([0.6, 0.0, 0.8])
    turn = rotation_about_axis(np.array([0.0, 0.0, 1.0]), 0.3)

    def step(ik: JacobianIk, distance: float) -> np.ndarray:
        T = ik.kinematics.fk(q)
        return ik.step(q, make_pose(turn @ T[:3, :3], T[:3, 3] + distance * direction))[0]

    at = step(scaled, threshold * (1 - 1e-9))
    np.testing.assert_allclose(step(scaled, threshold * (1 + 1e-9)), at, atol=1e-6)
    np.testing.assert_array_equal(at, step(plain, threshold * (1 - 1e-9)))
    assert np.abs(step(scaled, 5 * threshold) - step(plain, 5 * threshold)).max() > 1e-3


def test_the_scale_never_falls_below_its_floor(targets):
    ik = make("ik.jacobian.max_delta_q_rad=10", "ik.jacobian.adaptive_rotation.floor=1.0")
    plain = make("ik.jacobian.max_delta_q_rad=10", "ik.jacobian.adaptive_rotation.enabled=false")
    T = ik.kinematics.fk(targets[1])
    np.testing.assert_array_equal(ik.step(targets[0], T)[0], plain.step(targets[0], T)[0])


coordinate = st.floats(-1, 1)
axes = (
    st.tuples(coordinate, coordinate, coordinate)
    .map(np.array)
    .filter(lambda v: np.linalg.norm(v) > 0.1)
    .map(lambda v: v / np.linalg.norm(v))
)


@given(axes, st.floats(1e-6, np.pi - 1e-6))
def test_rotation_error_turns_the_one_into_the_other(axis, angle):
    R_now = rotation_about_axis(np.array([0.0, 0.6, 0.8]), 0.7)
    error = _rotation_error(rotation_about_axis(axis, angle) @ R_now, R_now)
    np.testing.assert_allclose(error, axis * angle, atol=1e-8)


@given(axes, st.sampled_from([np.pi, np.pi - 1e-10, np.pi - 1e-12]))
def test_rotation_error_of_a_half_turn_is_a_half_turn_about_that_axis(axis, angle):
    error = _rotation_error(rotation_about_axis(axis, angle), np.eye(3))
    assert np.linalg.norm(error) == pytest.approx(np.pi, abs=1e-8)
    assert abs(error @ axis) == pytest.approx(np.pi, abs=1e-6)


def test_rotation_error_of_equal_rotations_is_zero():
    np.testing.assert_array_equal(_rotation_error(np.eye(3), np.eye(3)), 0)
