"""A planned merge as a LeRobot v3.0 dataset: many episodes a parquet file and a video file, and a table that says where
each of them is.

Frames of a video file are at k / fps without gap, so an episode is `from_timestamp` to `to_timestamp`, exactly.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from so101.config import Config
from so101.datasets.clips import ClipFiles
from so101.datasets.lerobot_files import DATA_PATHS
from so101.datasets.lerobot_source import VIDEO_PATHS, read_source
from so101.datasets.lerobot_write import episode_table, write_json, write_tables
from so101.datasets.merge_plan import MergePlan, counters
from so101.datasets.stats import column_stats, histogram_stats
from so101.datasets.validate import SCALAR_DTYPES
from so101.datasets.videos import probe_video
from so101.pipeline.progress import Reporter

DATA_PATH, VIDEO_PATH = DATA_PATHS["v3"], VIDEO_PATHS["v3"]
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
QUANTILES = (0.01, 0.10, 0.50, 0.90, 0.99)  # of LeRobot's statistics since v3.0
_MB = 2**20


def write_v3(
    root: Path,
    plan: MergePlan,
    clips: dict[tuple[int, str], Path],
    histograms: dict[tuple[int, str], tuple[np.ndarray, int]],
    config: Config,
    reporter: Reporter,
) -> None:
    """The whole dataset.

    Args:
        clips: (episode, video feature) -> a file that is its frames and nothing else.
        histograms: (episode, video feature) -> what its image statistics are of.
    """
    scalars = {key: {"dtype": dtype, "shape": [1], "names": None} for key, dtype in SCALAR_DTYPES.items()}
    features, tasks = plan.features | scalars, plan.tasks
    columns, first_row = [], 0
    for index, episode in enumerate(plan.episodes):
        columns.append(episode.columns | counters(episode, index, first_row, plan.fps, tasks))
        first_row += episode.length
    places = _write_data(root, plan, columns, features, config)
    videos = {key: _write_videos(root, plan, key, clips, config, reporter) for key in plan.video_keys}
    rows, start = [], 0
    for index, episode in enumerate(plan.episodes):
        row: dict[str, Any] = {
            "episode_index": index,
            "tasks": list(dict.fromkeys(episode.tasks)),
            "length": episode.length,
            "data/chunk_index": places[index] // config.dataset.chunks_size,
            "data/file_index": places[index] % config.dataset.chunks_size,
            "dataset_from_index": start,
            "dataset_to_index": start + episode.length,
        }
        start += episode.length
        for key in plan.video_keys:
            row |= {f"videos/{key}/{part}": value for part, value in videos[key][index].items()}
        stats = {key: column_stats(column, QUANTILES) for key, column in columns[index].items()}
        stats |= {key: histogram_stats(*histograms[index, key], QUANTILES) for key in plan.video_keys}
        row |= {f"stats/{key}/{name}": value for key in features for name, value in stats[key].items()}
        rows.append(row | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
    write_tables(root / EPISODES_PATH.format(chunk_index=0, file_index=0), [pa.Table.from_pylist(rows)])
    _write_meta(root / "meta", plan, columns, histograms, features, tasks, config)


def check_v3(root: Path, plan: MergePlan) -> list[str]:
    """What is not in the finished dataset as planned; it is read as anybody would."""
    faults, facts = [], {}
    for index, (found, wanted) in enumerate(zip(read_source(root).episodes, plan.episodes, strict=True)):
        faults += [
            f"episode {index}: {key} is not what was written"
            for key, column in wanted.columns.items()
            if not np.array_equal(found.columns[key], column)
        ]
        for key, clip in found.clips.items():
            video = facts[clip.path] if clip.path in facts else facts.setdefault(clip.path, probe_video(clip.path))
            times = video.timestamps_s[clip.first : clip.first + wanted.length]
            grid = (clip.first + np.arange(wanted.length)) / plan.fps
            if len(times) != wanted.length or np.abs(times - grid).max() > 1e-6:
                faults.append(f"episode {index}: {key} is not at frame / fps in {clip.path.name}")
    return faults


def _write_data(root: Path, plan: MergePlan, columns: list, features: dict[str, dict], config: Config) -> list[int]:
    """Files of rows, a row group an episode; returns the number of the file of each episode."""
    limit, places, waiting, size, number = config.training.mix.data_file_mb * _MB, [], [], 0, 0
    for episode in columns:
        table = episode_table(episode, features)
        if waiting and size + table.nbytes > limit:
            write_tables(root / _numbered(DATA_PATH, number, config), waiting)
            waiting, size, number = [], 0, number + 1
        waiting.append(table)
        size += table.nbytes
        places.append(number)
    write_tables(root / _numbered(DATA_PATH, number, config), waiting)
    return places


def _write_videos(
    root: Path, plan: MergePlan, key: str, clips: dict[tuple[int, str], Path], config: Config, reporter: Reporter
) -> list[dict[str, Any]]:
    """One camera; returns of each episode where its frames are."""
    rows, chunks = [], config.dataset.chunks_size
    files = ClipFiles(
        lambda number: root / _numbered(VIDEO_PATH, number, config, video_key=key),
        plan.fps,
        round(config.training.mix.video_file_mb * _MB),
    )
    try:
        for index, episode in enumerate(plan.episodes):
            number, first = files.append(clips[index, key], episode.length)
            rows.append(
                {
                    "chunk_index": number // chunks,
                    "file_index": number % chunks,
                    "from_timestamp": first / plan.fps,
                    "to_timestamp": (first + episode.length) / plan.fps,
                }
            )
            reporter.advance(note=f"{key.removeprefix('observation.images.')} of episode {index}")
    finally:
        files.close()
    return rows


def _numbered(template: str, number: int, config: Config, **parts: str) -> str:
    chunk, file = divmod(number, config.dataset.chunks_size)
    return template.format(chunk_index=chunk, file_index=file, **parts)


def _write_meta(
    meta: Path,
    plan: MergePlan,
    columns: list[dict[str, np.ndarray]],
    histograms: dict[tuple[int, str], tuple[np.ndarray, int]],
    features: dict[str, dict],
    tasks: list[str],
    config: Config,
) -> None:
    count = len(columns)
    info = {
        "codebase_version": "v3.0",
        "robot_type": plan.robot_type,
        "total_episodes": count,
        "total_frames": sum(episode.length for episode in plan.episodes),
        "total_tasks": len(tasks),
        "chunks_size": config.dataset.chunks_size,
        "data_files_size_in_mb": config.training.mix.data_file_mb,
        "video_files_size_in_mb": config.training.mix.video_file_mb,
        "fps": round(plan.fps),
        "splits": {"train": f"0:{count}"},
        "data_path": DATA_PATH,
        "video_path": VIDEO_PATH,
        "features": features,
    }
    write_json(meta / "info.json", info)
    stats = {key: column_stats(np.concatenate([c[key] for c in columns]), QUANTILES) for key in columns[0]}
    for key in plan.video_keys:
        parts = [histograms[index, key] for index in range(count)]
        stats[key] = histogram_stats(sum(h for h, _ in parts), sum(n for _, n in parts), QUANTILES)
    write_json(meta / "stats.json", {key: stats[key] for key in features})
    write_tables(meta / "tasks.parquet", [_tasks_table(tasks)])


def _tasks_table(tasks: list[str]) -> pa.Table:
    """Column task_index, and the texts as the index of the data frame that LeRobot reads."""
    index = {"name": None, "field_name": "__index_level_0__", "pandas_type": "unicode", "numpy_type": "object"}
    number = {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64"}
    header = {"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object"}
    pandas = {
        "index_columns": ["__index_level_0__"],
        "column_indexes": [{**header, "metadata": {"encoding": "UTF-8"}}],
        "columns": [{**number, "metadata": None}, {**index, "metadata": None}],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.0.0",
    }
    table = pa.table({"task_index": pa.array(range(len(tasks)), pa.int64()), "__index_level_0__": tasks})
    return table.replace_schema_metadata({"pandas": json.dumps(pandas)})
