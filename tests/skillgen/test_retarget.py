"""Retargeting: pure algebra, checked by its invariances."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from so101.geometry import invert_pose, make_pose, rotation_about_axis, rotation_from_rotation_vector
from so101.skillgen.retarget import correct_for_held, object_shift, retarget
from so101.skillgen.selection import align_symmetric

Z = np.array([0.0, 0.0, 1.0])
numbers = st.floats(-3, 3)
triples = st.tuples(numbers, numbers, numbers).map(np.array)
poses = st.builds(lambda v, p: make_pose(rotation_from_rotation_vector(v), p), triples, triples)


def path(seed: int = 0, n: int = 7) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return make_pose(rotation_from_rotation_vector(rng.normal(size=(n, 3))), rng.normal(size=(n, 3)))


def moved(ee: np.ndarray, T_seed: np.ndarray, T_new: np.ndarray) -> np.ndarray:
    return retarget(torch.from_numpy(ee), torch.from_numpy(T_seed), torch.from_numpy(T_new)).numpy()


@given(poses)
def test_an_object_that_did_not_move_leaves_the_path(T):
    np.testing.assert_allclose(moved(path(), T, T), path(), atol=1e-12)


@given(poses, poses)
def test_the_hand_stands_to_the_new_object_as_it_stood_to_the_old(T_seed, T_new):
    new = moved(path(), T_seed, T_new)
    np.testing.assert_allclose(invert_pose(T_new) @ new, invert_pose(T_seed) @ path(), atol=1e-11)


@given(poses, poses, poses)
def test_seen_from_another_base_everything_moves_along(T_seed, T_new, T_other):
    """The world, the base or the table may be shifted for all poses alike: the result is shifted, nothing else."""
    shifted = moved(T_other @ path(), T_other @ T_seed, T_other @ T_new)
    np.testing.assert_allclose(shifted, T_other @ moved(path(), T_seed, T_new), atol=1e-10)


@given(poses, poses, poses)
def test_two_moves_are_one(T_0, T_1, T_2):
    np.testing.assert_allclose(moved(moved(path(), T_0, T_1), T_1, T_2), moved(path(), T_0, T_2), atol=1e-10)


@given(poses, poses, st.floats(-3, 3))
def test_rolling_a_vial_about_its_axis_changes_nothing(T_seed, T_new, roll):
    aligned = align_symmetric(T_new, T_seed, Z)
    rolled = T_new.copy()
    rolled[:3, :3] = T_new[:3, :3] @ rotation_about_axis(Z, roll)
    M = T_seed[:3, :3].T @ T_new[:3, :3]
    if np.hypot(M[1, 0] - M[0, 1], M[0, 0] + M[1, 1]) < 1e-3:
        return  # upside down: every roll is as near, there is no best one
    again = align_symmetric(rolled, T_seed, Z)
    np.testing.assert_allclose(moved(path(), T_seed, again), moved(path(), T_seed, aligned), atol=1e-8)


@given(poses, poses)
def test_object_shift_carries_the_one_object_onto_the_other(T_seed, T_new):
    shift = object_shift(torch.from_numpy(T_new), torch.from_numpy(T_seed)).numpy()
    np.testing.assert_allclose(shift @ T_seed, T_new, atol=1e-11)


@given(poses, poses)
def test_the_object_held_now_follows_where_the_seeds_object_went(T_ee_seed, T_ee_now):
    corrected = correct_for_held(*(torch.from_numpy(x) for x in (path(), T_ee_seed, T_ee_now))).numpy()
    np.testing.assert_allclose(corrected @ T_ee_now, path() @ T_ee_seed, atol=1e-10)


@given(poses)
def test_an_object_held_as_in_the_seed_needs_no_correction(T):
    corrected = correct_for_held(*(torch.from_numpy(x) for x in (path(), T, T))).numpy()
    np.testing.assert_allclose(corrected, path(), atol=1e-11)


def test_batches_are_the_single_results():
    ee, T_seed, T_new = path(0, 12).reshape(3, 4, 4, 4), path(1, 3), path(2, 3)
    together = moved(ee, T_seed, T_new)
    for i in range(3):
        np.testing.assert_allclose(together[i], moved(ee[i], T_seed[i], T_new[i]), atol=1e-14)


def test_rotations_stay_orthonormal_when_the_input_is_not_quite():
    ee = path()
    ee[:, :3, :3] *= 1 + 1e-6
    R = moved(ee, path(1, 1)[0], path(2, 1)[0])[:, :3, :3]
    np.testing.assert_allclose(R @ np.swapaxes(R, -1, -2), np.broadcast_to(np.eye(3), R.shape), atol=1e-12)


def test_a_worked_number():
    """The object went 10 cm along x and turned a quarter about the vertical; the hand above it does the same."""
    T_seed = make_pose(np.eye(3), np.array([0.2, 0.0, 0.05]))
    T_new = make_pose(rotation_about_axis(Z, np.pi / 2), np.array([0.3, 0.0, 0.05]))
    hand = make_pose(np.eye(3), np.array([[0.24, 0.0, 0.10]]))  # 4 cm ahead of the object, 5 cm above
    result = moved(hand, T_seed, T_new)[0]
    assert result[:3, 3] == pytest.approx([0.3, 0.04, 0.10])
    assert result[:3, 0] == pytest.approx([0.0, 1.0, 0.0])
