"""The files of LeRobot v2.1 and v3.0 datasets, read one by one: tables, lists of episodes, JSON. What is in them is
judged elsewhere."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from so101.errors import DataError

EpisodeTable = tuple[int, pa.Table, dict[str, Any]]  # index, rows, what the list of episodes says of it
DATA_PATHS = {
    "v2": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
    "v3": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
}


def episode_tables(folder: Path, info: dict[str, Any]) -> Iterable[EpisodeTable]:
    """The episodes of a dataset in the order of their list.

    Raises:
        DataError: a version that cannot be read, or a file that is missing, truncated or of another length than listed.
    """
    readers = {"v2": _tables_v2, "v3": _tables_v3}
    return readers[check_version(folder, info)](folder, info)


def check_version(folder: Path, info: dict[str, Any]) -> str:
    """ "v2" or "v3".

    Raises:
        DataError: another version.
    """
    version = str(info.get("codebase_version", ""))
    if version[:2] not in DATA_PATHS:
        raise DataError(
            f"{folder}/meta/info.json: codebase_version is {version or 'missing'!r}; v2.x and v3.x can be read, "
            "convert the dataset with the tools of the lerobot package"
        )
    return version[:2]


def _tables_v2(folder: Path, info: dict[str, Any]) -> Iterable[EpisodeTable]:
    template = info.get("data_path", DATA_PATHS["v2"])
    chunk_size = integer({"chunks_size": 1000} | info, "chunks_size", f"{folder}/meta/info.json", least=1)
    for row in read_json_lines(folder / "meta" / "episodes.jsonl"):
        index = integer(row, "episode_index", f"{folder}/meta/episodes.jsonl")
        path = folder / fill_path(template, folder, episode_chunk=index // chunk_size, episode_index=index)
        table = read_parquet(path)
        listed = integer(row, "length", f"{folder}/meta/episodes.jsonl") if "length" in row else None
        _check_length(table.num_rows, listed, f"{path}: episode {index}")
        yield index, table, row


def _tables_v3(folder: Path, info: dict[str, Any]) -> Iterable[EpisodeTable]:
    template = info.get("data_path", DATA_PATHS["v3"])
    metas = sorted((folder / "meta" / "episodes").rglob("*.parquet"))
    if not metas:
        raise DataError(
            f"{folder}/meta/episodes: no parquet files; a v3.0 dataset lists its episodes there, copy the whole dataset"
        )
    needed = ["episode_index", "length", "data/chunk_index", "data/file_index"]
    rows: list[dict[str, Any]] = []
    for meta in metas:
        table = read_parquet(meta)
        absent = [name for name in needed if name not in table.column_names]
        if absent:
            raise DataError(f"{meta}: no column {', '.join(absent)}; it is not the episode list of a v3.0 dataset")
        rows += table.select([name for name in table.column_names if not name.startswith("stats/")]).to_pylist()
    for row, key in itertools.product(rows, needed):
        integer(row, key, f"{folder}/meta/episodes")
    loaded: tuple[Path | None, pa.Table | None, np.ndarray] = (None, None, np.zeros(0, int))
    for row in sorted(rows, key=lambda row: row["episode_index"]):
        index = int(row["episode_index"])
        path = folder / fill_path(
            template, folder, chunk_index=row["data/chunk_index"], file_index=row["data/file_index"]
        )
        if loaded[0] != path:
            table = read_parquet(path)
            if "episode_index" not in table.column_names:
                raise DataError(f"{path}: no column 'episode_index' (columns: {', '.join(table.column_names)})")
            loaded = path, table, np.asarray(table["episode_index"])
        rows_of_it = np.flatnonzero(loaded[2] == index)
        _check_length(len(rows_of_it), row["length"], f"{path}: episode {index}")
        yield index, loaded[1].take(pa.array(rows_of_it)), row


def _check_length(found: int, listed: int | None, where: str) -> None:
    if found == 0 or (listed is not None and found != listed):
        raise DataError(f"{where} has {found} frames, the episode list says {listed}; the copy is incomplete")
    if found < 2:
        raise DataError(f"{where} has a single frame; a demonstration needs at least 2, take the episode out")


def fill_path(template: Any, folder: Path, name: str = "data_path", **values: int | str) -> str:
    """A path from the template `name` of info.json."""
    try:
        return str.format(template, **values)
    except (KeyError, ValueError, IndexError, AttributeError, TypeError) as error:
        raise DataError(f"{folder}/meta/info.json: {name} {template!r} cannot be filled ({error})") from None


def integer(row: dict[str, Any], key: str, where: str, least: int = 0) -> int:
    """A whole number of a row.

    Raises:
        DataError: it is missing, no whole number, or less than `least`.
    """
    if not isinstance(row.get(key), int) or row[key] < least:
        raise DataError(f"{where}: {key} is {row.get(key)!r}; it must be a whole number, {least} or more")
    return row[key]


def first_task(tasks: Any) -> str:
    """The text of `tasks` in a list of episodes, "" when there is none."""
    if isinstance(tasks, str):
        return tasks
    return str(tasks[0]) if isinstance(tasks, list) and tasks else ""


def read_parquet(path: Path) -> pa.Table:
    """A table.

    Raises:
        DataError: missing, truncated, or no parquet.
    """
    try:
        return pq.read_table(path, partitioning=None)
    except FileNotFoundError:
        raise DataError(f"{path}: missing, though the dataset's meta lists it; copy the whole dataset") from None
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path}: not a parquet file, or truncated ({' '.join(str(error).split())}); copy it again"
        ) from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        DataError: missing, or something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: missing; copy the whole dataset") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise DataError(f"{path}: must hold a JSON object, holds {type(value).__name__}")
    return value


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """One JSON object a line.

    Raises:
        DataError: missing, or something else.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
    except FileNotFoundError:
        raise DataError(f"{path}: missing; a v2.x dataset lists its episodes there, copy the whole dataset") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not one JSON object a line ({error})") from None
    if not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path}: not one JSON object a line")
    return rows
