"""FRAME metrics of a rollout, by the package robometric-frame: as others compute them, on our arrays.

Thin: what the package has is asked from it. Its smoothness is another one since 0.3 (per frame, no longer per length);
`smoothness_by_length` is the earlier one, in which published SO-101 runs are told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from so101.config import Config
from so101.datasets.lerobot_v21 import dataset_units
from so101.datasets.units import rad_to_lerobot
from so101.errors import ConfigError
from so101.evaluation.statistics import ForwardKinematics, path_smoothness
from so101.evaluation.tracks import Track


def path_length(positions: np.ndarray) -> float:
    """Length of (T, D), T > 1, in its unit."""
    return _measure("PathLength", positions)


def smoothness(positions: np.ndarray) -> float:
    """Mean second difference of (T, D), T > 2, in its unit per frame squared: lower is smoother, 0 for a straight line
    at even speed. It depends on speed and frame rate."""
    return _measure("PathSmoothness", positions)


def smoothness_by_length(positions: np.ndarray) -> float:
    """Sum of the second differences of (T, D) over its length: lower is smoother; the same at any scale."""
    return path_smoothness(positions)


def ate(positions: np.ndarray, reference: np.ndarray) -> float:
    """Absolute trajectory error: mean distance of (T, D) and (T, D) frame by frame, in their unit, unaligned."""
    return _measure("AbsoluteTrajectoryError", positions, reference)


def rte(positions: np.ndarray, reference: np.ndarray, delta: int = 1) -> float:
    """Relative trajectory error: mean distance between the ways of both (T, D) over `delta` frames, in their unit."""
    return _measure("RelativeTrajectoryError", positions, reference, delta=delta)


def dtw(positions: np.ndarray, reference: np.ndarray) -> float:
    """Dynamic time warping: sum of distances of (T, D) and (S, D) along their best alignment, in their unit."""
    return _measure("DTWDistance", positions, reference)


def ndtw(positions: np.ndarray, reference: np.ndarray) -> float:
    """`dtw` as a score: exp(-dtw / path length of the reference), nearly; 1 for the same path."""
    return _measure("NormalizedDTW", positions, reference)


def action_mse(commanded: np.ndarray, observed: np.ndarray) -> float:
    """Mean over frames of the squared distance of (T, J): a sum over joints, in their unit squared."""
    return _measure("ActionAccuracy", commanded, observed)


def _measure(name: str, *arrays: np.ndarray, **options: Any) -> float:
    try:
        import robometric_frame.task_performance as tasks
        import robometric_frame.trajectory_quality as paths
        import torch
    except ImportError as error:
        raise ConfigError(
            f"FRAME metrics need the package robometric-frame ({error}); install it: pip install -e .[training]"
        ) from None
    metric = getattr(paths, name, None) or getattr(tasks, name)
    measured = metric(**options)
    measured.update(*(torch.from_numpy(np.array(array, float)) for array in arrays))
    value = measured.compute()
    return float(value["amse"] if isinstance(value, dict) else value)


@dataclass(frozen=True)
class FrameMetrics:
    """One rollout, commanded against observed. Positions are the end effector's in base, by forward kinematics; values
    in LeRobot units are what the dataset has: degrees, jaw 0 to 100.

    Attributes:
        duration_s, path_length_m, commanded_length_m: of the observed and the commanded path.
        smoothness_mm: mean second difference of the observed path, mm a frame squared.
        smoothness_by_length: sum of them over the length.
        joint_smoothness_by_length: likewise of the observed joints, in LeRobot units.
        ate_m, rte_m, dtw_m: of the observed path to the commanded one.
        action_mse: of the joints, LeRobot units squared; a tracking error: it grows with how much the arm moves.
    """

    duration_s: float
    path_length_m: float
    commanded_length_m: float
    smoothness_mm: float
    smoothness_by_length: float
    joint_smoothness_by_length: float
    ate_m: float
    rte_m: float
    dtw_m: float
    action_mse: float

    def figures(self) -> dict[str, float]:
        """JSON-ready figures."""
        return {key: round(float(value), 6) for key, value in asdict(self).items()}


def frame_metrics(config: Config, track: Track, fk: ForwardKinematics) -> FrameMetrics:
    """All of them.

    Args:
        fk: (T, 6) rad to (T, 4, 4) T_base_ee.

    Raises:
        ConfigError: robometric-frame is not installed.
        DataError: the calibration file of dataset.units is not usable.
    """
    units = dataset_units(config)
    observed, commanded = fk(track.q)[:, :3, 3], fk(track.sent)[:, :3, 3]
    joints, commands = rad_to_lerobot(track.q, units), rad_to_lerobot(track.sent, units)
    return FrameMetrics(
        duration_s=track.num_frames / track.fps,
        path_length_m=path_length(observed),
        commanded_length_m=path_length(commanded),
        smoothness_mm=1000 * smoothness(observed),
        smoothness_by_length=smoothness_by_length(observed),
        joint_smoothness_by_length=smoothness_by_length(joints),
        ate_m=ate(observed, commanded),
        rte_m=rte(observed, commanded),
        dtw_m=dtw(observed, commanded),
        action_mse=action_mse(commands, joints),
    )


@dataclass(frozen=True)
class Nearness:
    """How near a path comes to the nearest of its references.

    Attributes:
        reference: name of that one.
        distance_m: `dtw` a step of the alignment at least: over the longer of the two.
        end_m: between their last points.
        ndtw: score of the same pair.
    """

    reference: str
    distance_m: float
    end_m: float
    ndtw: float


def nearest_reference(
    positions: np.ndarray, references: Sequence[tuple[str, np.ndarray]], *, candidates: int = 3, points: int = 50
) -> Nearness:
    """Compare (T, 3) m with named paths (S, 3) m, one at least, by `dtw`.

    Args:
        candidates: so many are compared so, chosen by the mean distance of `points` points evenly along both in time.
    """

    def thinned(path: np.ndarray) -> np.ndarray:
        return path[np.linspace(0, len(path) - 1, points).round().astype(int)]

    coarse = thinned(positions)
    rough = [np.linalg.norm(thinned(path) - coarse, axis=1).mean() for _, path in references]
    found = []
    for i in np.argsort(rough, kind="stable")[:candidates]:
        name, path = references[i]
        distance = dtw(positions, path) / max(len(positions), len(path))
        end = float(np.linalg.norm(positions[-1] - path[-1]))
        found.append((distance, end, name, path))
    distance, end, name, path = min(found, key=lambda item: item[0])
    return Nearness(name, distance, end, ndtw(positions, path))
