"""What writers of LeRobot datasets share: tables as the datasets library restores them, JSON, links for copies."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from so101.files import write_atomic, write_text


def episode_table(columns: dict[str, np.ndarray], features: dict[str, dict]) -> pa.Table:
    """Rows of an episode: (T, ...) arrays of the dtypes of `features`. The `huggingface` metadata lets the datasets
    library restore the fixed length of the vectors."""
    arrays, fields, hf_features = [], [], {}
    for key, column in columns.items():
        value: dict[str, Any] = {"dtype": features[key]["dtype"], "_type": "Value"}
        array = pa.array(column.reshape(-1))
        for length in reversed(column.shape[1:]):
            array = pa.FixedSizeListArray.from_arrays(array, length)
            value = {"feature": value, "length": length, "_type": "Sequence"}
        arrays.append(array)
        fields.append(pa.field(key, array.type))
        hf_features[key] = value
    metadata = {"huggingface": json.dumps({"info": {"features": hf_features}})}
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=metadata))


def write_tables(path: Path, tables: Iterable[pa.Table]) -> None:
    """Tables of one schema as one parquet file, a row group each."""
    buffer, writer = io.BytesIO(), None
    for table in tables:
        writer = writer or pq.ParquetWriter(buffer, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
        write_atomic(path, lambda file: file.write(buffer.getvalue()))


def link_or_copy(source: Path, target: Path) -> None:
    """A hard link costs no space; videos are replaced, never changed in place, so sharing is safe."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        shutil.copyfile(source, target)


def write_json(path: Path, value: Any) -> None:
    """Indented, in the order given, as LeRobot writes its JSON."""
    write_text(path, json.dumps(value, indent=4, ensure_ascii=False, allow_nan=False) + "\n")


def write_json_lines(path: Path, rows: Iterable[dict]) -> None:
    """One row a line."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows))
