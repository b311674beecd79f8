"""Numbers of the report: success intervals, trajectory statistics, coverage of start poses, source use, causes.

Path length and smoothness follow the FRAME metrics (robometric-frame 0.2; later ones divide otherwise, see
`so101.evaluation.frame`): the length of the end effector's path, and the sum of its second differences divided by that
length (lower is smoother; 0 for a straight line at even speed).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from so101.config.task import PlacementConfig
from so101.geometry import pose_from_pos_quat, rotation_from_quat
from so101.geometry.frames import world_from_base

ARM = slice(0, 5)  # joint order of robot.yaml: five arm joints, then the jaw
ForwardKinematics = Callable[[np.ndarray], np.ndarray]  # (T, 6) rad to (T, 4, 4) T_base_ee


class Interval(NamedTuple):
    """A confidence interval of a share, both in [0, 1]."""

    low: float
    high: float


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Wilson score interval (1927) of a success probability; (0, 1) when nothing was tried.

    Unlike the textbook interval it stays inside [0, 1] and does not collapse at 0 or n successes.

    Raises:
        ValueError: not 0 <= successes <= n, or confidence outside (0, 1).
    """
    if not 0 <= successes <= n:
        raise ValueError(f"wilson_interval: successes is {successes}, n is {n}; needs 0 <= successes <= n")
    if not 0 < confidence < 1:
        raise ValueError(f"wilson_interval: confidence is {confidence}; needs a number between 0 and 1, such as 0.95")
    if n == 0:
        return Interval(0.0, 1.0)
    z2 = NormalDist().inv_cdf(0.5 + confidence / 2) ** 2
    share = successes / n
    center = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (share * (1 - share) + z2 / (4 * n)) / n) / (1 + z2 / n)
    # the ends are exactly 0 and 1 there; rounding is not
    return Interval(0.0 if successes == 0 else center - half, 1.0 if successes == n else center + half)


class Difference(NamedTuple):
    """One share less another, and its interval, all in [-1, 1]."""

    value: float
    low: float
    high: float


def share_difference(a: tuple[int, int], b: tuple[int, int], confidence: float = 0.95) -> Difference:
    """Share of `a` less that of `b`, (successes, n) each, of independent samples, with Newcombe's interval (1998,
    method 10), which is made of the two Wilson intervals.

    Raises:
        ValueError: as `wilson_interval`, or nothing was tried.
    """
    if a[1] == 0 or b[1] == 0:
        raise ValueError(f"share_difference: {a[1]} and {b[1]} were tried; needs one at least of each")
    (low_a, high_a), (low_b, high_b) = (wilson_interval(*tried, confidence) for tried in (a, b))
    share_a, share_b = a[0] / a[1], b[0] / b[1]
    value = share_a - share_b
    below, above = math.hypot(share_a - low_a, high_b - share_b), math.hypot(high_a - share_a, share_b - low_b)
    return Difference(value, value - below, value + above)


def path_length(positions: np.ndarray) -> float:
    """Length of a path (T, 3), in the unit of `positions`."""
    return float(np.linalg.norm(np.diff(positions, axis=0), axis=1).sum())


def path_smoothness(positions: np.ndarray) -> float:
    """Sum of the second differences of (T, 3) over the path length; 0 for a path that does not move."""
    length = path_length(positions)
    return float(np.linalg.norm(np.diff(positions, 2, axis=0), axis=1).sum() / length) if length > 0 else 0.0


class TrajectoryStatistics(NamedTuple):
    """One demonstration in numbers. Speeds are of the measured arm joints, jerk of the commanded ones."""

    path_length_m: float
    duration_s: float
    smoothness: float
    mean_joint_speed_rad_s: float
    peak_joint_speed_rad_s: float
    command_jerk_rad_s3: float


def trajectory_statistics(
    q: np.ndarray, q_target: np.ndarray, fps: float, fk: ForwardKinematics
) -> TrajectoryStatistics:
    """Statistics of one demonstration.

    Args:
        q, q_target: (T, 6) measured and commanded joints, rad, jaw last.
        fps: Hz.
        fk: (T, 6) to (T, 4, 4) T_base_ee.

    Mean speed is over frames and the five arm joints; peak is the largest of any; jerk is the root mean square of the
    third difference.
    """
    positions = fk(q)[:, :3, 3]
    speed = np.abs(np.diff(q[:, ARM], axis=0)) * fps
    jerk = np.diff(q_target[:, ARM], 3, axis=0) * fps**3
    return TrajectoryStatistics(
        path_length_m=path_length(positions),
        duration_s=len(q) / fps,
        smoothness=path_smoothness(positions),
        mean_joint_speed_rad_s=float(speed.mean()) if speed.size else 0.0,
        peak_joint_speed_rad_s=float(speed.max(initial=0.0)),
        command_jerk_rad_s3=float(np.sqrt((jerk**2).mean())) if jerk.size else 0.0,
    )


class StartOffset(NamedTuple):
    """Where an object starts, relative to its nominal start pose, along world axes."""

    x_m: float
    y_m: float
    heading_rad: float


def start_offset(pose_base: np.ndarray, placement: PlacementConfig, T_world_base: np.ndarray) -> StartOffset:
    """Offset of an object pose (7,) in base from the nominal placement in world.

    Position is compared at the point that yaw turns about. Heading is the turn about world z that is left when the
    tilt is taken out of the rotation between the two (its swing-twist twist), in (-pi, pi].
    """
    T_world_obj = world_from_base(T_world_base, pose_from_pos_quat(pose_base))
    R_world_nominal = rotation_from_quat(np.array(placement.quat_wxyz))
    pivot = np.array(placement.yaw_center_m)  # in the object frame
    delta = T_world_obj[:3, 3] + T_world_obj[:3, :3] @ pivot - np.array(placement.position_m) - R_world_nominal @ pivot
    turn = T_world_obj[:3, :3] @ R_world_nominal.T
    heading = math.atan2(turn[1, 0] - turn[0, 1], turn[0, 0] + turn[1, 1])
    return StartOffset(float(delta[0]), float(delta[1]), heading)


def heading_range(placement: PlacementConfig) -> tuple[float, float]:
    """Headings, rad, that the ranges of a placement allow: yaw, plus roll where the object's x axis stands upright."""
    upright = float(rotation_from_quat(np.array(placement.quat_wxyz))[2, 0])  # z of its x axis
    rolls = sorted(upright * roll for roll in placement.roll_rad) if abs(upright) > 0.5 else (0.0, 0.0)
    return placement.yaw_rad[0] + rolls[0], placement.yaw_rad[1] + rolls[1]


def bin_indices(values: np.ndarray, low: float, high: float, bins: int) -> np.ndarray:
    """Bin 0..bins-1 of each value; all 0 for an empty range; values outside fall in the first or last bin."""
    if not high > low:
        return np.zeros(len(values), int)
    return np.clip(((np.asarray(values) - low) / (high - low) * bins).astype(int), 0, bins - 1)


def bin_counts(indices: np.ndarray, success: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Tries and successes per bin, both of `shape`, from flat bin indices (N,) and outcomes (N,) bool."""
    size = math.prod(shape)
    tries = np.bincount(indices, minlength=size).reshape(shape)
    return tries, np.bincount(indices[success], minlength=size).reshape(shape)


class SourceUse(NamedTuple):
    """How often one seed was the source of a subtask, and how often that attempt succeeded."""

    source: str
    used: int
    succeeded: int


def source_usage(uses: Iterable[tuple[str, bool]]) -> list[SourceUse]:
    """(source, attempt succeeded) pairs to one row a source, most used first, then by name."""
    used, succeeded = Counter(), Counter()
    for source, success in uses:
        used[source] += 1
        succeeded[source] += success
    return [SourceUse(name, used[name], succeeded[name]) for name in sorted(used, key=lambda name: (-used[name], name))]


def cause_table(causes: Iterable[str]) -> list[tuple[str, int]]:
    """Causes with their counts, most frequent first, then by name; the empty cause (success) is left out."""
    counts = Counter(cause for cause in causes if cause)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


class Summary(NamedTuple):
    """Five numbers of a sample."""

    n: int
    p5: float
    median: float
    p95: float
    mean: float


def summarise(values: Iterable[float]) -> Summary | None:
    """Sample size, 5th percentile, median, 95th percentile, mean; None of nothing."""
    array = np.array(list(values), float)
    if not array.size:
        return None
    p5, median, p95 = np.percentile(array, [5, 50, 95])
    return Summary(len(array), float(p5), float(median), float(p95), float(array.mean()))
