"""Laws of the rigid transforms, then worked numbers. Random axes and angles come from hypothesis."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from so101.geometry import (
    align_about_axis,
    interpolate_pose,
    invert_pose,
    make_pose,
    pose_from_pos_quat,
    pose_to_pos_quat,
    quat_from_rotation,
    rotation_about_axis,
    rotation_angle,
    rotation_from_quat,
    rotation_from_rotation_vector,
    rotation_vector,
    se3_torch,
)

coordinate = st.floats(-1, 1, allow_nan=False)
unit_vectors = (
    st.tuples(coordinate, coordinate, coordinate)
    .map(np.array)
    .filter(lambda v: np.linalg.norm(v) > 0.1)
    .map(lambda v: v / np.linalg.norm(v))
)
# Where formulas break: nothing, nearly nothing, half turns and just short of them.
angles = st.one_of(
    st.floats(0, np.pi),
    st.sampled_from([0.0, 1e-12, 1e-9, 1e-6, np.pi - 1e-6, np.pi - 1e-9, np.pi - 1e-12, np.pi]),
)
rotations = st.builds(rotation_about_axis, unit_vectors, angles)
poses = st.builds(make_pose, rotations, st.tuples(coordinate, coordinate, coordinate).map(np.array))


def quat_torch(R: np.ndarray) -> np.ndarray:
    return se3_torch.quat_from_rotation(torch.from_numpy(R)).numpy()


def assert_close(a, b, atol=1e-12):
    np.testing.assert_allclose(a, b, rtol=0, atol=atol)


@given(poses)
def test_inverse_undoes(T):
    assert_close(T @ invert_pose(T), np.eye(4))
    assert_close(invert_pose(invert_pose(T)), T)


@given(poses, poses)
def test_inverse_of_a_product_is_the_product_of_inverses_turned_round(T, U):
    assert_close(invert_pose(T @ U), invert_pose(U) @ invert_pose(T))


@given(poses)
def test_torch_and_numpy_agree(T):
    tensor = torch.from_numpy(T)
    assert_close(se3_torch.invert_pose(tensor).numpy(), invert_pose(T))
    assert_close(quat_torch(T[:3, :3]), quat_from_rotation(T[:3, :3]))
    quat = torch.from_numpy(quat_from_rotation(T[:3, :3]))
    assert_close(se3_torch.rotation_from_quat(quat).numpy(), T[:3, :3])


@given(rotations)
def test_rotations_are_orthonormal_and_right_handed(R):
    assert_close(R @ R.T, np.eye(3))
    assert np.linalg.det(R) == pytest.approx(1.0)


@settings(max_examples=300)
@given(unit_vectors, angles)
@pytest.mark.parametrize("to_quat", [quat_from_rotation, quat_torch])
def test_quaternion_is_exact_at_every_angle(to_quat, axis, angle):
    expected = np.append(np.cos(angle / 2), np.sin(angle / 2) * axis)
    q = to_quat(rotation_about_axis(axis, angle))
    assert q[0] >= 0
    assert min(np.abs(q - expected).max(), np.abs(q + expected).max()) < 1e-15 * 8


@given(unit_vectors)
@pytest.mark.parametrize("to_quat", [quat_from_rotation, quat_torch])
def test_quaternion_keeps_an_angle_of_a_nanoradian_from_a_half_turn(to_quat, axis):
    w = to_quat(rotation_about_axis(axis, np.pi - 1e-9))[0]
    assert w == pytest.approx(0.5e-9, abs=1e-15)


@settings(max_examples=300)
@given(unit_vectors, angles)
def test_logarithm_undoes_exponential(axis, angle):
    vector = rotation_vector(rotation_from_rotation_vector(axis * angle))
    if angle > np.pi - 1e-12:  # a half turn about an axis and about its opposite are the same
        vector *= np.sign(vector @ axis)
    assert_close(vector, axis * angle, atol=1e-14)


@given(rotations)
def test_exponential_undoes_logarithm(R):
    assert_close(rotation_from_rotation_vector(rotation_vector(R)), R, atol=4e-15)


@given(unit_vectors, angles, rotations)
def test_angle_between_rotations_does_not_depend_on_where_they_are_seen_from(axis, angle, R):
    turned = R @ rotation_about_axis(axis, angle)
    assert rotation_angle(R, turned) == pytest.approx(angle, abs=1e-7)
    assert rotation_angle(turned, R) == pytest.approx(angle, abs=1e-7)


@given(poses)
def test_position_and_quaternion_round_trip(T):
    assert_close(pose_from_pos_quat(pose_to_pos_quat(T)), T)


@given(poses, poses)
def test_interpolation_keeps_its_ends_and_turns_evenly(T, U):
    path = interpolate_pose(T, U, np.array([0.0, 0.25, 0.5, 1.0]))
    assert_close(path[0], T)
    assert_close(path[-1], U)
    angle = rotation_angle(T[:3, :3], U[:3, :3])
    assert rotation_angle(T[:3, :3], path[1, :3, :3]) == pytest.approx(angle / 4, abs=1e-7)
    assert_close(path[2, :3, 3], (T[:3, 3] + U[:3, 3]) / 2)


@settings(max_examples=50)
@given(rotations, rotations, unit_vectors)
def test_alignment_is_the_best_turn_about_the_axis(R_A, R_reference, axis):
    aligned = align_about_axis(R_A, R_reference, axis)
    assert_close(aligned @ axis, R_A @ axis)  # the axis stays where it is
    turns = rotation_about_axis(axis, np.linspace(-np.pi, np.pi, 721))
    best = np.einsum("ij,nij->n", R_reference, R_A @ turns).max()
    assert np.sum(R_reference * aligned) >= best - 1e-12


@given(rotations, rotations, unit_vectors, st.floats(-3, 3))
def test_alignment_forgets_a_turn_about_the_axis(R_A, R_reference, axis, turn):
    aligned = align_about_axis(R_A, R_reference, axis)
    again = align_about_axis(R_A @ rotation_about_axis(axis, turn), R_reference, axis)
    gain = np.trace(R_reference.T @ R_A) - axis @ R_reference.T @ R_A @ axis
    M = R_reference.T @ R_A
    skew = np.array([M[2, 1] - M[1, 2], M[0, 2] - M[2, 0], M[1, 0] - M[0, 1]])
    if np.hypot(axis @ skew, gain) > 1e-3:  # otherwise every turn is equally good
        assert_close(again, aligned, atol=1e-9)


def test_batches_are_the_single_results():
    rng = np.random.default_rng(0)
    R = rotation_from_rotation_vector(rng.normal(size=(4, 5, 3)))
    assert quat_from_rotation(R).shape == (4, 5, 4)
    assert_close(quat_from_rotation(R)[2, 3], quat_from_rotation(R[2, 3]))
    T = make_pose(R, rng.normal(size=(4, 5, 3)))
    assert_close(invert_pose(T)[1, 4], invert_pose(T[1, 4]))
    assert_close(se3_torch.invert_pose(torch.from_numpy(T))[1, 4].numpy(), invert_pose(T[1, 4]))


def test_worked_numbers():
    quarter = rotation_about_axis(np.array([0.0, 0.0, 1.0]), np.pi / 2)
    assert_close(quarter @ [1.0, 0.0, 0.0], [0.0, 1.0, 0.0])
    assert_close(quat_from_rotation(quarter), [np.sqrt(0.5), 0, 0, np.sqrt(0.5)])
    assert_close(quat_from_rotation(np.diag([1.0, -1.0, -1.0])), [0, 1, 0, 0])
    assert_close(rotation_from_quat(np.array([0.0, 0.0, 2.0, 0.0])), np.diag([-1.0, 1.0, -1.0]))  # normalised first
    T = make_pose(quarter, np.array([1.0, 2.0, 3.0]))
    assert_close(invert_pose(T)[:3, 3], [-2.0, 1.0, -3.0])
