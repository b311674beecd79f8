"""One control plane a state folder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from so101.errors import So101Error


class FolderInUse(So101Error):
    """Another control plane works with the state folder."""


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Hold `folder` until the block ends or the process does.

    Raises:
        FolderInUse.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(
                f"{folder}: another control plane works with this folder; stop it, or choose another one "
                "(deploy.control_plane.state_dir)"
            ) from None
        yield
