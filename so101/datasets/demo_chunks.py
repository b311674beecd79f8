"""The bytes of a .demo file (docs/demo_files.md): a start, then chunks that each say and check what they are.

Every chunk stands alone: what is damaged is passed over, and reading goes on at the next one that is whole.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from so101.errors import DataError

MAGIC = b"SO1DEMO\n"
VERSION = 1
HEADER, EPISODE = b"HEAD", b"EPIS"
DIGEST_BYTES = 16
_KINDS = re.compile(HEADER + b"|" + EPISODE)

_START = struct.Struct("<8sIIQI")  # magic, version, episodes, bytes of the file, crc32 of what is before
_HEAD = struct.Struct("<4sIIIII")  # kind, number, bytes of JSON, rows, bytes a row, crc32 of what is before
START_BYTES, HEAD_BYTES = _START.size, _HEAD.size


@dataclass(frozen=True)
class Chunk:
    """A chunk that is whole. `rows` are `num_rows` rows of `row_bytes` bytes."""

    kind: bytes
    number: int
    text: dict[str, Any]
    num_rows: int
    row_bytes: int
    rows: bytes


@dataclass(frozen=True)
class Wound:
    """`size` bytes from `offset` on that are no whole chunk. With a readable head it is known what they were:
    `rows_there` of `num_rows` rows are in the file, unchecked."""

    offset: int
    size: int
    kind: bytes = b""
    number: int = 0
    num_rows: int = 0
    rows_there: int = 0


@dataclass(frozen=True)
class Start:
    """What the first bytes promise."""

    num_episodes: int
    file_bytes: int


def row_dtype(obs_dim: int, action_dim: int) -> np.dtype:
    """One row, packed; the same as in MRLDEMO1 files."""
    return np.dtype(
        [
            ("obs", "<f4", (obs_dim,)),
            ("action", "<f4", (action_dim,)),
            ("reward", "<f4"),
            ("next_obs", "<f4", (obs_dim,)),
            ("done", "<f4"),
            ("flags", "<u4"),
        ]
    )


def encode_start(num_episodes: int, file_bytes: int) -> bytes:
    """The first START_BYTES of a file of `file_bytes` bytes."""
    return _with_crc(_START, MAGIC, VERSION, num_episodes, file_bytes)


def encode_chunk(kind: bytes, number: int, text: dict[str, Any], rows: np.ndarray | None = None) -> bytes:
    """A chunk; equal values give equal bytes. `rows` is a (T,) array of `row_dtype`."""
    described = json.dumps(text, sort_keys=True, ensure_ascii=False, allow_nan=False).encode()
    count, row_bytes, data = (0, 0, b"") if rows is None else (len(rows), rows.dtype.itemsize, rows.tobytes())
    chunk = _with_crc(_HEAD, kind, number, len(described), count, row_bytes) + described + data
    return chunk + _digest(chunk)


def read_start(content: bytes, where: str) -> Start | None:
    """What the start says; None when it is damaged or cut.

    Raises:
        DataError: a whole start, of another version.
    """
    if len(content) < START_BYTES or not _crc_fits(content[:START_BYTES]):
        return None
    magic, version, num_episodes, file_bytes, _ = _START.unpack_from(content)
    if magic != MAGIC:
        return None
    if version != VERSION:
        raise DataError(f"{where}: a .demo file of version {version}; this program reads version {VERSION}, update it")
    return Start(num_episodes, file_bytes)


def scan(content: bytes) -> tuple[list[Chunk], list[Wound]]:
    """All whole chunks after the start, in the order of the file, and what lies between them."""
    chunks, wounds, offset = [], [], min(START_BYTES, len(content))
    while offset < len(content):
        found, end = _chunk_at(content, offset)
        if isinstance(found, Chunk):
            chunks.append(found)
        else:
            end = _next_head(content, offset + 1)
            kind, number, text_bytes, num_rows, row_bytes = found or (b"", 0, 0, 0, 0)
            there = (end - offset - HEAD_BYTES - text_bytes) // row_bytes if row_bytes else 0
            wounds.append(Wound(offset, end - offset, kind, number, num_rows, min(max(there, 0), num_rows)))
        offset = end
    return chunks, wounds


def _chunk_at(content: bytes, offset: int) -> tuple[Chunk | tuple | None, int]:
    """A whole chunk and its end, else its head alone, else None."""
    head = _head_at(content, offset)
    if head is None:
        return None, offset
    kind, number, text_bytes, num_rows, row_bytes = head
    text_start = offset + HEAD_BYTES
    rows_start = text_start + text_bytes
    rows_end = rows_start + num_rows * row_bytes
    end = rows_end + DIGEST_BYTES
    if end > len(content) or _digest(content[offset:rows_end]) != content[rows_end:end]:
        return head, offset
    try:
        text = json.loads(content[text_start:rows_start])
    except (ValueError, RecursionError):
        text = None
    if not isinstance(text, dict):
        return head, offset
    return Chunk(kind, number, text, num_rows, row_bytes, content[rows_start:rows_end]), end


def _head_at(content: bytes, offset: int) -> tuple[bytes, int, int, int, int] | None:
    head = content[offset : offset + HEAD_BYTES]
    if len(head) < HEAD_BYTES or head[:4] not in (HEADER, EPISODE) or not _crc_fits(head):
        return None
    return _HEAD.unpack(head)[:-1]


def _next_head(content: bytes, offset: int) -> int:
    """Where the next chunk begins, or the end of the file."""
    places = (match.start() for match in _KINDS.finditer(content, offset))
    return next((place for place in places if _head_at(content, place) is not None), len(content))


def _with_crc(layout: struct.Struct, *values: bytes | int) -> bytes:
    head = layout.pack(*values, 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(head))


def _crc_fits(head: bytes) -> bool:
    return struct.unpack("<I", head[-4:])[0] == zlib.crc32(head[:-4])


def _digest(chunk: bytes) -> bytes:
    return hashlib.blake2b(chunk, digest_size=DIGEST_BYTES).digest()
