"""A LeRobot v2.1 dataset as the embedded policy learns from it: states, actions, tasks, videos, object points."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from so101.config import Config
from so101.datasets.lerobot_files import fill_path
from so101.datasets.lerobot_v21 import OBJECTS, dataset_units
from so101.datasets.recordings import read_recording
from so101.datasets.validate import MARKER
from so101.errors import DataError
from so101.geometry import pose_from_pos_quat

_VIDEO_PREFIX = "observation.images."


@dataclass(frozen=True)
class Dataset:
    """Everything but the pictures.

    Attributes:
        folder: of the dataset.
        fps: frames a second.
        states, actions: per episode (T, 6) float32, in the units of the dataset.
        task_of, tasks: per episode its index into the task texts.
        cameras: names of the cameras; `videos[e][c]` is the file of episode e and camera c.
        points: per episode (T, P, 3) float32 m, points on the objects in base; nan where nobody knows. P may be 0.
        point_objects: the object of each point.
        fingerprint: hex digest of the numbers and of the sizes of the videos; of a part also of how much it is.
        folder_fingerprint: the same for all episodes of the folder.
    """

    folder: Path
    fps: float
    states: list[np.ndarray]
    actions: list[np.ndarray]
    task_of: np.ndarray
    tasks: tuple[str, ...]
    cameras: tuple[str, ...]
    videos: list[list[Path]]
    points: list[np.ndarray]
    point_objects: tuple[str, ...]
    fingerprint: str
    folder_fingerprint: str

    @property
    def lengths(self) -> np.ndarray:
        return np.array([len(states) for states in self.states])

    def first(self, episodes: int) -> Dataset:
        """The same with the first `episodes` only.

        Raises:
            DataError: it has fewer.
        """
        if not 1 <= episodes <= len(self.states):
            raise DataError(f"{self.folder} has {len(self.states)} episodes; {episodes} cannot be learned from")
        parts = {key: getattr(self, key)[:episodes] for key in ("states", "actions", "task_of", "videos", "points")}
        mark = hashlib.sha256(f"{self.fingerprint} {episodes}".encode()).hexdigest()
        return Dataset(**{**self.__dict__, **parts, "fingerprint": mark})


def read_dataset(folder: Path | str, config: Config) -> Dataset:
    """Read all but the pictures.

    Raises:
        DataError: not a LeRobot v2.1 dataset, of another rate or other units than the configuration, without videos.
    """
    folder = Path(folder)
    info = _read_info(folder)
    recordings = read_recording(folder, config)
    missing = [r.name for r in recordings if r.state is None]
    if missing:
        raise DataError(f"{folder}: {missing[0]} has no observation.state; a policy needs the measured joints")
    hz = config.scene.physics.control_hz
    if abs(recordings[0].fps - hz) > 1e-3 * hz:
        raise DataError(
            f"{folder}: recorded at {recordings[0].fps:g} Hz, but the arm is driven at {hz:g} "
            "(scene.physics.control_hz); `./twin merge --resample` makes another rate of it"
        )
    _check_units(folder, config)
    cameras = tuple(k.removeprefix(_VIDEO_PREFIX) for k, f in info["features"].items() if f.get("dtype") == "video")
    if not cameras:
        raise DataError(f"{folder}: no videos among its features; the embedded policy learns from pictures")
    tasks = tuple(dict.fromkeys(recording.task for recording in recordings))
    fingerprint = _fingerprint(folder)
    points, names = _object_points(folder, config, [r.num_frames for r in recordings])
    return Dataset(
        folder=folder,
        fps=recordings[0].fps,
        states=[r.state.astype(np.float32) for r in recordings],
        actions=[r.action.astype(np.float32) for r in recordings],
        task_of=np.array([tasks.index(r.task) for r in recordings]),
        tasks=tasks,
        cameras=cameras,
        videos=[[_video(folder, info, e, camera) for camera in cameras] for e in range(len(recordings))],
        points=points,
        point_objects=names,
        fingerprint=fingerprint,
        folder_fingerprint=fingerprint,
    )


def _read_info(folder: Path) -> dict[str, Any]:
    path = folder / "meta/info.json"
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
        version = info["codebase_version"]
        info["features"], info["video_path"], info["chunks_size"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: cannot be read as a LeRobot dataset ({error!r}); `./twin dataset --run RUN` writes one into "
            "RUN/dataset"
        ) from None
    if version != "v2.1":
        raise DataError(
            f"{folder}: is LeRobot {version}, training reads v2.1; "
            f"convert it with `./twin merge --format v2.1 --out NEW {folder}`"
        )
    return info


def _check_units(folder: Path, config: Config) -> None:
    """Datasets of ours say their units; they must be those the policy will be asked in."""
    try:
        units = json.loads((folder / "meta" / MARKER).read_text(encoding="utf-8"))["units"]
        scale, offset = np.array(units["scale_per_rad"], float), np.array(units["offset"], float)
    except (OSError, ValueError, KeyError, TypeError):
        return  # of somebody else: in whatever units it is, the policy speaks them
    ours = dataset_units(config)
    if not (np.allclose(scale, ours.scale) and np.allclose(offset, ours.offset)):
        raise DataError(
            f"{folder}: was written with other units than dataset.units says now ({config.dataset.units.body}); set "
            "them as they were, or write the dataset again with `./twin dataset --fresh`"
        )


def _video(folder: Path, info: dict[str, Any], episode: int, camera: str) -> Path:
    chunk = episode // int(info["chunks_size"])
    places = {"episode_chunk": chunk, "episode_index": episode, "video_key": f"{_VIDEO_PREFIX}{camera}"}
    path = folder / fill_path(info["video_path"], folder, "video_path", **places)
    if not path.is_file():
        raise DataError(f"{path}: the video is missing; `./twin dataset --check {folder}` says what else is")
    return path


def _object_points(folder: Path, config: Config, lengths: list[int]) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Points of an object: its origin, and those `objects_arm_m` along its axes; of an object that looks the same all
    around its axis only the one along that."""
    path = folder / "meta" / OBJECTS
    unknown = [np.full((length, 0, 3), np.nan, np.float32) for length in lengths]
    if not path.is_file() or config.training.embedded.objects_weight == 0:
        return unknown, ()
    try:
        table = pq.read_table(path)
        episodes = table["episode_index"].to_numpy()
        names = [name for name in table.column_names if name not in ("episode_index", "frame_index")]
        poses = {name: _poses(table[name].to_pylist()) for name in names}
    except Exception as error:
        raise DataError(f"{path}: cannot be read ({error}); write the dataset again") from None
    if not np.array_equal(np.bincount(episodes, minlength=len(lengths)), lengths):
        raise DataError(f"{path}: its rows are not those of the episodes; write the dataset again")
    arm, props, labels, parts = (
        config.training.embedded.objects_arm_m,
        config.scene.props,
        [],
        [np.empty((sum(lengths), 0, 3))],
    )
    for name in names:
        placed = config.objects.get(name)
        axis = props[placed.prop].symmetry_axis if placed else None
        axes = np.eye(3) if axis is None else np.array([axis], float)
        offsets = np.concatenate([np.zeros((1, 3)), axes * arm])
        T = pose_from_pos_quat(poses[name])
        parts.append(np.einsum("tij,pj->tpi", T[:, :3, :3], offsets) + T[:, None, :3, 3])
        labels += [name] * len(offsets)
    points = np.concatenate(parts, axis=1).astype(np.float32)
    return np.split(points, np.cumsum(lengths)[:-1]), tuple(labels)


def _poses(rows: list[list[float] | None]) -> np.ndarray:
    nowhere = [np.nan] * 3 + [1.0, 0.0, 0.0, 0.0]
    return np.array([nowhere if row is None else row for row in rows], float)


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if not path.is_file() or inside.parts[0] not in ("meta", "data", "videos"):
            continue
        digest.update(f"{inside} {path.stat().st_size}\n".encode())
        if inside.parts[0] != "videos":
            digest.update(path.read_bytes())
    return digest.hexdigest()
