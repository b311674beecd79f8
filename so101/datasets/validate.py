"""Checks a LeRobot v2.1 dataset folder against what LeRobot and GR00T require of it: `validate_dataset`.

Knows nothing of how the dataset was made and changes nothing. GR00T's files (modality, statistics) are required too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from so101.datasets.stats import column_stats, groot_stats, relative_stats, stats_faults
from so101.datasets.videos import VideoFacts, probe_video, video_stats
from so101.errors import DataError

MARKER = "so101.json"  # provenance file in meta/, written by lerobot_v21
SCALAR_DTYPES = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
TIMESTAMP_TOLERANCE_S = 1e-4  # LeRobot's default: a frame further from its timestamp is refused
_VECTORS = {"state": "observation.state", "action": "action"}  # section of modality.json -> its default column
_INFO_KEYS = {
    "codebase_version": str,
    "robot_type": str,
    "total_episodes": int,
    "total_frames": int,
    "total_tasks": int,
    "total_videos": int,
    "total_chunks": int,
    "chunks_size": int,
    "fps": int,
    "splits": dict,
    "data_path": str,
    "video_path": str,
    "features": dict,
}
_DTYPES = ("video", "float32", "int64", "float64", "int32", "float16")


def validate_dataset(path: Path | str, *, images: bool = True) -> list[str]:
    """All faults of the dataset at `path`, one sentence each; an empty list when LeRobot and GR00T can use it.

    Args:
        path: the folder with meta/, data/ and videos/.
        images: also decode the videos and recompute their statistics (slow: every frame is decoded).
    """
    checker = _Checker(Path(path))
    checker.run(images)
    return checker.faults


class _Checker:
    """One pass over a dataset; `faults` collects what is wrong. Later checks skip what earlier ones could not read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.faults: list[str] = []
        self.info: dict[str, Any] = {}
        self.features: dict[str, dict] = {}
        self.episodes: list[dict] = []
        self.tasks: list[dict] = []
        self.columns: list[dict[str, np.ndarray] | None] = []  # an episode each, None when unreadable

    def run(self, images: bool) -> None:
        if not self._info():
            return
        self.episodes = self._jsonl("episodes.jsonl", "episode_index", {"tasks": list, "length": int})
        self.tasks = self._jsonl("tasks.jsonl", "task_index", {"task": str})
        self._totals()
        first_row = 0
        for episode in self.episodes:
            self.columns.append(self._episode_data(episode, first_row))
            first_row += episode["length"]
        self._videos()
        self._strays()
        self._episode_stats(images)
        modality = self._json("modality.json")
        self._groot_stats(modality)
        if isinstance(modality, dict):
            self._modality(modality)

    def _fault(self, text: str) -> None:
        self.faults.append(text)

    # meta files

    def _json(self, name: str) -> Any:
        path = self.root / "meta" / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            self._fault(f"meta/{name}: cannot be read ({error})")
            return None

    def _info(self) -> bool:
        info = self._json("info.json")
        if not isinstance(info, dict):
            return False
        wrong = [key for key, kind in _INFO_KEYS.items() if not isinstance(info.get(key), kind)]
        if wrong:
            self._fault(f"meta/info.json: missing or of the wrong type: {', '.join(wrong)}")
            return False
        if info["codebase_version"] != "v2.1":
            self._fault(f"meta/info.json: codebase_version is {info['codebase_version']!r}, must be 'v2.1'")
        if info["fps"] < 1 or info["chunks_size"] < 1:
            self._fault(f"meta/info.json: fps {info['fps']} and chunks_size {info['chunks_size']} must be at least 1")
            return False
        for key, feature in info["features"].items():
            if not isinstance(feature, dict) or {"dtype", "shape", "names"} - set(feature):
                self._fault(f"meta/info.json: feature {key} must have dtype, shape and names")
                return False
            if feature["dtype"] not in _DTYPES or len(feature["shape"]) != (3 if feature["dtype"] == "video" else 1):
                self._fault(f"meta/info.json: feature {key} is {feature['dtype']} {feature['shape']}; this program "
                            f"checks vectors of {', '.join(_DTYPES[1:])}, and video")  # fmt: skip
                return False
        expected = {"action": "float32", "observation.state": "float32", **SCALAR_DTYPES}
        wrong = [key for key, dtype in expected.items() if info["features"].get(key, {}).get("dtype") != dtype]
        if wrong:
            self._fault(f"meta/info.json: features missing or of another dtype than LeRobot's: {wrong}")
            return False
        self.info, self.features = info, info["features"]
        return True

    def _jsonl(self, name: str, index_key: str, keys: dict[str, type]) -> list[dict]:
        """Rows of a jsonl file whose `index_key` counts 0, 1, 2, ...; wrong rows are left out."""
        try:
            lines = (self.root / "meta" / name).read_text(encoding="utf-8").split("\n")
        except (OSError, ValueError) as error:
            self._fault(f"meta/{name}: cannot be read ({error})")
            return []
        if lines[-1] == "":
            lines.pop()
        rows = []
        for number, line in enumerate(lines):
            where = f"meta/{name} line {number + 1}"
            try:
                row = json.loads(line)
            except ValueError:
                self._fault(f"{where}: {'blank' if not line.strip() else 'not JSON'}; readers crash on it")
                continue
            row = row if isinstance(row, dict) else {}
            wrong = [key for key, kind in keys.items() if not isinstance(row.get(key), kind)]
            if wrong:
                self._fault(f"{where}: missing or of the wrong type: {', '.join(wrong)}")
            elif row.get(index_key) != number:
                self._fault(f"{where}: {index_key} is {row.get(index_key)!r}, must be {number} (0, 1, 2, ... in order)")
            else:
                rows.append(row)
        return rows

    def _totals(self) -> None:
        count = len(self.episodes)
        expected = {
            "total_episodes": count,
            "total_frames": sum(episode["length"] for episode in self.episodes),
            "total_tasks": len(self.tasks),
            "total_videos": count * len(self._video_keys()),
            "total_chunks": -(-count // self.info["chunks_size"]),
            "splits": {"train": f"0:{count}"},
        }
        for key, value in expected.items():
            if self.info[key] != value:
                self._fault(f"meta/info.json: {key} is {self.info[key]!r}, the files say {value!r}")
        known = {task["task"] for task in self.tasks}
        for episode in self.episodes:
            unknown = [task for task in episode["tasks"] if task not in known]
            if unknown or not episode["tasks"]:
                where = f"meta/episodes.jsonl: episode {episode['episode_index']}"
                self._fault(f"{where} has tasks {episode['tasks']}, each must be in tasks.jsonl")

    def _video_keys(self) -> list[str]:
        return [key for key, feature in self.features.items() if feature["dtype"] == "video"]

    def _file(self, template: str, index: int, **parts: str) -> Path | None:
        """A path from a template of info.json."""
        try:
            chunk = index // self.info["chunks_size"]
            return self.root / template.format(episode_chunk=chunk, episode_index=index, **parts)
        except (KeyError, IndexError, ValueError):
            fault = f"meta/info.json: path {template!r} may use episode_chunk, episode_index and video_key only"
            if fault not in self.faults:
                self._fault(fault)
            return None

    # data

    def _episode_data(self, episode: dict, first_row: int) -> dict[str, np.ndarray] | None:
        """Columns of an episode after checking them."""
        index, length = episode["episode_index"], episode["length"]
        path = self._file(self.info["data_path"], index)
        if path is None:
            return None
        name = path.relative_to(self.root)
        try:
            table = pq.read_table(path, partitioning=None)
        except (OSError, pa.ArrowException) as error:
            self._fault(f"{name}: cannot be read ({error})")
            return None
        expected = {key: f for key, f in self.features.items() if f["dtype"] not in ("video", "image")}
        if set(table.column_names) != set(expected):
            self._fault(f"{name}: columns are {table.column_names}, info.json says {list(expected)}")
            return None
        if table.num_rows != length or length == 0:
            self._fault(f"{name}: {table.num_rows} rows, episodes.jsonl says {length}; both must be equal and not 0")
            return None
        columns = {}
        for key, feature in expected.items():
            kind = getattr(pa, feature["dtype"])()
            kind = kind if feature["shape"] == [1] else pa.list_(kind, feature["shape"][0])
            column = table.column(key).combine_chunks()
            if column.type != kind:
                self._fault(f"{name}: column {key} is {column.type}, must be {kind}")
                return None
            if column.null_count:
                self._fault(f"{name}: column {key} has empty cells")
                return None
            values = column.flatten() if feature["shape"] != [1] else column
            columns[key] = values.to_numpy(zero_copy_only=False)
            if feature["shape"] != [1]:
                columns[key] = columns[key].reshape(length, *feature["shape"])
            bad = ~np.isfinite(columns[key])
            if bad.any():
                self._fault(f"{name}: column {key} has values that are not finite, first in row {_first(bad)}")
        self._counters(name, columns, index, first_row, len(columns["timestamp"]))
        return columns

    def _counters(self, name: Path, columns: dict[str, np.ndarray], index: int, first_row: int, length: int) -> None:
        rows = np.arange(length)
        expected = {"frame_index": rows, "episode_index": 0 * rows + index, "index": first_row + rows}
        for key, values in expected.items():
            if not np.array_equal(columns[key], values):
                row = _first(columns[key] != values)
                self._fault(f"{name}: {key} is {columns[key][row]} in row {row}, must be {values[row]}")
        late = np.abs(columns["timestamp"] - rows / self.info["fps"]) > TIMESTAMP_TOLERANCE_S
        if late.any():
            row = _first(late)
            self._fault(f"{name}: timestamp is {columns['timestamp'][row]} in row {row}, must be frame_index / fps")
        unknown = set(columns["task_index"].tolist()) - set(range(len(self.tasks)))
        if unknown:
            self._fault(f"{name}: task_index {sorted(unknown)} not in tasks.jsonl")

    # videos

    def _videos(self) -> None:
        for key in self._video_keys():
            for episode in self.episodes:
                path = self._file(self.info["video_path"], episode["episode_index"], video_key=key)
                if path is None:
                    return
                try:
                    video = probe_video(path)
                except DataError as error:
                    self._fault(str(error))
                    continue
                self._one_video(path.relative_to(self.root), video, key, episode["length"])

    def _one_video(self, name: Path, video: VideoFacts, key: str, length: int) -> None:
        if video.num_frames != length:
            self._fault(f"{name}: {video.num_frames} frames, the episode has {length}")
        elif np.max(np.abs(video.timestamps_s - np.arange(length) / self.info["fps"])) > TIMESTAMP_TOLERANCE_S:
            self._fault(f"{name}: frame times are not frame_index / fps at {self.info['fps']} fps")
        found, declared = video.feature(), self.features[key]
        for entry in ("shape", "names", "info"):
            if declared.get(entry) != found[entry]:
                self._fault(f"{name}: {entry} is {found[entry]}, info.json says {declared.get(entry)}")

    def _strays(self) -> None:
        """LeRobot loads every parquet file under data/, listed or not."""
        indices = [episode["episode_index"] for episode in self.episodes]
        expected = {self._file(self.info["data_path"], index) for index in indices}
        for key in self._video_keys():
            expected |= {self._file(self.info["video_path"], index, video_key=key) for index in indices}
        for folder, pattern in (("data", "*.parquet"), ("videos", "*.mp4")):
            for path in sorted((self.root / folder).rglob(pattern)):
                if path not in expected:
                    self._fault(f"{path.relative_to(self.root)}: belongs to no episode; remove it")

    # statistics and modality

    def _episode_stats(self, images: bool) -> None:
        rows = self._jsonl("episodes_stats.jsonl", "episode_index", {"stats": dict})
        if len(rows) != len(self.episodes):
            self._fault(f"meta/episodes_stats.jsonl: {len(rows)} usable lines for {len(self.episodes)} episodes")
            return
        for episode, row, columns in zip(self.episodes, rows, self.columns, strict=True):
            where = f"meta/episodes_stats.jsonl episode {row['episode_index']}"
            if set(row["stats"]) != set(self.features):
                self._fault(f"{where}: features are {sorted(row['stats'])}, info.json says {sorted(self.features)}")
                continue
            for key, column in (columns or {}).items():
                self.faults += stats_faults(f"{where}: {key}", row["stats"][key], column_stats(column))
            for key in self._video_keys() if images else ():
                path = self._file(self.info["video_path"], episode["episode_index"], video_key=key)
                try:
                    expected = video_stats(path, episode["length"])
                    self.faults += stats_faults(f"{where}: {key}", row["stats"][key], expected)
                except DataError as error:
                    self._fault(str(error))

    def _groot_stats(self, modality: Any) -> None:
        stats, relative = self._json("stats.json"), self._json("relative_stats.json")
        if any(columns is None for columns in self.columns) or not self.columns:
            return
        for key, feature in self.features.items():
            if "float" in feature["dtype"] and isinstance(stats, dict):
                expected = groot_stats([columns[key] for columns in self.columns])
                self.faults += stats_faults(f"meta/stats.json: {key}", stats.get(key), expected)
        for group, written in (relative or {}).items():
            try:
                horizon = len(written["mean"])
                parts = [slice(modality[kind][group]["start"], modality[kind][group]["end"]) for kind in _VECTORS]
            except (KeyError, TypeError):
                self._fault(f"meta/relative_stats.json: {group} is no statistics of a group of modality.json")
                continue
            states, actions = (
                [columns[key][:, part] for columns in self.columns]
                for key, part in zip(_VECTORS.values(), parts, strict=True)
            )
            expected = relative_stats(states, actions, horizon)
            self.faults += stats_faults(f"meta/relative_stats.json: {group}", written, expected)

    def _modality(self, modality: dict) -> None:
        for kind, default in _VECTORS.items():
            for name, part in self._entries(modality, kind):
                size = self.features.get(part.get("original_key", default), {"shape": [0]})["shape"][0]
                start, end = part.get("start"), part.get("end")
                if not (isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= size):
                    self._fault(f"meta/modality.json: {kind}.{name} is [{start}, {end}], outside {size} values")
        for kind in ("video", "annotation"):
            for name, part in self._entries(modality, kind):
                key = part.get("original_key", f"annotation.{name}")
                if key not in self.features:
                    self._fault(f"meta/modality.json: {kind}.{name} refers to {key!r}, no feature of info.json")
                elif kind == "video" and self.features[key]["dtype"] != "video":
                    self._fault(f"meta/modality.json: video.{name} refers to {key!r}, which is no video")

    def _entries(self, modality: dict, kind: str) -> list[tuple[str, dict]]:
        entries = modality.get(kind)
        if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
            self._fault(f"meta/modality.json: {kind} must be a mapping of names to settings")
            return []
        return list(entries.items())


def _first(mask: np.ndarray) -> int:
    """First row of a (T, ...) mask that has a true value."""
    return int(np.argwhere(mask)[0][0])
