"""Checks of the parquet files: columns, values, counters, times, tasks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from so101.datasets.checks.base import TIMESTAMP_TOLERANCE_S, Dataset, Findings, first


def read_rows(data: Dataset, findings: Findings) -> None:
    """The columns of every episode, checked on the way."""
    findings.looked("columns", "length", "finite", "counters", "fps", "timestamps", "tasks")
    first_row = 0
    for episode in data.episodes:
        index, length = episode["episode_index"], episode["length"]
        path = data.data_file(index)
        columns = _columns(data, findings, index, length)
        data.columns.append(columns)
        if columns is not None:
            _counters(findings, data.name(path), columns, index, first_row)
            _times(findings, data.name(path), columns["timestamp"].astype(float), data.fps)
            _tasks(data, findings, data.name(path), columns["task_index"], episode["tasks"])
        first_row += length


def _columns(data: Dataset, findings: Findings, index: int, length: int) -> dict[str, np.ndarray] | None:
    path = data.data_file(index)
    name = data.name(path)
    try:
        table = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        findings.error("columns", f"{name}: cannot be read ({error})")
        return None
    expected = {key: f for key, f in data.features.items() if f["dtype"] not in ("video", "image")}
    if set(table.column_names) != set(expected):
        findings.error("columns", f"{name}: columns are {table.column_names}, info.json says {list(expected)}")
        return None
    if table.num_rows != length or length == 0:
        text = f"{table.num_rows} rows, episodes.jsonl says {length}; both must be equal and not 0"
        findings.error("length", f"{name}: {text}")
        return None
    columns = {}
    for key, feature in expected.items():
        kind = getattr(pa, feature["dtype"])()
        kind = kind if feature["shape"] == [1] else pa.list_(kind, feature["shape"][0])
        column = table.column(key).combine_chunks()
        if column.type != kind:
            findings.error("columns", f"{name}: column {key} is {column.type}, must be {kind}")
            return None
        values = column.flatten() if feature["shape"] != [1] else column
        if column.null_count or values.null_count:
            findings.error("finite", f"{name}: column {key} has empty cells")
            return None
        columns[key] = values.to_numpy(zero_copy_only=False)
        if feature["shape"] != [1]:
            columns[key] = columns[key].reshape(length, *feature["shape"])
        bad = ~np.isfinite(columns[key])
        if bad.any():
            text = f"column {key} has values that are not finite, first in row {first(bad)}"
            findings.error("finite", f"{name}: {text}")
    return columns


def _counters(findings: Findings, name: str, columns: dict[str, np.ndarray], index: int, first_row: int) -> None:
    rows = np.arange(len(columns["timestamp"]))
    expected = {"frame_index": rows, "episode_index": 0 * rows + index, "index": first_row + rows}
    for key, values in expected.items():
        if not np.array_equal(columns[key], values):
            row = first(columns[key] != values)
            text = f"{key} is {columns[key][row]} in row {row}, must be {values[row]}"
            findings.error("counters", f"{name}: {text}")


def _times(findings: Findings, name: str, times_s: np.ndarray, fps: int) -> None:
    """(T,) timestamps against the rate: another rate, a shift, or disorder."""
    late = ~(np.abs(times_s - np.arange(len(times_s)) / fps) <= TIMESTAMP_TOLERANCE_S)
    if not late.any():
        return
    steps, row = np.diff(times_s), first(late)
    even = len(steps) > 0 and steps.min() > 0 and np.ptp(steps) <= 2 * TIMESTAMP_TOLERANCE_S
    text = f"timestamp is {times_s[row]:.6g} in row {row}, must be frame_index / fps"
    if even and abs(times_s[0]) <= TIMESTAMP_TOLERANCE_S:
        findings.error("fps", f"{name}: {text}: rows come at {1 / steps.mean():.4g} fps, info.json says {fps}")
    elif even and abs(steps.mean() - 1 / fps) <= 2 * TIMESTAMP_TOLERANCE_S:
        findings.error("timestamps", f"{name}: {text}: all are shifted by {times_s[0]:.4g} s")
    elif len(steps) and (steps <= 0).any():
        back = first(steps <= 0) + 1
        findings.error("timestamps", f"{name}: {text}: they do not rise from row {back - 1} to {back}")
    else:
        findings.error("timestamps", f"{name}: {text}")


def _tasks(data: Dataset, findings: Findings, name: str, task_index: np.ndarray, tasks: list[str]) -> None:
    texts = {task["task_index"]: task["task"] for task in data.tasks}
    used = set(task_index.tolist())
    unknown = used - set(texts)
    if unknown:
        findings.error("tasks", f"{name}: task_index {sorted(unknown)} not in tasks.jsonl")
    others = sorted(texts[index] for index in used - unknown if texts[index] not in tasks)
    if others:
        findings.error("tasks", f"{name}: rows have the task {others[0]!r}, episodes.jsonl says {tasks}")
