"""The smooth stage: what the filter must leave alone, what it must do, and the files it writes and removes."""

from __future__ import annotations

import numpy as np
import pytest

from so101.config import load_config
from so101.datasets.demo import Demo, list_demos, load_demo, save_demo
from so101.errors import DataError
from so101.files import write_json
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.trajectory.smoothing import (
    effective_window,
    shift_at_jaw_changes,
    smooth_columns,
    smooth_demos,
    smooth_targets,
)


@pytest.fixture(scope="module")
def config():
    return load_config()


def rough_targets(frames: int = 120, seed: int = 0) -> np.ndarray:
    """(T, 6) a slow sweep with noise on the arm; the jaw steps from open to closed at two thirds."""
    rng = np.random.default_rng(seed)
    time = np.linspace(0, 1, frames)[:, None]
    q = 0.6 * np.sin(2 * np.pi * time * np.array([1, 0.7, 1.3, 0.5, 0.9, 0])) + rng.normal(0, 0.02, (frames, 6))
    q[:, 5] = np.where(np.arange(frames) < 2 * frames // 3, 1.2, 0.1) + rng.normal(0, 1e-4, frames)
    return q


def demo_of(q_target: np.ndarray, index: int = 0) -> Demo:
    return Demo(
        index=index,
        seed=index,
        task="vial_to_rack",
        fps=30.0,
        q_target=q_target,
        q=q_target,
        objects={"vial": np.zeros((len(q_target), 7))},
        physics_state=np.zeros(3),
        strict=True,
    )


def run_with(folder, indices, frames: int = 60) -> RunFolder:
    run = RunFolder(folder)
    for index in indices:
        save_demo(run.generated, demo_of(rough_targets(frames, seed=index), index))
    write_json(run.filter_report, {"kept": list(indices), "strict": list(indices), "geometric": list(indices)})
    return run


def test_jaw_column_is_unchanged_to_the_bit(config):
    q = rough_targets()
    q[3, 5] = -0.0  # a value that == would not tell from 0.0
    assert smooth_targets(q, config)[:, 5].tobytes() == q[:, 5].tobytes()


def test_first_and_last_targets_stay_put(config):
    q = rough_targets()
    smoothed = smooth_targets(q, config)
    assert smoothed[[0, -1]].tobytes() == q[[0, -1]].tobytes()
    assert np.abs(smoothed[1:-1, :5] - q[1:-1, :5]).max() > 0.01  # and it is not simply unchanged


def test_no_step_is_left_at_the_ends(config):
    """A fit of the last half window whose ends are then overwritten would jump; ours must not."""
    q = rough_targets()
    steps = np.abs(np.diff(smooth_targets(q, config)[:, :5], axis=0))
    assert steps[0].max() < 2 * steps.max(axis=0).max()
    assert steps[[0, -1]].max() < np.abs(np.diff(q[:, :5], axis=0))[[0, -1]].max()


def test_straight_lines_pass_unchanged():
    line = np.linspace([0.0, 1.0], [2.0, -1.0], 50)
    np.testing.assert_allclose(smooth_columns(line, 21, 3), line, atol=1e-12)


def test_cubics_pass_unchanged_away_from_the_ends():
    t = np.linspace(-1, 1, 80)[:, None]
    cubic = 0.3 * t**3 - t**2 + 0.2 * t + 0.5
    np.testing.assert_allclose(smooth_columns(cubic, 21, 3)[10:-10], cubic[10:-10], atol=1e-10)


def test_noise_shrinks_as_the_filter_theory_says():
    """The squared weights of a cubic filter of 2m + 1 = 21 points sum to 3 (3 m^2 + 3 m - 1) / ((2m+3)(2m+1)(2m-1))."""
    noise = np.random.default_rng(1).normal(0, 1, (400_000, 1))
    assert smooth_columns(noise, 21, 3).var() == pytest.approx(987 / 9177, rel=0.02)


def test_reversed_time_gives_the_reversed_result():
    q = rough_targets()[:, :5]
    np.testing.assert_allclose(smooth_columns(q[::-1], 21, 3)[::-1], smooth_columns(q, 21, 3), atol=1e-12)


def test_arm_is_clipped_to_the_joint_limits(config):
    joint = config.robot.joints[1]
    q = np.full((60, 6), 0.0)
    q[:, 1] = joint.upper_rad
    q[30, 1] = joint.upper_rad - 0.5  # ringing beside the notch would pass the limit
    assert smooth_columns(q, 21, 3)[:, 1].max() > joint.upper_rad
    assert smooth_targets(q, config)[:, 1].max() == joint.upper_rad


@pytest.mark.parametrize(("frames", "window"), [(300, 21), (21, 21), (20, 19), (7, 7), (5, 5), (4, 0), (3, 0), (1, 0)])
def test_window_of_short_demos(frames, window):
    assert effective_window(frames, 21, 3) == window
    q = np.random.default_rng(frames).normal(size=(frames, 5))
    smoothed = smooth_columns(q, 21, 3)
    assert smoothed.shape == q.shape and np.isfinite(smoothed).all()
    assert np.array_equal(smoothed, q) == (window == 0)


def test_a_hold_as_long_as_the_window_keeps_the_jaw_change_where_it_was(config):
    """Approach, hold, jaw closes in the middle of the hold: with 21 still frames around it nothing is cut."""
    approach, hold = np.linspace(0, 0.8, 30), np.full(23, 0.8)
    q = np.tile(np.concatenate([approach, hold, approach[::-1]])[:, None], (1, 6))
    q[:, 5] = 1.0
    q[41:, 5] = 0.1
    assert shift_at_jaw_changes(q, smooth_targets(q, config), 0.02) < 1e-12
    early = q.copy()
    early[31:, 5] = 0.1  # two frames into the hold: the window reaches back into the approach
    assert shift_at_jaw_changes(early, smooth_targets(early, config), 0.02) > 1e-3


def test_stage_writes_skips_and_removes(config, tmp_path):
    run = run_with(tmp_path, [0, 3, 7])
    result = smooth_demos(config, run, SilentReporter(), 1)
    assert result.produced == 3
    assert [path.name for path in list_demos(run.smoothed)] == [
        "demo_000000.npz", "demo_000003.npz", "demo_000007.npz",
    ]  # fmt: skip
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in list_demos(run.smoothed)}
    write_json(run.filter_report, {"kept": [0, 7]})
    (run.smoothed / "demo_000007.npz").unlink()
    (run.smoothed / ".demo_000007.99.tmp.npz").write_bytes(b"half")
    assert smooth_demos(config, run, SilentReporter(), 1).produced == 2
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.smoothed.iterdir()}
    assert sorted(after) == ["demo_000000.npz", "demo_000007.npz"]
    assert after["demo_000000.npz"] == before["demo_000000.npz"]  # not written again
    assert after["demo_000007.npz"][0] == before["demo_000007.npz"][0]  # same bytes when it is


def test_stage_changes_the_targets_only(config, tmp_path):
    run = run_with(tmp_path, [2])
    smooth_demos(config, run, SilentReporter(), 1)
    source, smoothed = load_demo(run.generated / "demo_000002.npz"), load_demo(run.smoothed / "demo_000002.npz")
    np.testing.assert_array_equal(smoothed.q_target, smooth_targets(source.q_target, config))
    assert np.array_equal(smoothed.q, source.q) and (smoothed.seed, smoothed.meta) == (source.seed, source.meta)


def test_summary_counts_short_demos(config, tmp_path):
    run = run_with(tmp_path, [0, 1], frames=15)
    summary = smooth_demos(config, run, SilentReporter(), 1).summary
    assert summary["smoothed"] == 2 and summary["shorter_than_window"] == 2


def test_nothing_kept_gives_nothing(config, tmp_path):
    run = run_with(tmp_path, [])
    assert smooth_demos(config, run, SilentReporter(), 1).produced == 0


def test_errors_say_what_to_run(config, tmp_path):
    run = RunFolder(tmp_path)
    with pytest.raises(DataError, match="run the filter stage first"):
        smooth_demos(config, run, SilentReporter(), 1)
    run.filter_report.write_text('{"strict": [1]}')
    with pytest.raises(DataError, match="list `kept`"):
        smooth_demos(config, run, SilentReporter(), 1)
    write_json(run.filter_report, {"kept": [5]})
    with pytest.raises(DataError, match="demo_000005.npz: kept by filter.json but absent"):
        smooth_demos(config, run, SilentReporter(), 1)
