"""One episode of an evaluation, in memory and on disk: `episode_NNNNNNN.npz`, without pickle, named by its seed."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from so101.config import Config
from so101.datasets.demo import Demo
from so101.errors import DataError
from so101.evaluation.closed_loop.stages import furthest
from so101.files import write_atomic

FORMAT_VERSION = 1
_ARRAYS = ("q", "q_target", "sent", "chunk", "row", "chunks", "asked", "latency_ms", "physics_state")


@dataclass(frozen=True)
class Episode:
    """T control periods at `fps` Hz, N chunks of H rows. Row t is what was observed, then what was commanded.

    Attributes:
        seed: of placements, start pose, physics, looks.
        task: key in task.yaml.
        q: (T, 6) measured joints, rad.
        q_target: (T, 6) what the chunks asked for, after the seams were smoothed, rad.
        sent: (T, 6) what was sent after clamps, rad.
        objects: name -> (T, 7) pose in base.
        chunk, row: (T,) which chunk, from 0, and which of its rows; -1: the pose was held.
        chunks: (N, H, 6) the policy's chunks, rad.
        asked: (N,) the frame each was made from.
        latency_ms: (N,) from asking to answer.
        physics_state: as `World.physics_state`.
        strict, geometric: the verdict at the end.
        stages: stage -> its first frame, None: not reached.
        success_frame: first frame of the strict success that held to the end; None without.
        ended: success | done (the policy had no more) | time | error.
        error: what the policy raised; it ends an episode, which is then no success.
        meta: JSON values: `verdict` (figures), `language`, `policy` (what reset and the chunks told), the world's.
    """

    seed: int
    task: str
    fps: float
    q: np.ndarray
    q_target: np.ndarray
    sent: np.ndarray
    objects: dict[str, np.ndarray]
    chunk: np.ndarray
    row: np.ndarray
    chunks: np.ndarray
    asked: np.ndarray
    latency_ms: np.ndarray
    physics_state: np.ndarray
    strict: bool
    geometric: bool
    stages: dict[str, int | None]
    success_frame: int | None
    ended: str
    error: str = ""
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def num_frames(self) -> int:
        return len(self.q)

    @property
    def stage(self) -> str:
        """The furthest stage."""
        return furthest(self.stages)

    @property
    def time_to_success_s(self) -> float | None:
        return None if self.success_frame is None else self.success_frame / self.fps

    def T_base_ee(self, config: Config) -> np.ndarray:
        """(T, 4, 4) of the measured joints."""
        from so101.kinematics.arm import ArmKinematics

        return ArmKinematics(config).fk(self.q)

    def as_demo(self, index: int) -> Demo:
        """The same as a demo, whose commands are what was sent."""
        return Demo(
            index=index, seed=self.seed, task=self.task, fps=self.fps, q_target=self.sent, q=self.q,
            objects=self.objects, physics_state=self.physics_state, cause="" if self.strict else self.stage,
            strict=self.strict, geometric=self.geometric, meta=self.meta,
        )  # fmt: skip


def episode_path(folder: Path | str, seed: int) -> Path:
    """The file of the episode with this seed."""
    return Path(folder) / f"episode_{seed:07d}.npz"


def list_episodes(folder: Path | str) -> list[Path]:
    """Files of episodes by seed; an absent folder has none."""
    paths = Path(folder).glob("episode_[0-9]*.npz")
    return sorted(paths, key=lambda path: int(path.stem.removeprefix("episode_")))


def save_episode(folder: Path | str, episode: Episode) -> Path:
    """Write it to its file in `folder`, atomically."""
    header = {
        field.name: getattr(episode, field.name) for field in fields(Episode) if field.name not in (*_ARRAYS, "objects")
    }
    header |= {"version": FORMAT_VERSION, "objects": list(episode.objects)}
    arrays = {name: getattr(episode, name) for name in _ARRAYS}
    arrays |= {f"object_{i}": poses for i, poses in enumerate(episode.objects.values())}
    packed = np.frombuffer(json.dumps(header, sort_keys=True).encode(), np.uint8)
    path = episode_path(folder, episode.seed)
    write_atomic(path, lambda file: np.savez_compressed(file, header=packed, **arrays))
    return path


def load_episode(path: Path | str) -> Episode:
    """Read the file of an episode.

    Raises:
        DataError: not one, cut off, or of another version.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes())
            if (version := header.pop("version")) != FORMAT_VERSION:
                raise ValueError(f"format version {version}; this program reads {FORMAT_VERSION}")
            objects = {name: file[f"object_{i}"] for i, name in enumerate(header.pop("objects"))}
            return Episode(objects=objects, **{name: file[name] for name in _ARRAYS}, **header)
    except (OSError, EOFError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path}: cannot be read as an episode of an evaluation ({error}); delete it and run the same command again"
        ) from None
