"""Episodes of a task family in one .demo file (docs/demo_files.md has every byte).

The file is rewritten beside its place and renamed after every kept episode, so there is always a whole one. Of a
damaged file every whole episode can be read, and what is lost is said.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from so101.datasets import demo_mrl
from so101.datasets.demo_chunks import (
    EPISODE,
    HEADER,
    MAGIC,
    START_BYTES,
    Chunk,
    encode_chunk,
    encode_start,
    read_start,
    row_dtype,
    scan,
)
from so101.datasets.demo_damage import lost_sentence
from so101.datasets.demo_episode import (
    INTERVENED,
    NO_SEED,
    SUCCESS,
    DemoHeader,
    Episode,
    episode_fault,
    header_fault,
    stamp_success,
)
from so101.errors import DataError
from so101.files import write_atomic

__all__ = [
    "INTERVENED",
    "NO_SEED",
    "SUCCESS",
    "DemoFile",
    "DemoHeader",
    "DemoWriter",
    "Episode",
    "read_demo",
    "write_demo",
]


@dataclass(frozen=True)
class DemoFile:
    """A file as read. `lost` says in one sentence what of it could not be; "" when it is whole."""

    header: DemoHeader
    episodes: list[Episode]
    lost: str = ""


class DemoWriter:
    """Adds episodes to a file; one that is there is continued. No file is made before the first episode.

    Attributes:
        path: the file.
        header: of the file; of one that was there already it keeps its own `meta`.
        num_episodes: in the file now.

    Raises:
        DataError: the file is damaged or of another task, or the header lacks something.
    """

    def __init__(self, path: Path | str, header: DemoHeader) -> None:
        if fault := header_fault(header):
            raise DataError(f"{path}: cannot be written: {fault}")
        self.path, self.header, self.num_episodes, self._size = Path(path), header, 0, 0
        if not self.path.exists():
            return
        there = read_demo(self.path)
        if _content(self.path, len(MAGIC)) != MAGIC:
            raise DataError(f"{path}: an MRLDEMO1 file cannot be continued; `./twin demo convert` makes a .demo of it")
        if difference := there.header.difference(header):
            raise DataError(f"{path}: cannot be continued, {difference} (file first, new rows second); name another")
        self.header, self.num_episodes, self._size = there.header, len(there.episodes), self.path.stat().st_size

    def append(self, *episodes: Episode) -> None:
        """Add episodes, in one rewrite.

        Raises:
            DataError: an episode does not fit the header, or the file was changed by another program meanwhile.
            OSError: the file cannot be written; the one before is still there.
        """
        added = []
        for number, episode in enumerate(episodes, start=self.num_episodes):
            if fault := episode_fault(episode, self.header):
                raise DataError(f"{self.path}: an episode is not kept: {fault}")
            added.append(_encode_episode(episode, number, self.header))
        if (self.path.stat().st_size if self.path.exists() else 0) != self._size:
            raise DataError(f"{self.path}: changed by another program since it was opened; open it again")
        before = b"" if self._size else encode_chunk(HEADER, 0, asdict(self.header))
        count, size = (
            self.num_episodes + len(episodes),
            (self._size or START_BYTES + len(before)) + sum(map(len, added)),
        )

        def write(target: BinaryIO) -> None:
            target.write(encode_start(count, size) + before)
            if self._size:
                with open(self.path, "rb") as source:
                    source.seek(START_BYTES)
                    shutil.copyfileobj(source, target, 1 << 20)
            target.writelines(added)

        write_atomic(self.path, write)
        self.num_episodes, self._size = count, size


def write_demo(path: Path | str, header: DemoHeader, episodes: Sequence[Episode]) -> None:
    """Write a new file at once, atomically, in place of one that is there.

    Raises:
        DataError: the header lacks something, or an episode does not fit it.
    """
    if fault := header_fault(header):
        raise DataError(f"{path}: cannot be written: {fault}")
    chunks = [encode_chunk(HEADER, 0, asdict(header))]
    for number, episode in enumerate(episodes):
        if fault := episode_fault(episode, header):
            raise DataError(f"{path}: episode {number} cannot be written: {fault}")
        chunks.append(_encode_episode(episode, number, header))
    start = encode_start(len(episodes), START_BYTES + sum(map(len, chunks)))
    write_atomic(path, lambda file: file.writelines([start, *chunks]))


def read_demo(path: Path | str, *, strict: bool = True) -> DemoFile:
    """Read a .demo file, or one of the older kind MRLDEMO1.

    Args:
        strict: refuse a damaged file; else its whole episodes come back, and `lost` says what did not.

    Raises:
        DataError: no .demo file, of another version, damaged (strict), or nothing in it can be read.
    """
    content = _content(path)
    if content.startswith(demo_mrl.MAGIC):
        found = _from_mrl(content, str(path))
    else:
        found = _read(content, str(path))
    if strict and found.lost:
        raise DataError(
            f"{path}: damaged: {found.lost}. `./twin demo recover` writes what is whole ({len(found.episodes)} "
            "episodes) to a new file"
        )
    return found


# --- writing ---------------------------------------------------------------------------------------------------------


def _encode_episode(episode: Episode, number: int, header: DemoHeader) -> bytes:
    rows = np.zeros(episode.num_rows, row_dtype(*header.widths))
    for key in rows.dtype.names:
        rows[key] = getattr(episode, key)
    rows["flags"] = stamp_success(episode.flags, episode.success)
    text = {"seed": int(episode.seed), "success": bool(episode.success), "meta": episode.meta}
    return encode_chunk(EPISODE, number, {"header": asdict(header), **text}, rows)


# --- reading ---------------------------------------------------------------------------------------------------------


def _content(path: Path | str, size: int = -1) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError as error:
        raise DataError(f"{path}: cannot be read as a .demo file ({error.strerror or error}); check the path") from None


def _read(content: bytes, where: str) -> DemoFile:
    start = read_start(content, where)
    chunks, wounds = scan(content)
    if start is None and not chunks:
        what = "it is empty" if not content else f"it begins with {content[:8]!r}"
        if content and (MAGIC.startswith(content[:8]) or content.startswith(MAGIC)):
            what = f"of its header and episodes nothing is whole in {len(content)} bytes"
        raise DataError(f"{where}: no .demo file, or nothing of it is left: {what}")
    header, episodes, refused = None, {}, []
    for chunk in chunks:
        try:
            if chunk.kind == HEADER:
                header = header or _decode_header(chunk.text)
                continue
            own = _decode_header(chunk.text.get("header"))
            header = header or own
            if chunk.number in episodes:
                refused.append(f"a second episode {chunk.number} is left out")
            elif difference := header.difference(own):
                refused.append(f"episode {chunk.number} is of another file: {difference}")
            else:
                episodes[chunk.number] = _decode_episode(chunk, header)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            refused.append(f"a chunk that is whole does not hold what it should ({error})")
    if header is None:
        raise DataError(
            f"{where}: no header and no whole episode in its {len(content)} bytes; nothing can be recovered"
        )
    lost = lost_sentence(len(content), start, wounds, episodes, refused)
    return DemoFile(header, [episodes[number] for number in sorted(episodes)], lost)


def _decode_header(text: Any) -> DemoHeader:
    header = DemoHeader(**text)
    if fault := header_fault(header):
        raise ValueError(fault)
    return header


def _decode_episode(chunk: Chunk, header: DemoHeader) -> Episode:
    dtype = row_dtype(*header.widths)
    if chunk.row_bytes != dtype.itemsize:
        raise ValueError(f"rows of {chunk.row_bytes} bytes where its header needs {dtype.itemsize}")
    return _episode(
        np.frombuffer(chunk.rows, dtype),
        int(chunk.text["seed"]),
        bool(chunk.text["success"]),
        dict(chunk.text["meta"]),
        header,
    )


def _episode(rows: np.ndarray, seed: int, success: bool, meta: dict[str, Any], header: DemoHeader) -> Episode:
    columns = {key: np.ascontiguousarray(rows[key]) for key in rows.dtype.names}
    episode = Episode(**columns, seed=seed, success=success, meta=meta)
    if fault := episode_fault(episode, header):
        raise ValueError(fault)
    return episode


def _from_mrl(content: bytes, where: str) -> DemoFile:
    obs_dim, action_dim, parts, lost = demo_mrl.read(content, where)
    header = DemoHeader(
        task="",
        family="",
        control_hz=0.0,
        observation_names=tuple(f"obs_{i}" for i in range(obs_dim)),
        action_names=tuple(f"action_{i}" for i in range(action_dim)),
        meta={"imported_from": "MRLDEMO1"},
    )
    try:
        episodes = [_episode(rows, NO_SEED, success, {}, header) for rows, success in parts]
    except ValueError as error:
        raise DataError(f"{where}: an MRLDEMO1 file whose rows cannot be used: {error}") from None
    return DemoFile(header, episodes, lost)
