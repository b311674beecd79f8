"""All that is measured of rollouts: FRAME metrics, errors of joints, nearness to demos, diagnoses; one and many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from so101.config import Config
from so101.errors import DataError
from so101.evaluation.diagnosis import Diagnosis, diagnose, summarise
from so101.evaluation.frame import FrameMetrics, Nearness, frame_metrics, nearest_reference
from so101.evaluation.joint_errors import JointErrors, joint_errors
from so101.evaluation.tracks import Track, read_tracks

Reference = tuple[str, np.ndarray]  # name and (S, 3) m path of the hand in a demo


@dataclass(frozen=True)
class Measured:
    """One rollout in numbers and words; `near` is None without demos to compare with."""

    track: Track
    frame: FrameMetrics
    errors: JointErrors
    near: Nearness | None
    diagnoses: list[Diagnosis]

    @property
    def name(self) -> str:
        return self.track.name

    @property
    def outcome(self) -> str:
        """success, failure, or "" where nobody said."""
        return {True: "success", False: "failure", None: ""}[self.track.success]

    def figures(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "name": self.name,
            "success": self.track.success,
            "facts": self.track.facts,
            "frame": self.frame.figures(),
            "joints": self.errors.figures(),
            "reference": None if self.near is None else asdict(self.near),
            "diagnoses": [found._asdict() for found in self.diagnoses],
        }


def reference_paths(path: Path | str, config: Config, fk: Callable[[np.ndarray], np.ndarray]) -> list[Reference]:
    """Paths of the hand in the demos of `path`, as `read_tracks` takes it; failures among them are left out.

    Raises:
        DataError: it cannot be read, or holds failures only.
    """
    demos = [track for track in read_tracks(path, config) if track.success is not False]
    if not demos:
        raise DataError(f"{path}: every episode is a failure; name demos to compare with")
    return [(track.name, fk(track.q)[:, :3, 3]) for track in demos]


def measure(
    config: Config,
    track: Track,
    fk: Callable[[np.ndarray], np.ndarray],
    references: Sequence[Reference] = (),
) -> Measured:
    """Measure one rollout. One among its own references is not compared with itself.

    Args:
        fk: (T, 6) rad to (T, 4, 4) T_base_ee.

    Raises:
        ConfigError: robometric-frame is not installed.
        DataError: shorter than three frames.
    """
    if track.num_frames < 3:
        raise DataError(f"{track.name}: {track.num_frames} frames are too few to measure; at least 3 are needed")
    positions = fk(track.q)[:, :3, 3]
    others = [(name, path) for name, path in references if not np.array_equal(path, positions)]
    candidates = config.deploy.evaluation.diagnosis.off_candidates
    near = nearest_reference(positions, others, candidates=candidates) if others else None
    errors = joint_errors(config, track)
    return Measured(track, frame_metrics(config, track, fk), errors, near, diagnose(config, track, fk, errors, near))


def totals(measured: Sequence[Measured]) -> dict[str, float]:
    """The numbers of many rollouts, flat, for tables and MLflow: medians of the FRAME metrics and of the share of each
    joint, how often each diagnosis was made, as a share of the rollouts."""
    rows = [one.frame.figures() for one in measured]
    flat = {f"frame/{key}": _median([row[key] for row in rows]) for key in rows[0]}
    for j, joint in enumerate(measured[0].errors.names):
        flat[f"mse/{joint}"] = _median([one.errors.mse[j] for one in measured])
        flat[f"mse_share/{joint}"] = _median([one.errors.share[j] for one in measured])
        flat[f"lag_ms/{joint}"] = _median([one.errors.lag_ms[j] for one in measured])
    if near := [one.near for one in measured if one.near is not None]:
        flat["reference/distance_m"] = _median([found.distance_m for found in near])
        flat["reference/ndtw"] = _median([found.ndtw for found in near])
    for name, count in summarise([one.diagnoses for one in measured]):
        flat[f"diagnosis/{name.replace(' ', '_')}"] = count / len(measured)
    return {key: value for key, value in flat.items() if np.isfinite(value)}


def _median(values: Sequence[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(np.median(known)) if known else float("nan")
