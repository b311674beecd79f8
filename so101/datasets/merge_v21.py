"""A planned merge as a LeRobot v2.1 dataset that GR00T reads too: a parquet file and a video a camera for each episode,
statistics of everything."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from so101.config import Config
from so101.datasets.lerobot_v21 import DATA_PATH, VIDEO_PATH
from so101.datasets.lerobot_write import episode_table, write_json, write_json_lines, write_tables
from so101.datasets.merge_plan import MergePlan, counters
from so101.datasets.stats import column_stats, groot_stats, histogram_stats, relative_stats
from so101.datasets.validate import SCALAR_DTYPES, validate_dataset

Histogram = tuple[np.ndarray, int]  # of so101.datasets.stats.image_histogram


def video_file(root: Path, key: str, index: int, config: Config) -> Path:
    """Where the video of an episode belongs."""
    chunk = index // config.dataset.chunks_size
    return root / VIDEO_PATH.format(episode_chunk=chunk, episode_index=index, video_key=key)


def write_v21(root: Path, plan: MergePlan, histograms: dict[tuple[int, str], Histogram], config: Config) -> list[str]:
    """Everything but the videos, which are in their places; returns the faults of the finished dataset.

    Args:
        histograms: (episode, video feature) -> what its image statistics are of.
    """
    features = plan.features | {key: _scalar(dtype) for key, dtype in SCALAR_DTYPES.items()}
    chunks, tasks, first_row, stats = config.dataset.chunks_size, plan.tasks, 0, []
    for index, episode in enumerate(plan.episodes):
        columns = episode.columns | counters(episode, index, first_row, plan.fps, tasks)
        place = DATA_PATH.format(episode_chunk=index // chunks, episode_index=index)
        write_tables(root / place, [episode_table(columns, features)])
        first_row += episode.length
        vectors = {key: column_stats(column) for key, column in columns.items()}
        images = {key: histogram_stats(*histograms[index, key]) for key in plan.video_keys}
        stats.append({"episode_index": index, "stats": {key: (vectors | images)[key] for key in features}})
    count = len(plan.episodes)
    info = {
        "codebase_version": "v2.1",
        "robot_type": plan.robot_type,
        "total_episodes": count,
        "total_frames": first_row,
        "total_tasks": len(tasks),
        "total_videos": count * len(plan.video_keys),
        "total_chunks": -(-count // chunks),
        "chunks_size": chunks,
        "fps": round(plan.fps),
        "splits": {"train": f"0:{count}"},
        "data_path": DATA_PATH,
        "video_path": VIDEO_PATH,
        "features": features,
    }
    meta = root / "meta"
    write_json(meta / "info.json", info)
    write_json_lines(
        meta / "episodes.jsonl",
        (
            {"episode_index": i, "tasks": list(dict.fromkeys(e.tasks)), "length": e.length}
            for i, e in enumerate(plan.episodes)
        ),
    )
    write_json_lines(meta / "tasks.jsonl", ({"task_index": i, "task": task} for i, task in enumerate(tasks)))
    write_json_lines(meta / "episodes_stats.jsonl", stats)
    _write_groot(meta, plan, config)
    return validate_dataset(root, images=False)  # image statistics were just made of the same files


def _scalar(dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [1], "names": None}


def _write_groot(meta: Path, plan: MergePlan, config: Config) -> None:
    """GR00T's view of the same dataset: modality.json and its statistics."""
    settings = config.dataset.modality
    groups = {name: {"start": start, "end": end} for name, (start, end) in settings.groups.items()}
    videos = {key.removeprefix("observation.images."): {"original_key": key} for key in plan.video_keys}
    annotation = {settings.language_key: {"original_key": "task_index"}}
    modality = {"state": groups, "action": groups, "video": videos, "annotation": annotation}
    write_json(meta / "modality.json", modality)
    floats = [key for key, feature in plan.features.items() if "float" in feature["dtype"]]
    stats = {key: groot_stats(list(_columns(plan, key))) for key in floats}
    stamps = [(np.arange(e.length) / plan.fps).astype(np.float32) for e in plan.episodes]
    write_json(meta / "stats.json", stats | {"timestamp": groot_stats(stamps)})
    relative = {}
    for group in settings.relative:
        part = slice(*settings.groups[group])
        states, actions = ([c[:, part] for c in _columns(plan, key)] for key in ("observation.state", "action"))
        of_group = relative_stats(states, actions, config.training.action_horizon)
        if of_group:
            relative[group] = of_group
    write_json(meta / "relative_stats.json", relative)


def _columns(plan: MergePlan, key: str) -> Iterable[np.ndarray]:
    return (episode.columns[key] for episode in plan.episodes)
