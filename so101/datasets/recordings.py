"""Recordings of other programs: LeRobot v2.1 and v3.0 folders and CSV files, as plain numbers in the units of the
file.

What the numbers mean is decided elsewhere (`unit_detection`); nothing here converts anything.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from so101.config import Config
from so101.datasets.lerobot_files import episode_tables, first_task, integer, read_json, read_json_lines, read_parquet
from so101.errors import DataError

_ACTION, _STATE = "action", "observation.state"
_TIME_COLUMNS = ("timestamp", "time", "t", "time_s", "t_s")
START_POSES = "so101_objects.jsonl"  # in meta/ of a dataset of ours: where the objects stood
_POSE_KEYS = ("x", "y", "z", "qw", "qx", "qy", "qz")


@dataclass(frozen=True)
class Recording:
    """One episode as it was recorded, columns in the joint order of robot.yaml.

    Attributes:
        name: e.g. "so101_record_test_4ep/episode_000002".
        fps: Hz.
        columns: the file's own names of the six columns, in the order of robot.yaml.
        action: (T, 6) commands, in the file's units.
        state: (T, 6) measured joints, in the file's units.
        task: task text, "" when the file has none.
        objects: name -> (7,) T_base_obj at the first frame, m and w x y z, when the file gives it.
        has_action: False when the file has one set of joints only, which then stands for both.
    """

    name: str
    fps: float
    columns: tuple[str, ...]
    action: np.ndarray
    state: np.ndarray
    task: str = ""
    objects: dict[str, np.ndarray] = field(default_factory=dict)
    has_action: bool = True

    @property
    def num_frames(self) -> int:
        return len(self.state)


def read_recording(path: Path | str, config: Config) -> list[Recording]:
    """All episodes of a LeRobot v2.1 or v3.0 folder, a CSV file, or a folder of CSV files.

    Raises:
        DataError: nothing of that kind, or a file in it is missing, truncated, incomplete, or holds nan.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(
            f"{path}: no such recording; pass a LeRobot folder (v2.1 or v3.0), a CSV file or an .hdf5 of seeds"
        )
    if path.is_file():
        return [_read_csv(path, path.stem, config)]
    if (path / "meta" / "info.json").is_file():
        return _read_lerobot(path, config)
    tables = sorted(path.glob("*.csv"))
    if tables:
        return [_read_csv(table, f"{path.name}/{table.stem}", config) for table in tables]
    raise DataError(f"{path}: neither meta/info.json (LeRobot v2.1 or v3.0) nor a *.csv in this folder; check the path")


def task_texts(path: Path | str) -> list[str]:
    """The different task texts of a LeRobot folder, sorted; none for other kinds of recordings. Reads the list of
    episodes only.

    Raises:
        DataError: that list cannot be read.
    """
    meta = Path(path) / "meta"
    if (meta / "episodes.jsonl").is_file():
        rows = read_json_lines(meta / "episodes.jsonl")
    else:
        tables = [read_parquet(file) for file in sorted((meta / "episodes").rglob("*.parquet"))]
        rows = [row for table in tables if "tasks" in table.column_names for row in table.select(["tasks"]).to_pylist()]
    return sorted({text for row in rows if (text := first_task(row.get("tasks")))})


# --- columns ---------------------------------------------------------------------------------------------------------


def _joint_of(column: str, config: Config) -> str | None:
    """The joint a column means: robot.yaml's name, an alias of teleop.yaml, with any prefix or .pos around it."""
    bare = column.strip()
    for prefix in ("observation.state.", "observation.", "action.", "state.", "main_", "left_", "right_"):
        bare = bare.removeprefix(prefix)
    bare = bare.removesuffix(".pos").removesuffix("_pos").lower()
    for joint in config.robot.joint_names:
        if bare == joint or bare in (alias.lower() for alias in config.teleop.recordings.joint_aliases.get(joint, ())):
            return joint
    return None


def joint_order(columns: Sequence[str], config: Config, where: str) -> list[int]:
    """Index of each robot joint in `columns`.

    Raises:
        DataError: a joint has no column, or more than one.
    """
    joints = [_joint_of(column, config) for column in columns]
    missing = [name for name in config.robot.joint_names if name not in joints]
    double = sorted({name for name in joints if name is not None and joints.count(name) > 1})
    if missing or double:
        what = [f"no column for {', '.join(missing)}"] if missing else []
        what += [f"more than one column for {', '.join(double)}"] if double else []
        raise DataError(
            f"{where}: {' and '.join(what)} (columns: {', '.join(columns) or 'none'}); rename them, or add the "
            f"file's names to "
            "teleop.recordings.joint_aliases"
        )
    return [joints.index(name) for name in config.robot.joint_names]


def _finite(values: np.ndarray, columns: Sequence[str], where: str) -> np.ndarray:
    bad = np.argwhere(~np.isfinite(values))
    if bad.size:
        frame, column = bad[0]
        raise DataError(
            f"{where}: {columns[column]} is {values[frame, column]} at frame {frame} ({len(bad)} such values); "
            "cut the frames out or drop the episode"
        )
    return values


# --- LeRobot ---------------------------------------------------------------------------------------------------------


def _read_lerobot(folder: Path, config: Config) -> list[Recording]:
    info = read_json(folder / "meta" / "info.json")
    features = info.get("features")
    fps = info.get("fps")
    low, high = config.teleop.recordings.fps_range_hz
    if not isinstance(fps, (int, float)) or not low <= fps <= high:
        raise DataError(
            f"{folder}/meta/info.json: fps is {fps!r}; it must be the frame rate in Hz, {low:g} to {high:g} "
            "(teleop.recordings.fps_range_hz)"
        )
    if not isinstance(features, dict) or _STATE not in features:
        known = ", ".join(features) if isinstance(features, dict) else "none"
        raise DataError(
            f"{folder}/meta/info.json: no feature {_STATE!r} (features: {known}); without measured joints there is "
            f"no seed"
        )
    names = {
        key: feature_names(features[key], config, f"{folder}/meta/info.json: {key}")
        for key in (_ACTION, _STATE)
        if key in features
    }
    episodes = episode_tables(folder, info)
    starts = _start_poses(folder)
    recordings = [
        _lerobot_episode(
            folder, index, table, first_task(row.get("tasks")), names, float(fps), config, starts.get(index, {})
        )
        for index, table, row in episodes
    ]
    if not recordings:
        raise DataError(f"{folder}: the dataset has no episodes (total_episodes {info.get('total_episodes')!r})")
    return recordings


def _start_poses(folder: Path) -> dict[int, dict[str, np.ndarray]]:
    """Episode -> object -> (7,) pose in base at its start, where the dataset tells (rollouts on the simulated rig)."""
    path, starts = folder / "meta" / START_POSES, {}
    for row in read_json_lines(path) if path.is_file() else ():
        poses = row.get("objects")
        try:
            arrays = {name: np.array(pose, float) for name, pose in poses.items()}
        except (AttributeError, TypeError, ValueError):
            arrays = {}
        bad = [name for name, pose in arrays.items() if pose.shape != (7,) or abs(np.linalg.norm(pose[3:]) - 1) > 1e-2]
        if not arrays or bad:
            raise DataError(f"{path}: objects are {poses!r}; needed is name -> x, y, z, qw, qx, qy, qz in base")
        starts[integer(row, "episode_index", str(path))] = arrays
    return starts


def feature_names(feature: Any, config: Config, where: str) -> list[str]:
    """The names of a feature's columns, as info.json or teleop.recordings.columns gives them.

    Raises:
        DataError: neither does.
    """
    names = feature.get("names") if isinstance(feature, dict) else None
    if isinstance(names, dict):  # older datasets: {"motors": [...]}
        names = next((value for value in names.values() if isinstance(value, list)), None)
    if not isinstance(names, list):
        names = config.teleop.recordings.columns
    if not names:
        raise DataError(
            f"{where} has no names of its columns; say which joints they are with "
            f"--set 'teleop.recordings.columns=[{', '.join(config.robot.joint_names)}]' (in the file's order)"
        )
    return [str(name) for name in names]


def _lerobot_episode(
    folder: Path,
    index: int,
    table: pa.Table,
    text: str,
    names: dict[str, list[str]],
    fps: float,
    config: Config,
    objects: dict[str, np.ndarray],
) -> Recording:
    where = f"{folder} episode {index}"
    arrays, columns = {}, {}
    for key, key_names in names.items():
        if key not in table.column_names:
            raise DataError(f"{where}: no column {key!r} in its parquet (columns: {', '.join(table.column_names)})")
        try:
            values = np.array(table[key].to_pylist(), np.float64)
        except (TypeError, ValueError):
            raise DataError(
                f"{where}: {key} rows are of different lengths or hold nulls; the recording is damaged"
            ) from None
        if values.ndim != 2 or values.shape[1] != len(key_names):
            raise DataError(
                f"{where}: {key} has shape {values.shape}, meta/info.json names {len(key_names)} columns: "
                f"{', '.join(key_names)}"
            )
        order = joint_order(key_names, config, f"{folder}/meta/info.json: {key}")
        columns[key] = tuple(key_names[i] for i in order)
        arrays[key] = _finite(values[:, order], columns[key], f"{where}: {key}")
    return Recording(
        name=f"{folder.name}/episode_{index:06d}",
        fps=fps,
        columns=columns[_STATE],
        action=arrays.get(_ACTION, arrays[_STATE]),
        state=arrays[_STATE],
        task=text,
        objects=objects,
        has_action=_ACTION in arrays and not np.array_equal(arrays[_ACTION], arrays[_STATE]),
    )


# --- CSV -------------------------------------------------------------------------------------------------------------


def _read_csv(path: Path, name: str, config: Config) -> Recording:
    """Header with joint names (``shoulder_pan`` or ``state.shoulder_pan`` and ``action.shoulder_pan``), optionally a
    time column in s and ``object.NAME.x`` .. ``object.NAME.qz``."""
    try:
        rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not a CSV text ({error}); recordings are LeRobot folders, .csv or .hdf5") from None
    rows = [row for row in rows if row]
    if len(rows) < 3:
        raise DataError(f"{path}: {max(len(rows) - 1, 0)} data rows; a recording has a header and at least 2 rows")
    header, body = [cell.strip() for cell in rows[0]], rows[1:]
    values = np.empty((len(body), len(header)))
    for number, row in enumerate(body, start=2):
        if len(row) != len(header):
            raise DataError(
                f"{path}: line {number} has {len(row)} cells, the header has {len(header)}; the file is cut off or "
                f"damaged"
            )
        try:
            values[number - 2] = [float(cell) for cell in row]
        except ValueError:
            raise DataError(f"{path}: line {number} holds something that is no number: {', '.join(row)}") from None
    prefixes = {"action": "action.", "state": ("state.", "observation.state.")}
    chosen = {
        key: [i for i, column in enumerate(header) if column.startswith(prefix)] for key, prefix in prefixes.items()
    }
    plain = [
        i
        for i, c in enumerate(header)
        if i not in chosen["action"] + chosen["state"] and _joint_of(c, config) is not None
    ]
    state_columns = chosen["state"] or plain or chosen["action"] or list(range(len(header)))
    state = _csv_joints(values, header, state_columns, config, f"{path}: state")
    action = _csv_joints(values, header, chosen["action"], config, f"{path}: action") if chosen["action"] else state
    return Recording(
        name=name,
        fps=_csv_rate(values, header, path, config),
        columns=tuple(header[i] for i in _ordered(header, state_columns, config, f"{path}: state")),
        action=action,
        state=state,
        objects=_csv_objects(values, header, path),
        has_action=bool(chosen["action"]) and not np.array_equal(action, state),
    )


def _ordered(header: list[str], columns: list[int], config: Config, where: str) -> list[int]:
    return [columns[i] for i in joint_order([header[i] for i in columns], config, where)]


def _csv_joints(values: np.ndarray, header: list[str], columns: list[int], config: Config, where: str) -> np.ndarray:
    order = _ordered(header, columns, config, where)
    return _finite(values[:, order], [header[i] for i in order], where)


def _csv_rate(values: np.ndarray, header: list[str], path: Path, config: Config) -> float:
    column = next((i for i, name in enumerate(header) if name.lower() in _TIME_COLUMNS), None)
    if column is None:
        return config.teleop.recordings.default_fps_hz
    steps = np.diff(_finite(values[:, [column]], [header[column]], str(path))[:, 0])
    period = float(np.median(steps))
    tolerance = config.teleop.recordings.time_jitter
    uneven = np.flatnonzero(np.abs(steps - period) > tolerance * period)
    if not period > 0 or uneven.size:
        line = int(uneven[0]) + 3 if uneven.size else 3
        raise DataError(
            f"{path}: {header[column]} is not evenly spaced in s (median step {period:g}, line {line} differs by "
            f"more than {tolerance:.0%}); "
            "resample the recording to a constant rate, or drop the column to use teleop.recordings.default_fps_hz"
        )
    low, high = config.teleop.recordings.fps_range_hz
    if not low <= 1.0 / period <= high:
        raise DataError(
            f"{path}: {header[column]} steps by {period:g}, which is {1.0 / period:g} Hz if it is in s; needed are "
            f"{low:g} to {high:g} Hz (teleop.recordings.fps_range_hz). Convert the column to seconds"
        )
    return 1.0 / period


def _csv_objects(values: np.ndarray, header: list[str], path: Path) -> dict[str, np.ndarray]:
    parts = [column.split(".") for column in header]
    names = sorted({part[1] for part in parts if part[0] == "object" and len(part) == 3})
    objects = {}
    for name in names:
        pose = np.array([0.0, 0, 0, 1, 0, 0, 0])
        given = [key for key in _POSE_KEYS if f"object.{name}.{key}" in header]
        if not {"x", "y", "z"} <= set(given) or (len(given) not in (3, 7)):
            raise DataError(
                f"{path}: object {name} has columns {', '.join(given) or 'of unknown names'}; give x, y, z in m or "
                f"all of {', '.join(_POSE_KEYS)}"
            )
        for key in given:
            pose[_POSE_KEYS.index(key)] = values[0, header.index(f"object.{name}.{key}")]
        length = np.linalg.norm(pose[3:])
        if not np.isfinite(pose).all() or abs(length - 1) > 1e-2:
            raise DataError(
                f"{path}: object {name} at the first row is {pose}; needed are finite numbers and a unit quaternion "
                f"w x y z"
            )
        pose[3:] /= length
        objects[name] = pose
    return objects
