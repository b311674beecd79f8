"""Smooth stage: Savitzky-Golay on the commanded arm joints, never on the jaw.

The jaw column is copied bit for bit: a smoothed jaw command closes early and slowly, so the grasp would be another one.
A polynomial fit of the last half window (scipy's mode "interp") moves the first and last targets; here the signal is
continued by point reflection about its end points instead, which leaves just these two where they are, without a step.

Around a jaw change the plain filter still mixes the frames of the approach into a hold shorter than the window; how far
it moved the arm at those frames is measured (`shift_at_jaw_changes_rad`), and the verify stage decides by physics.
"""

from __future__ import annotations

import json

import numpy as np
from scipy.signal import savgol_filter

from so101.config import Config
from so101.datasets.demo import Demo, demo_file_name, demo_index, list_demos, load_demo, save_demo
from so101.errors import DataError
from so101.files import remove_temporaries
from so101.pipeline.progress import Reporter, StageResult
from so101.pipeline.run_folder import RunFolder

ARM = slice(0, 5)  # joint order of robot.yaml: five arm joints, then the jaw
JAW = 5


def effective_window(num_frames: int, window_frames: int, order: int) -> int:
    """`window_frames`, or the largest odd window that fits into `num_frames`; 0 when that does not exceed `order`."""
    longest = num_frames if num_frames % 2 else num_frames - 1
    window = min(window_frames, longest)
    return window if window > order else 0


def smooth_columns(values: np.ndarray, window_frames: int, order: int) -> np.ndarray:
    """Savitzky-Golay along axis 0 of (T, N); first and last rows stay equal, too short signals come back unchanged."""
    values = np.asarray(values, np.float64)
    window = effective_window(len(values), window_frames, order)
    if not window:
        return values.copy()
    half = window // 2
    before = 2 * values[0] - values[half:0:-1]
    after = 2 * values[-1] - values[-2 : -half - 2 : -1]
    padded = np.concatenate([before, values, after])
    smoothed = savgol_filter(padded, window, order, axis=0)[half : half + len(values)]
    smoothed[[0, -1]] = values[[0, -1]]  # equal up to rounding already; now to the bit
    return smoothed


def smooth_targets(q_target: np.ndarray, config: Config) -> np.ndarray:
    """(T, 6) joint targets, rad: arm joints smoothed and clipped to the limits of robot.yaml, jaw as it was."""
    settings = config.skillgen.smoothing
    limits = np.array([(joint.lower_rad, joint.upper_rad) for joint in config.robot.joints[ARM]])
    result = np.array(q_target, np.float64)
    result[:, ARM] = np.clip(
        smooth_columns(result[:, ARM], settings.window_frames, settings.order), limits[:, 0], limits[:, 1]
    )
    return result


def shift_at_jaw_changes(before: np.ndarray, after: np.ndarray, min_change_rad: float) -> float:
    """Largest arm joint shift, rad, between two (T, 6) target arrays at the frames where the jaw command moves by
    `min_change_rad` or more; 0 when it never does."""
    frames = np.flatnonzero(np.abs(np.diff(before[:, JAW])) >= min_change_rad) + 1
    return float(np.abs(after[frames, ARM] - before[frames, ARM]).max(initial=0.0))


def smooth_demo(demo: Demo, config: Config) -> Demo:
    """`demo` with smoothed targets; measured joints and object poses stay those of the unsmoothed motion."""
    return demo.replace(q_target=smooth_targets(demo.q_target, config))


def kept_indices(run: RunFolder) -> list[int]:
    """Attempt indices the filter kept, ascending.

    Raises:
        DataError: the filter has not run, or its file cannot be read.
    """
    try:
        return sorted(int(index) for index in json.loads(run.filter_report.read_text(encoding="utf-8"))["kept"])
    except FileNotFoundError:
        raise DataError(f"{run.filter_report}: smoothing needs it; run the filter stage first") from None
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{run.filter_report}: must be JSON with a list `kept` of attempt indices ({error}); "
            "delete it and run the filter stage again"
        ) from None


def smooth_demos(config: Config, run: RunFolder, reporter: Reporter, workers: int) -> StageResult:
    """Write ``smoothed/demo_NNNNNN.npz`` for every kept demo; files present stay, files no longer kept are removed.

    `workers` is not used: a demo takes a few milliseconds.

    Raises:
        DataError: `filter.json` is missing or broken, or a kept demo is not in `generated/`.
    """
    kept = kept_indices(run)
    remove_temporaries(run.smoothed)
    present = set()
    for path in list_demos(run.smoothed):
        if demo_index(path) in kept:
            present.add(demo_index(path))
        else:
            path.unlink()
    reporter.start("smooth", len(kept), done=len(present))
    window, order = config.skillgen.smoothing.window_frames, config.skillgen.smoothing.order
    min_change = config.skillgen.gate.gripper_change_rad
    shift, short = 0.0, 0
    for index in kept:
        source = run.generated / demo_file_name(index)
        if not source.is_file():
            raise DataError(f"{source}: kept by {run.filter_report.name} but absent; run generate and filter again")
        demo = load_demo(source)
        target = run.smoothed / demo_file_name(index)
        smoothed = load_demo(target) if index in present else smooth_demo(demo, config)
        if index not in present:
            save_demo(run.smoothed, smoothed)
            reporter.advance()
        shift = max(shift, shift_at_jaw_changes(demo.q_target, smoothed.q_target, min_change))
        short += effective_window(demo.num_frames, window, order) < window
    summary = {"smoothed": len(kept), "shorter_than_window": short, "shift_at_jaw_changes_rad": round(shift, 6)}
    return StageResult("smooth", len(kept), summary)
