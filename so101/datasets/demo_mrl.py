"""Reading `.demo` files of the older kind, MRLDEMO1: rows, then a table of episodes, no checksum and no names."""

from __future__ import annotations

import struct

import numpy as np

from so101.datasets.demo_chunks import row_dtype
from so101.errors import DataError

MAGIC = b"MRLDEMO1"
_HEADER = struct.Struct("<8sIIIQI")  # magic, version, obs_dim, act_dim, rows, episodes
_EPISODE = struct.Struct("<QQI")  # first row, rows, success
_VERSION = 1
_WIDEST = 1 << 16  # words of an observation; more is a damaged header
_SUCCESS = 2

Part = tuple[np.ndarray, bool]  # (T,) rows of `row_dtype`, success


def read(content: bytes, where: str) -> tuple[int, int, list[Part], str]:
    """Widths of observation and action, the episodes, and what is lost ("" when nothing is).

    Without its table, which is at the end of the file, nothing says where episodes end but the rows themselves: the
    next observation of a row is the observation of the row after it, except at the end of an episode.

    Raises:
        DataError: another version, or a header that cannot be.
    """
    if len(content) < _HEADER.size:
        raise DataError(f"{where}: an MRLDEMO1 file cut within its header; nothing can be recovered")
    _, version, obs_dim, action_dim, num_rows, num_episodes = _HEADER.unpack_from(content)
    if version != _VERSION:
        raise DataError(f"{where}: an MRLDEMO1 file of version {version}; this program reads version {_VERSION}")
    if not (0 < obs_dim <= _WIDEST and 0 < action_dim <= _WIDEST):
        raise DataError(
            f"{where}: an MRLDEMO1 file whose header says {obs_dim} observation words and {action_dim} actions; "
            "it is damaged, and nothing can be recovered"
        )
    dtype = row_dtype(obs_dim, action_dim)
    there = min(num_rows, (len(content) - _HEADER.size) // dtype.itemsize)
    rows = np.frombuffer(content, dtype, there, _HEADER.size)
    expected = _HEADER.size + num_rows * dtype.itemsize + num_episodes * _EPISODE.size
    if len(content) != expected:
        parts, found = _by_continuity(rows, num_rows, num_episodes)
        lost = f"it has {len(content)} of {expected} bytes, so its table cannot be read; {found}"
        return obs_dim, action_dim, parts, lost
    table = list(_EPISODE.iter_unpack(content[expected - num_episodes * _EPISODE.size :]))
    if wrong := [number for number, (first, count, _) in enumerate(table) if not 0 < count <= num_rows - first]:
        parts, found = _by_continuity(rows, num_rows, num_episodes)
        return obs_dim, action_dim, parts, f"its table puts episode {wrong[0]} outside its {num_rows} rows; {found}"
    return obs_dim, action_dim, [(rows[first : first + n], bool(success)) for first, n, success in table], ""


def _by_continuity(rows: np.ndarray, num_rows: int, num_episodes: int) -> tuple[list[Part], str]:
    whole_rows = len(rows) == num_rows
    breaks = np.flatnonzero((rows["next_obs"][:-1] != rows["obs"][1:]).any(axis=1)) + 1
    parts = [part for part in np.split(rows, breaks) if len(part)]
    if len(parts) > num_episodes or (whole_rows and len(parts) != num_episodes):
        return [], (
            f"where its {num_episodes} episodes end cannot be told from the {len(rows)} rows that are there, "
            "so all are lost"
        )
    kept = parts if whole_rows else parts[:-1]  # whether the last one ended here nobody knows
    dropped = sum(map(len, parts[len(kept) :]))
    text = f"{len(kept)} of {num_episodes} episodes were found by following the rows"
    text += f", {dropped} rows after them are of an episode that is not whole" if dropped else ""
    return [(part, bool((part["flags"] & _SUCCESS).all())) for part in kept], text
