"""A LeRobot dataset of v2.1 or v3.0 as it is: all columns, tasks and clips of its episodes, nothing converted."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from so101.datasets.checks.base import MARKER, SCALAR_DTYPES
from so101.datasets.clips import Clip
from so101.datasets.lerobot_files import (
    check_version,
    episode_tables,
    fill_path,
    first_task,
    read_json,
    read_json_lines,
    read_parquet,
)
from so101.errors import DataError

SOURCES = "so101_sources.json"  # in meta/ of a merged dataset: which episodes come from where
VIDEO_PATHS = {
    "v2": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    "v3": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
}
_NUMBERS = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")


@dataclass(frozen=True)
class SourceEpisode:
    """One episode of T frames.

    Attributes:
        columns: (T, D) or (T,) by feature, without the counters of `SCALAR_DTYPES` but with `timestamp`.
        tasks: (T,) text of each frame.
        clips: where its frames are, by video feature.
    """

    index: int
    columns: dict[str, np.ndarray]
    tasks: np.ndarray
    clips: dict[str, Clip]

    @property
    def length(self) -> int:
        return len(self.tasks)


@dataclass(frozen=True)
class LeRobotSource:
    """A dataset. `marker` is meta/so101.json and `sources` those of meta/so101_sources.json, where this program wrote
    them, else empty."""

    path: Path
    info: dict[str, Any]
    episodes: list[SourceEpisode]
    marker: dict[str, Any] = field(default_factory=dict)
    sources: list[dict[str, Any]] = field(default_factory=list)

    @property
    def version(self) -> str:
        return str(self.info["codebase_version"])

    @property
    def fps(self) -> float:
        return float(self.info["fps"])

    @property
    def features(self) -> dict[str, dict]:
        """Those that are data: not the counters LeRobot adds."""
        return {key: feature for key, feature in self.info["features"].items() if key not in SCALAR_DTYPES}

    @property
    def num_frames(self) -> int:
        return sum(episode.length for episode in self.episodes)


def read_source(path: Path | str) -> LeRobotSource:
    """All of a dataset but the pictures, which stay in their files.

    Raises:
        DataError: no LeRobot dataset, a version or feature that cannot be read, or a damaged table.
    """
    path = Path(path)
    if not (path / "meta" / "info.json").is_file():
        raise DataError(f"{path}: no meta/info.json in it; a folder of a LeRobot dataset (v2.1 or v3.0) is needed")
    info = read_json(path / "meta" / "info.json")
    check_version(path, info)
    features = _checked_features(path, info)
    texts = _task_texts(path, info)
    episodes = []
    for index, table, row in episode_tables(path, info):
        columns = {
            key: _column(table, key, feature, f"{path} episode {index}")
            for key, feature in features.items()
            if feature["dtype"] != "video" and (key not in SCALAR_DTYPES or key in ("timestamp", "task_index"))
        }
        tasks = _frame_tasks(columns.pop("task_index", None), texts, row, table.num_rows, f"{path} episode {index}")
        clips = {
            key: _clip(path, info, key, index, row, table.num_rows)
            for key, feature in features.items()
            if feature["dtype"] == "video"
        }
        episodes.append(SourceEpisode(index, columns, tasks, clips))
    if not episodes:
        raise DataError(f"{path}: the dataset has no episodes")
    sources = _ours(path, SOURCES).get("sources")
    return LeRobotSource(path, info, episodes, marker_of(path), sources if isinstance(sources, list) else [])


def _checked_features(path: Path, info: dict[str, Any]) -> dict[str, dict]:
    where, features, fps = f"{path}/meta/info.json", info.get("features"), info.get("fps")
    if isinstance(fps, bool) or not isinstance(fps, (int, float)) or not 0 < fps < 1e4:
        raise DataError(f"{where}: fps is {fps!r}; it must be the frame rate in Hz")
    if not isinstance(features, dict) or {"action", "observation.state"} - set(features):
        known = ", ".join(features) if isinstance(features, dict) else "none"
        raise DataError(f"{where}: needed are the features action and observation.state, found: {known}")
    for key, feature in features.items():
        dtype = feature.get("dtype") if isinstance(feature, dict) else None
        if dtype not in ("video", *_NUMBERS) or not isinstance(feature.get("shape"), list):
            raise DataError(
                f"{where}: feature {key} is {dtype!r} of shape {feature.get('shape') if dtype else None}; only "
                "numbers and videos can be merged: take the feature out, or make videos of images with lerobot's tools"
            )
        details = {**(feature.get("video_info") or {}), **(feature.get("info") or {})}
        if details.get("video.is_depth_map") or details.get("is_depth_map"):
            raise DataError(f"{where}: {key} is a depth video, which would not survive our codec; take the feature out")
    return features


def _task_texts(path: Path, info: dict[str, Any]) -> dict[int, str]:
    """Task index -> text."""
    if str(info.get("codebase_version", "")).startswith("v2"):
        return {row.get("task_index"): row.get("task") for row in read_json_lines(path / "meta" / "tasks.jsonl")}
    table = read_parquet(path / "meta" / "tasks.parquet")
    text = next((name for name in ("task", "__index_level_0__") if name in table.column_names), None)
    if text is None or "task_index" not in table.column_names:
        raise DataError(f"{path}/meta/tasks.parquet: no task_index and task in it (columns: {table.column_names})")
    return dict(zip(table["task_index"].to_pylist(), table[text].to_pylist(), strict=True))


def _frame_tasks(
    indices: np.ndarray | None, texts: dict[int, str], row: dict[str, Any], length: int, where: str
) -> np.ndarray:
    if indices is None:
        return np.full(length, first_task(row.get("tasks")), object)
    unknown = sorted(set(indices.tolist()) - set(texts))
    if unknown:
        raise DataError(f"{where}: task_index {unknown} is not in the dataset's table of tasks")
    return np.array([texts[index] for index in indices.tolist()], object)


def _column(table: pa.Table, key: str, feature: dict[str, Any], where: str) -> np.ndarray:
    if key not in table.column_names:
        raise DataError(f"{where}: no column {key!r} in its parquet (columns: {', '.join(table.column_names)})")
    column = table[key].combine_chunks()
    shape = (table.num_rows, *feature["shape"]) if feature["shape"] != [1] else (table.num_rows,)
    while pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        column = pa.nulls(1) if column.null_count else column.flatten()
    values = None if column.null_count else column.to_numpy(zero_copy_only=False)
    if values is None or values.dtype.kind not in "fiub" or values.size != np.prod(shape):
        raise DataError(
            f"{where}: {key} has rows of different lengths, nulls, or another length than meta/info.json says "
            f"({feature['shape']}); the recording is damaged"
        )
    return values.reshape(shape).astype(feature["dtype"], copy=False)


def _clip(path: Path, info: dict[str, Any], key: str, index: int, row: dict[str, Any], length: int) -> Clip:
    version, fps = str(info["codebase_version"])[:2], float(info["fps"])
    template = info.get("video_path") or VIDEO_PATHS[version]
    if version == "v2":
        chunk = index // int(info.get("chunks_size", 1000))
        name = fill_path(template, path, "video_path", episode_chunk=chunk, episode_index=index, video_key=key)
        return Clip(path / name, 0, length, fps)
    place = {part: row.get(f"videos/{key}/{part}") for part in ("chunk_index", "file_index", "from_timestamp")}
    if any(not isinstance(value, (int, float)) for value in place.values()):
        raise DataError(f"{path}/meta/episodes: episode {index} does not say where its frames of {key} are ({place})")
    start = place.pop("from_timestamp")
    name = fill_path(template, path, "video_path", video_key=key, **place)
    return Clip(path / name, round(start * fps), length, fps)


def marker_of(path: Path | str) -> dict[str, Any]:
    """meta/so101.json of a dataset that this program wrote, else empty."""
    return _ours(Path(path), MARKER)


def _ours(path: Path, name: str) -> dict[str, Any]:
    """A JSON object in meta/ that only datasets of this program have."""
    try:
        value = json.loads((path / "meta" / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
