"""Choice of the seed: nearest by pose, symmetric turns do not count, uniform among k."""

from __future__ import annotations

import numpy as np
import pytest

from so101.config.skillgen import SelectionConfig
from so101.geometry import make_pose, rotation_about_axis
from so101.skillgen.selection import pose_distance, select_nearest

X, Z = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])


def settings(k: int = 1, position: float = 1.0, rotation: float = 0.2) -> SelectionConfig:
    return SelectionConfig(fallbacks=0, nn_k=k, position_weight=position, rotation_weight=rotation)


def at(x: float, angle: float = 0.0, axis: np.ndarray = X) -> np.ndarray:
    return make_pose(rotation_about_axis(axis, angle), np.array([x, 0.0, 0.0]))


def draws(candidates, k, n=1, **kwargs):
    rng = np.random.default_rng(0)
    return [select_nearest(at(0.0), candidates, settings(k, **kwargs), None, rng) for _ in range(n)]


def test_distance_is_metres_plus_weighted_radians():
    assert pose_distance(at(0.1), at(0.0, 0.5), settings(), None) == pytest.approx(0.1 + 0.2 * 0.5)
    assert pose_distance(at(0.1), at(0.0, 0.5), settings(1, 2.0, 0.0), None) == pytest.approx(0.2)


def test_distance_is_symmetric_and_zero_for_equal_poses():
    a, b = at(0.03, 0.4), at(-0.05, -1.0, Z)
    assert pose_distance(a, b, settings(), None) == pytest.approx(pose_distance(b, a, settings(), None))
    assert pose_distance(a, a, settings(), None) == pytest.approx(0, abs=1e-7)


def test_turns_about_the_symmetry_axis_do_not_count():
    assert pose_distance(at(0.0, 2.0, Z), at(0.0), settings(), None) == pytest.approx(0.4)
    assert pose_distance(at(0.0, 2.0, Z), at(0.0), settings(), Z) == pytest.approx(0, abs=1e-7)
    assert pose_distance(at(0.0, 0.3, X), at(0.0), settings(), Z) == pytest.approx(0.06)


def test_one_neighbour_is_the_nearest():
    assert draws([at(0.3), at(-0.1), at(0.2)], 1, 20) == [1] * 20
    assert draws([at(0.3, 0.0), at(0.1, 3.0)], 1) == [0]  # near, but turned the other way
    assert draws([at(0.3, 0.0), at(0.1, 3.0)], 1, rotation=0.0) == [1]


def test_k_neighbours_are_drawn_equally_often_and_no_other():
    chosen = draws([at(0.4), at(0.1), at(0.3), at(-0.2)], 3, 3000)
    counts = np.bincount(chosen, minlength=4)
    assert counts[0] == 0
    assert (np.abs(counts[1:] - 1000) < 5 * np.sqrt(1000 * 2 / 3)).all()


def test_more_neighbours_than_seeds_are_all_seeds():
    assert set(draws([at(0.1), at(0.2)], 5, 50)) == {0, 1}


def test_equal_distances_keep_the_order_of_the_seeds():
    assert draws([at(0.1), at(-0.1)], 1, 5) == [0] * 5
