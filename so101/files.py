"""Writing files so that a crash leaves the old file or the new one, never half of either."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from so101.errors import DataError


@contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """A temporary path beside `path`; renamed onto it when the block ends well, removed when it does not.

    The temporary name starts with a dot, ends in the suffix of `path` (writers look at it) and carries the process id.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: Path | str, write: Callable[[BinaryIO], Any]) -> None:
    """Call ``write(file)`` on a temporary file, flush it to the disk, rename it to `path`."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def check_writable(path: Path | str) -> None:
    """Try whether a file could be written at `path`, before the work whose result it is to hold.

    Raises:
        DataError: it could not.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}); name another file") from None


def write_text(path: Path | str, text: str) -> None:
    """UTF-8 text, atomically. Path names that the locale could not decode come out as the bytes they are."""
    write_atomic(path, lambda file: file.write(text.encode(errors="surrogateescape")))


def write_json(path: Path | str, value: Any) -> None:
    """Sorted, indented JSON, atomically; equal values give equal bytes."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def remove_temporaries(folder: Path | str) -> None:
    """Delete what a killed process left behind under `folder`: files and folders named as `atomic_path` names them."""
    for leftover in list(Path(folder).rglob(".*.tmp*")):
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)
