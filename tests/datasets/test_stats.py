"""Statistics: against direct numpy on the same data, worked numbers, and fault texts."""

from __future__ import annotations

import numpy as np
import pytest

from so101.datasets.stats import (
    column_stats,
    downsample,
    groot_stats,
    image_stats,
    relative_stats,
    sample_indices,
    stats_faults,
)


@pytest.mark.parametrize(("frames", "samples"), [(1, 1), (50, 50), (100, 100), (300, 100), (1000, 177), (5000, 594)])
def test_number_of_sampled_frames(frames, samples):
    indices = sample_indices(frames)
    assert len(indices) == samples
    assert indices[0] == 0 and indices[-1] == frames - 1
    assert np.all(np.diff(indices) >= 1)


SHAPES = [((240, 299), (240, 299)), ((480, 640), (120, 160)), ((640, 480), (160, 120))]


@pytest.mark.parametrize(("shape", "small"), SHAPES)
def test_downsampling(shape, small):
    assert downsample(np.zeros((*shape, 3), np.uint8)).shape[:2] == small


def test_image_stats_equal_the_direct_computation():
    images = np.random.default_rng(0).integers(3, 200, (7, 480, 640, 3), dtype=np.uint8)
    stats = image_stats(images)
    pixels = images[:, ::4, ::4].astype(float) / 255
    for key, direct in (("mean", np.mean), ("std", np.std), ("min", np.min), ("max", np.max)):
        assert np.shape(stats[key]) == (3, 1, 1)
        np.testing.assert_allclose(np.ravel(stats[key]), direct(pixels, axis=(0, 1, 2)), rtol=1e-12)
    assert stats["count"] == [7]


def test_column_stats_of_flat_and_wide_columns():
    assert column_stats(np.array([1, 2, 6])) == {
        "min": [1], "max": [6], "mean": [3.0], "std": [pytest.approx(np.sqrt(14 / 3))], "count": [3],
    }  # fmt: skip
    wide = column_stats(np.float32([[0.0, 1.0], [2.0, 3.0]]))
    assert wide == {"min": [0, 1], "max": [2, 3], "mean": [1, 2], "std": [1, 1], "count": [2]}


def test_groot_stats_do_not_depend_on_how_episodes_are_cut():
    rows = np.random.default_rng(1).normal(size=(400, 3)).astype(np.float32)
    cut = groot_stats([rows[:10], rows[10:250], rows[250:]])
    assert cut == groot_stats([rows])
    np.testing.assert_allclose(cut["q01"], np.quantile(rows.astype(float), 0.01, axis=0), rtol=1e-12)
    assert cut["min"] < cut["q01"] < cut["mean"] < cut["q99"] < cut["max"]


def test_relative_stats_equal_chunks_made_one_by_one():
    rng = np.random.default_rng(2)
    states = [rng.normal(size=(length, 5)).astype(np.float32) for length in (20, 16, 5)]
    actions = [rng.normal(size=(length, 5)).astype(np.float32) for length in (20, 16, 5)]
    chunks = np.array(
        [a[t : t + 16].astype(float) - s[t] for s, a in zip(states, actions, strict=True) for t in range(len(s) - 15)]
    )
    assert len(chunks) == 6  # 5 from the first episode, 1 from the second, none from the third
    stats = relative_stats(states, actions, 16)
    for key, direct in (("mean", chunks.mean(0)), ("std", chunks.std(0)), ("q99", np.quantile(chunks, 0.99, axis=0))):
        assert np.shape(stats[key]) == (16, 5)
        np.testing.assert_allclose(stats[key], direct, atol=1e-12)


def test_relative_stats_ignore_a_shift_of_state_and_action():
    rng = np.random.default_rng(3)
    state, action = rng.normal(size=(2, 30, 5))
    shifted = relative_stats([state + 7], [action + 7], 16)
    for key, value in relative_stats([state], [action], 16).items():
        np.testing.assert_allclose(shifted[key], value, atol=1e-12)


def test_relative_stats_of_short_episodes_are_empty():
    assert relative_stats([np.zeros((15, 5))], [np.zeros((15, 5))], 16) == {}


def test_faults_of_written_statistics():
    good = column_stats(np.arange(5.0))
    assert stats_faults("x", good, good) == []
    assert "must be ['count', 'max'" in stats_faults("x", {"mean": [1]}, good)[0]
    assert "x.mean: differs from the recomputed value by up to 1" in stats_faults("x", good | {"mean": [3.0]}, good)[0]
    assert "x.max: shape (2,), must be (1,)" in stats_faults("x", good | {"max": [4, 4]}, good)[0]
    assert "x.std: not an array" in stats_faults("x", good | {"std": [[1], 2]}, good)[0]
