"""Crossings between world and base: right for every environment of a batch, not only for one at the origin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from so101.geometry import invert_pose, make_pose, rotation_about_axis, rotation_from_rotation_vector
from so101.geometry.frames import base_from_world, world_from_base

UP = np.array([0.0, 0.0, 1.0])


def bases(rng: np.random.Generator, count: int) -> np.ndarray:
    """(count, 4, 4) base poses: a yaw and a translation each."""
    return np.stack(
        [make_pose(rotation_about_axis(UP, rng.uniform(-np.pi, np.pi)), rng.uniform(-3, 3, 3)) for _ in range(count)]
    )


def poses(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return make_pose(rotation_from_rotation_vector(rng.normal(size=(*shape, 3))), rng.normal(size=(*shape, 3)))


@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 4))
def test_there_and_back_is_nothing_for_each_environment(seed, num_envs, per_env):
    rng = np.random.default_rng(seed)
    T_world_base, T_world_x = bases(rng, num_envs), poses(rng, num_envs, per_env)
    T_base_x = base_from_world(T_world_base, T_world_x)
    np.testing.assert_allclose(world_from_base(T_world_base, T_base_x), T_world_x, atol=1e-9)


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_a_batch_is_its_environments_one_by_one(seed, num_envs):
    rng = np.random.default_rng(seed)
    T_world_base, T_x = bases(rng, num_envs), poses(rng, num_envs, num_envs)  # square: a wrong axis would not show
    for crossing in (base_from_world, world_from_base):
        together = crossing(T_world_base, T_x)
        for env in range(num_envs):
            np.testing.assert_array_equal(together[env], crossing(T_world_base[env], T_x[env]))


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_moving_base_and_scene_together_changes_nothing_in_base(seed, num_envs):
    rng = np.random.default_rng(seed)
    T_world_base, T_world_x, T_moved_world = bases(rng, num_envs), poses(rng, num_envs), bases(rng, 1)[0]
    np.testing.assert_allclose(
        base_from_world(T_moved_world @ T_world_base, T_moved_world @ T_world_x),
        base_from_world(T_world_base, T_world_x),
        atol=1e-9,
    )


def test_the_base_seen_from_itself_is_the_identity():
    T_world_base = bases(np.random.default_rng(0), 3)
    np.testing.assert_allclose(
        base_from_world(T_world_base, T_world_base), np.broadcast_to(np.eye(4), (3, 4, 4)), atol=1e-12
    )
    np.testing.assert_allclose(
        world_from_base(T_world_base, invert_pose(T_world_base)), np.broadcast_to(np.eye(4), (3, 4, 4)), atol=1e-12
    )


def test_a_point_ahead_of_a_turned_robot():
    T_world_base = make_pose(rotation_about_axis(UP, np.pi / 2), [1.0, 2.0, 0.0])  # looks along +y
    T_base_x = make_pose(np.eye(3), [0.3, 0.0, 0.1])
    np.testing.assert_allclose(world_from_base(T_world_base, T_base_x)[:3, 3], [1.0, 2.3, 0.1], atol=1e-12)


def test_as_many_bases_as_rows_are_needed():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="one row a base"):
        base_from_world(bases(rng, 3), poses(rng, 2))
    with pytest.raises(ValueError, match="one row a base"):
        world_from_base(bases(rng, 3), poses(rng))
