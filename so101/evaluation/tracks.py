"""Rollouts and demonstrations as the metrics see them: what was commanded and what was observed, frame by frame.

One reader for what this program and others leave: episodes of `./twin eval`, sessions of `./real`, demos of a run,
LeRobot datasets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from so101.config import Config
from so101.control.rollout_log import TickRow, read_log
from so101.datasets.demo import Demo, list_demos, load_demo
from so101.errors import DataError

_POLICY = "policy"  # the phase of a log that is judged


@dataclass(frozen=True)
class Track:
    """T frames at `fps` Hz, joints in rad, order of robot.yaml. Row t is what was observed, then what was commanded.

    Attributes:
        name: of the episode, unique in its source.
        q: (T, 6) observed.
        q_target: (T, 6) wanted, before the driver's limits; equal to `sent` where nobody kept it.
        sent: (T, 6) commanded.
        chunk: (T,) number of the action chunk; -1: none, the pose was held.
        misses: frame -> why its command was late or not fresh.
        objects: name -> (T, 7) pose in base; empty where nobody knows.
        stages: stage of the task -> its first frame, None: not reached; empty where nobody knows.
        success: None: nobody said.
        facts: what else its file tells, JSON values.
    """

    name: str
    fps: float
    q: np.ndarray
    q_target: np.ndarray
    sent: np.ndarray
    chunk: np.ndarray
    misses: dict[int, str] = field(default_factory=dict)
    objects: dict[str, np.ndarray] = field(default_factory=dict)
    stages: dict[str, int | None] = field(default_factory=dict)
    success: bool | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def num_frames(self) -> int:
        return len(self.q)

    @property
    def seams(self) -> np.ndarray:
        """Frames in which a new chunk begins."""
        return 1 + np.flatnonzero((np.diff(self.chunk) != 0) & (self.chunk[1:] >= 0))


def track_files(path: Path | str) -> list[Path]:
    """The files that `path` holds, one an episode, in order; a LeRobot dataset is one.

    Args:
        path: a file, an evaluation, a session of `./real`, a run of the pipeline, a folder of demos or episodes, or a
            LeRobot dataset.

    Raises:
        DataError: there is nothing of the kind.
    """
    path = Path(path)
    if path.is_file() or (path / "meta" / "info.json").is_file():
        return [path]
    for folder in (path, path / "episodes"):
        if found := sorted(folder.glob("episode_[0-9]*.npz"), key=lambda file: int(file.stem.partition("_")[2])):
            return found
    if found := sorted(path.glob("logs/demo_[0-9]*.csv")):
        return found
    for folder in (path, path / "verified", path / "episodes"):
        if found := list_demos(folder):
            return found
    if (path / "dataset" / "meta" / "info.json").is_file():
        return [path / "dataset"]
    what = "holds none" if path.is_dir() else "does not exist"
    raise DataError(
        f"{path}: rollouts were looked for, and it {what}; pass a folder of ./twin eval, a session of ./real, a run, a "
        "LeRobot dataset, or one of their files"
    )


def read_tracks(path: Path | str, config: Config, *, episode: int | None = None) -> list[Track]:
    """All rollouts or demonstrations in `path`, or the one at place `episode`, from 0.

    Raises:
        DataError: there is none, none at that place, or a file is damaged.
    """
    files = track_files(path)
    if (files[0] / "meta" / "info.json").is_file():
        tracks = _of_dataset(files[0], config)
        return tracks if episode is None else [_chosen(tracks, episode, path)]
    if episode is not None:
        files = [_chosen(files, episode, path)]
    return [_of_file(file, config) for file in files]


def _chosen(items: Sequence[Any], episode: int, path: Path | str) -> Any:
    if not 0 <= episode < len(items):
        raise DataError(f"{path}: there is no episode {episode}; it has 0 to {len(items) - 1}")
    return items[episode]


def _of_file(file: Path, config: Config) -> Track:
    if file.suffix == ".csv":
        return _of_log(file)
    if file.stem.startswith("episode_"):
        return _of_episode(file)
    return track_of_demo(load_demo(file), file.stem)


def track_of_demo(demo: Demo, name: str) -> Track:
    """A demo of the pipeline or a recording; its commands are those that were sent."""
    return Track(
        name=name,
        fps=demo.fps,
        q=demo.q,
        q_target=demo.q_target,
        sent=demo.q_target,
        chunk=np.full(demo.num_frames, -1),
        objects=demo.objects,
        success=demo.strict,
        facts={"seed": demo.seed, "task": demo.task, "cause": demo.cause},
    )


def _of_episode(file: Path) -> Track:
    from so101.evaluation.closed_loop.record import load_episode

    found = load_episode(file)
    held = np.flatnonzero((found.chunk < 0) & (np.arange(found.num_frames) <= _last_commanded(found.chunk)))
    return Track(
        name=file.stem,
        fps=found.fps,
        q=found.q,
        q_target=found.q_target,
        sent=found.sent,
        chunk=found.chunk,
        misses={int(frame): "no fresh action" for frame in held},
        objects=found.objects,
        stages=found.stages,
        success=found.strict,
        facts={"seed": found.seed, "task": found.task, "ended": found.ended, "error": found.error},
    )


def _last_commanded(chunk: np.ndarray) -> int:
    """The last frame of the policy; what comes after it is settling."""
    commanded = np.flatnonzero(chunk >= 0)
    return int(commanded[-1]) if commanded.size else -1


def _of_log(file: Path) -> Track:
    rows = [row for row in read_log(file) if row.phase == _POLICY]
    if len(rows) < 2:
        raise DataError(f"{file}: the policy moved the arm in {len(rows)} ticks; there is nothing to measure")
    demo_file = file.parent.parent / "episodes" / file.with_suffix(".npz").name
    outcome = str(load_demo(demo_file).meta.get("outcome", "unknown")) if demo_file.is_file() else "unknown"
    sent = _filled(rows, "sent")
    return Track(
        name=file.stem,
        fps=1 / float(np.median(np.diff([row.due_s for row in rows]))),
        q=_filled(rows, "q"),
        q_target=_filled(rows, "target", sent),
        sent=sent,
        chunk=np.array([row.chunk for row in rows]),
        misses={i: row.miss for i, row in enumerate(rows) if row.miss},
        success={"success": True, "failure": False}.get(outcome),
        facts={"outcome": outcome},
    )


def _filled(rows: Sequence[TickRow], part: str, otherwise: np.ndarray | None = None) -> np.ndarray:
    """(T, 6) rad; where there is none, that of `otherwise`, or the one before: an arm without a command holds."""
    values = np.array([getattr(row, part) for row in rows])
    known = np.isfinite(values).all(1)
    if otherwise is not None:
        return np.where(known[:, None], values, otherwise)
    if not known.any():
        return np.array([row.q for row in rows])
    last = np.maximum.accumulate(np.where(known, np.arange(len(rows)), -1))
    return values[np.where(last < 0, int(np.argmax(known)), last)]


def _of_dataset(folder: Path, config: Config) -> list[Track]:
    from so101.datasets.recordings import read_recording
    from so101.datasets.unit_detection import detect_recording_units, to_radians

    recordings = read_recording(folder, config)
    decisions = detect_recording_units(recordings, config)
    tracks = []
    for recording, decision in zip(recordings, decisions, strict=True):
        q, command = (to_radians(part, decision, config) for part in (recording.state, recording.action))
        tracks.append(
            Track(
                name=recording.name.rpartition("/")[2],
                fps=recording.fps,
                q=q,
                q_target=command,
                sent=command,
                chunk=np.full(len(q), -1),
                facts={"task": recording.task},
            )
        )
    return tracks
