"""Checks of meta/: versions, keys, lines, counts, and files that belong to nothing."""

from __future__ import annotations

import json

from so101.datasets.checks.base import SCALAR_DTYPES, Dataset, Findings, read_json

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
_VERSION = "v2.1"


def read_info(data: Dataset, findings: Findings) -> bool:
    """Read info.json; False when nothing further can be looked at."""
    info = read_json(data, findings, "info.json", "info")
    if not isinstance(info, dict):
        return False
    findings.looked("version", "info", "features")
    if info.get("codebase_version") != _VERSION:
        version = f"codebase_version is {info.get('codebase_version')!r}, must be '{_VERSION}'"
        findings.error("version", f"meta/info.json: {version}")
        if not (data.root / "meta/episodes.jsonl").is_file():
            return False  # the layout of v3.0: nothing else is where we would look
    wrong = [key for key, kind in _INFO_KEYS.items() if not isinstance(info.get(key), kind)]
    if wrong:
        findings.error("info", f"meta/info.json: missing or of the wrong type: {', '.join(wrong)}")
        return False
    if info["fps"] < 1 or info["chunks_size"] < 1:
        text = f"fps {info['fps']} and chunks_size {info['chunks_size']} must be at least 1"
        findings.error("info", f"meta/info.json: {text}")
        return False
    if not (_features(info["features"], findings) and _templates(info, findings)):
        return False
    data.info = info
    return True


def _features(features: dict[str, dict], findings: Findings) -> bool:
    for key, feature in features.items():
        if not isinstance(feature, dict) or {"dtype", "shape", "names"} - set(feature):
            findings.error("features", f"meta/info.json: feature {key} must have dtype, shape and names")
            return False
        shape = feature["shape"]
        sizes = isinstance(shape, list) and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in shape)
        if feature["dtype"] not in _DTYPES or not sizes or len(shape) != (3 if feature["dtype"] == "video" else 1):
            text = f"feature {key} is {feature['dtype']} {feature['shape']}; this program checks vectors of "
            findings.error("features", f"meta/info.json: {text}{', '.join(_DTYPES[1:])}, and video")
            return False
    expected = {"action": "float32", "observation.state": "float32", **SCALAR_DTYPES}
    wrong = [key for key, dtype in expected.items() if features.get(key, {}).get("dtype") != dtype]
    if wrong:
        findings.error("features", f"meta/info.json: features missing or of another dtype than LeRobot's: {wrong}")
    return not wrong


def _templates(info: dict, findings: Findings) -> bool:
    for key, parts in (("data_path", {}), ("video_path", {"video_key": ""})):
        try:
            info[key].format(episode_chunk=0, episode_index=0, **parts)
        except (KeyError, IndexError, ValueError):
            text = f"path {info[key]!r} may use episode_chunk, episode_index and video_key only"
            findings.error("info", f"meta/info.json: {text}")
            return False
    return True


def read_lines(data: Dataset, findings: Findings, name: str, index_key: str, keys: dict[str, type]) -> list[dict]:
    """Rows of a jsonl file whose `index_key` counts 0, 1, 2, ...; wrong rows are left out."""
    findings.looked("jsonl", "episode_index")
    try:
        lines = (data.root / "meta" / name).read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        findings.error("jsonl", f"meta/{name}: cannot be read ({error})")
        return []
    if lines[-1] == "":
        lines.pop()
    rows = []
    for number, line in enumerate(lines):
        where = f"meta/{name} line {number + 1}"
        try:
            row = json.loads(line)
        except ValueError:
            findings.error("jsonl", f"{where}: {'blank' if not line.strip() else 'not JSON'}; readers crash on it")
            continue
        row = row if isinstance(row, dict) else {}
        wrong = [key for key, kind in keys.items() if not isinstance(row.get(key), kind)]
        if wrong:
            findings.error("jsonl", f"{where}: missing or of the wrong type: {', '.join(wrong)}")
        elif row.get(index_key) != number:
            text = f"{index_key} is {row.get(index_key)!r}, must be {number} (0, 1, 2, ... in order)"
            findings.error("tasks" if index_key == "task_index" else "episode_index", f"{where}: {text}")
        else:
            rows.append(row)
    return rows


def check_totals(data: Dataset, findings: Findings) -> None:
    findings.looked("totals", "tasks")
    count = len(data.episodes)
    expected = {
        "total_episodes": count,
        "total_frames": sum(episode["length"] for episode in data.episodes),
        "total_tasks": len(data.tasks),
        "total_videos": count * len(data.video_keys),
        "total_chunks": -(-count // data.info["chunks_size"]),
        "splits": {"train": f"0:{count}"},
    }
    for key, value in expected.items():
        if data.info[key] != value:
            findings.error("totals", f"meta/info.json: {key} is {data.info[key]!r}, the files say {value!r}")
    for task in data.tasks:
        if not task["task"].strip():
            text = f"task {task['task_index']} has no text; GR00T would learn without instruction"
            findings.error("tasks", f"meta/tasks.jsonl: {text}", "write the task's text there and in episodes.jsonl")
    known = {task["task"] for task in data.tasks}
    for episode in data.episodes:
        unknown = [task for task in episode["tasks"] if not isinstance(task, str) or task not in known]
        if unknown or not episode["tasks"]:
            where = f"meta/episodes.jsonl: episode {episode['episode_index']}"
            findings.error("tasks", f"{where} has tasks {episode['tasks']}, each must be in tasks.jsonl")


def check_strays(data: Dataset, findings: Findings) -> None:
    """LeRobot loads every parquet file under data/, listed or not."""
    findings.looked("strays")
    indices = [episode["episode_index"] for episode in data.episodes]
    expected = {data.data_file(index) for index in indices}
    for key in data.video_keys:
        expected |= {data.video_file(key, index) for index in indices}
    for folder, pattern in (("data", "*.parquet"), ("videos", "*.mp4")):
        for path in sorted((data.root / folder).rglob(pattern)):
            if path not in expected:
                findings.error("strays", f"{data.name(path)}: belongs to no episode; remove it")
