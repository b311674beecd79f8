"""Closed-form joints in the arm's plane: exact, complete on the branch it promises, and turning with the pan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from so101.config import load_config
from so101.kinematics import ArmKinematics
from so101.kinematics.planar import PlanarArm

UP = np.array([0.0, 0.0, 1.0])
KINEMATICS = ArmKinematics(load_config())
PLANAR = PlanarArm(KINEMATICS)
LOWER, UPPER = KINEMATICS.lower[:5], KINEMATICS.upper[:5]

joints = st.tuples(*(st.floats(low, high) for low, high in zip(LOWER, UPPER, strict=True))).map(np.array)


def front(q: np.ndarray) -> np.ndarray:
    """(3,) horizontal unit vector in which the arm points at joints q, also when the hand is folded back."""
    lift_axis, at_zero = KINEMATICS.joint_axes(q)[1][1], KINEMATICS.joint_axes(np.zeros(5))[1][1]
    ahead = np.cross(UP, at_zero) @ KINEMATICS.update(np.zeros(5))[0]
    return np.cross(UP, lift_axis) * np.sign(ahead)


def outward(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """`front`, or its opposite when p (3,) is on the other side of the pan axis."""
    return front(q) * np.sign(front(q)[:2] @ (p[:2] - PLANAR.pan_axis))


def elevation(R: np.ndarray, forward: np.ndarray) -> float:
    """Of the approach, rad, over the horizontal unit vector."""
    return float(np.arctan2(R[2, 0], R[:, 0] @ forward))


def posed(q: np.ndarray) -> tuple[np.ndarray, float]:
    """Position (3,) and elevation of the hand at joints q."""
    p, R = (part.copy() for part in KINEMATICS.update(q))
    return p, elevation(R, outward(p, q))


def elbow_height(q: np.ndarray) -> float:
    """Sine of the angle by which the elbow stands over the line from shoulder to wrist."""
    anchors, ahead = KINEMATICS.joint_axes(q)[0], front(q)
    shoulder, elbow, wrist = (np.array([anchors[joint] @ ahead, anchors[joint][2]]) for joint in (1, 2, 3))
    a, b = elbow - shoulder, wrist - shoulder
    return float((b[0] * a[1] - b[1] * a[0]) / np.linalg.norm(a) / np.linalg.norm(b))


@given(joints)
def test_the_hand_is_where_it_was_asked_to_be(q):
    p, up = posed(q)
    solved = PLANAR.solve(p, up, q[4])
    assume(solved is not None)
    assert ((solved >= LOWER) & (solved <= UPPER)).all()
    reached, R = (part.copy() for part in KINEMATICS.update(solved))
    np.testing.assert_allclose(reached, p, atol=1e-9)
    miss = elevation(R, outward(reached, solved)) - up
    assert abs((miss + np.pi) % (2 * np.pi) - np.pi) < 1e-9
    assert solved[4] == q[4]


@given(joints)
def test_joints_with_the_elbow_up_and_the_hand_in_front_come_back(q):
    """Nothing the arm can do on this branch is missed, and it is that branch."""
    p, up = posed(q)
    assume(np.linalg.norm(p[:2] - PLANAR.pan_axis) > 0.02)  # beside the axis the pan is loose
    assume(front(q) @ outward(p, q) > 0 and elbow_height(q) > 0.01)  # a straight elbow loses digits
    assume(((q > LOWER + 1e-6) & (q < UPPER - 1e-6)).all())  # at a stop the last bit decides
    np.testing.assert_allclose(PLANAR.solve(p, up, q[4]), q, atol=1e-7)


@given(joints)
def test_the_elbow_is_up(q):
    solved = PLANAR.solve(*posed(q), q[4])
    assume(solved is not None)
    assert elbow_height(solved) > -1e-6


@given(joints, st.floats(-1.0, 1.0))
def test_turning_the_goal_about_the_pan_axis_turns_the_pan_alone(q, angle):
    p, up = posed(q)
    solved = PLANAR.solve(p, up, q[4])
    assume(solved is not None and LOWER[0] < solved[0] - abs(angle) and solved[0] + abs(angle) < UPPER[0])
    c, s = np.cos(angle), np.sin(angle)
    turned = np.append(PLANAR.pan_axis + np.array([[c, -s], [s, c]]) @ (p[:2] - PLANAR.pan_axis), p[2])
    expected = solved + [-angle, 0, 0, 0, 0]  # this arm's pan counts clockwise
    np.testing.assert_allclose(PLANAR.solve(turned, up, q[4]), expected, atol=1e-8)


def test_the_arm_at_zero_joints():
    p, up = posed(np.zeros(5))
    np.testing.assert_allclose(PLANAR.solve(p, up, 0.0), np.zeros(5), atol=1e-9)
    assert up == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("position", "why"),
    [
        ([0.9, 0.0, 0.1], "farther than the arm is long"),
        ([*PLANAR.pan_axis, 0.2], "on the pan axis"),
        ([-0.3, 0.0, 0.1], "behind the pan's stop"),
    ],
)
def test_out_of_reach_is_none(position, why):
    assert PLANAR.solve(np.array(position), -1.0, 1.57) is None


@pytest.mark.parametrize("joint", range(5))
def test_every_joint_limit_is_kept(joint):
    """A goal solved just inside a limit is refused when the limit moves past it."""
    q = np.array([0.3, 0.2, 0.3, 0.6, 1.5])
    p, up = posed(q)
    for bound, shift in (("_lower", 1e-3), ("_upper", -1e-3)):
        planar = PlanarArm(KINEMATICS)
        limits = getattr(planar, bound).copy()
        limits[joint] = q[joint] - shift
        setattr(planar, bound, limits)
        np.testing.assert_allclose(planar.solve(p, up, q[4]), q, atol=1e-8)
        limits[joint] = q[joint] + shift
        assert planar.solve(p, up, q[4]) is None
