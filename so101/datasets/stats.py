"""Statistics of a LeRobot dataset, as LeRobot 0.3.3 (per episode) and GR00T (whole dataset) define them.

Values are plain lists, ready for JSON. Sums run in float64 whatever the column type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

# LeRobot's choice of sampled frames and pixels; other numbers would no longer be what LeRobot calls image statistics.
MIN_SAMPLES, MAX_SAMPLES, SAMPLE_POWER = 100, 10_000, 0.75
DOWNSAMPLE_FROM_PX, DOWNSAMPLE_TO_PX = 300, 150

GROOT_STATS = ("mean", "std", "min", "max", "q01", "q99")
LEROBOT_STATS = ("min", "max", "mean", "std", "count")


def sample_indices(num_frames: int) -> np.ndarray:
    """(N,) evenly spread frame numbers that image statistics of an episode are computed from."""
    fewest = min(MIN_SAMPLES, num_frames)
    count = max(fewest, min(int(num_frames**SAMPLE_POWER), MAX_SAMPLES))
    return np.rint(np.linspace(0, num_frames - 1, count)).astype(np.int64)


def downsample(image: np.ndarray) -> np.ndarray:
    """(H, W, C) image as LeRobot thins it out before image statistics: every k-th row and column of a large one."""
    height, width = image.shape[:2]
    if max(height, width) < DOWNSAMPLE_FROM_PX:
        return image
    step = int((width if width > height else height) / DOWNSAMPLE_TO_PX)
    return image[::step, ::step]


def image_stats(images: Iterable[np.ndarray]) -> dict[str, list]:
    """LeRobot statistics of sampled (H, W, 3) uint8 images, read one by one: values / 255, (3, 1, 1), and count."""
    return histogram_stats(*image_histogram(images))


def image_histogram(images: Iterable[np.ndarray]) -> tuple[np.ndarray, int]:
    """(3, 256) how often each byte occurs a channel, and the number of images.

    A histogram holds all there is to know about bytes, so memory stays flat and statistics of it are exact; those of
    several videos are of the sum of theirs.
    """
    histogram, count = np.zeros((3, 256), np.int64), 0
    for image in images:
        small = downsample(image)
        for channel in range(3):
            histogram[channel] += np.bincount(small[..., channel].ravel(), minlength=256)
        count += 1
    return histogram, count


def histogram_stats(histogram: np.ndarray, count: int, quantiles: Sequence[float] = ()) -> dict[str, list]:
    """LeRobot statistics of a histogram of `image_histogram`; a quantile q is the key of `quantile_key(q)`."""
    values, total = np.arange(256) / 255, histogram.sum(1)
    mean = histogram @ values / total
    std = np.sqrt([np.sum(h * (values - m) ** 2) / n for h, m, n in zip(histogram, mean, total, strict=True)])
    present = [np.flatnonzero(h) for h in histogram]
    stats = {"min": [values[p[0]] for p in present], "max": [values[p[-1]] for p in present], "mean": mean, "std": std}
    for quantile in quantiles:
        places = [np.searchsorted(np.cumsum(h), quantile * n) for h, n in zip(histogram, total, strict=True)]
        stats[quantile_key(quantile)] = values[np.minimum(places, 255)]
    return {**{key: np.reshape(value, (3, 1, 1)).tolist() for key, value in stats.items()}, "count": [count]}


def quantile_key(quantile: float) -> str:
    """LeRobot's name of a quantile: q01 for 0.01."""
    return f"q{round(100 * quantile):02d}"


def column_stats(column: np.ndarray, quantiles: Sequence[float] = ()) -> dict[str, list]:
    """LeRobot statistics of one column (T,) or (T, D) of an episode: lists of D (1 for a flat column), and count."""
    rows = _rows(column)
    return {
        "min": rows.min(0).tolist(),
        "max": rows.max(0).tolist(),
        "mean": rows.mean(0, dtype=np.float64).tolist(),
        "std": rows.std(0, dtype=np.float64).tolist(),
        "count": [len(rows)],
        **{quantile_key(q): np.quantile(rows.astype(np.float64), q, axis=0).tolist() for q in quantiles},
    }


def groot_stats(columns: Sequence[np.ndarray]) -> dict[str, list[float]]:
    """GR00T's six statistics of one column over all episodes, each (T, D) or (T,): lists of D."""
    rows = np.concatenate([_rows(column) for column in columns]).astype(np.float64)
    q01, q99 = np.quantile(rows, [0.01, 0.99], axis=0)
    values = (rows.mean(0), rows.std(0), rows.min(0), rows.max(0), q01, q99)
    return {key: value.tolist() for key, value in zip(GROOT_STATS, values, strict=True)}


def relative_stats(states: Sequence[np.ndarray], actions: Sequence[np.ndarray], horizon: int) -> dict[str, list]:
    """GR00T's six statistics of RELATIVE action chunks: action row t + k less state row t, for k = 0 .. horizon - 1.

    Args:
        states, actions: (T, D) per episode. Only chunks that fit in their episode count: T - horizon + 1 of them.

    Returns:
        lists of shape (horizon, D). Empty when no episode is as long as the horizon.
    """
    per_step = []
    pairs = [(s, a) for s, a in zip(states, actions, strict=True) if len(s) >= horizon]
    for step in range(horizon if pairs else 0):
        usable = [(s[: len(s) - horizon + 1], a[step : len(a) - horizon + 1 + step]) for s, a in pairs]
        per_step.append(groot_stats([a.astype(np.float64) - s for s, a in usable]))
    return {key: [stats[key] for stats in per_step] for key in GROOT_STATS} if per_step else {}


def _rows(column: np.ndarray) -> np.ndarray:
    return column[:, None] if column.ndim == 1 else column


def stats_faults(where: str, written: Any, expected: dict[str, Any], rtol: float = 1e-5) -> list[str]:
    """Texts on how `written` statistics ({statistic: nested lists}) differ from recomputed ones."""
    if not isinstance(written, dict) or set(written) != set(expected):
        found = sorted(written) if isinstance(written, dict) else written
        return [f"{where}: statistics are {found}, must be {sorted(expected)}"]
    faults = []
    for key, value in expected.items():
        try:
            ours, theirs = np.asarray(value, float), np.asarray(written[key], float)
        except (TypeError, ValueError):
            faults.append(f"{where}.{key}: not an array of numbers")
            continue
        if ours.shape != theirs.shape:
            faults.append(f"{where}.{key}: shape {theirs.shape}, must be {ours.shape}")
        elif not np.isfinite(ours).all():
            faults.append(f"{where}.{key}: the data are not all finite")
        elif not np.allclose(theirs, ours, rtol=rtol, atol=rtol * max(1.0, float(np.max(np.abs(ours))))):
            worst = float(np.max(np.abs(theirs - ours)))
            faults.append(f"{where}.{key}: differs from the recomputed value by up to {worst:.3g}")
    return faults
