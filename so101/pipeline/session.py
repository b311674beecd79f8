"""One command at work in one run folder: the lock, leftovers, `--fresh`, the settings check, and what a disk may do."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Protocol

from so101.config import Config
from so101.errors import RunFolderError
from so101.files import remove_temporaries
from so101.pipeline.record import SOURCE_KEY, check_same_settings, read_record, write_record
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.stages import stages_from

_FULL = (errno.ENOSPC, errno.EDQUOT)
_NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
_NOT_A_FOLDER = (errno.ENOTDIR, errno.EEXIST)


@contextmanager
def open_run(
    run: RunFolder, config: Config, *, source: str | None, keep_source: bool = False, fresh_from: str | None = None
) -> Iterator[None]:
    """Work in `run` as the only process, with settings that agree with what it holds.

    Args:
        source: where seeds come from (absolute path), None for the scripted operator.
        keep_source: this command makes no seeds: take the source the folder was made with.
        fresh_from: remove the files of this stage and of all later ones first.

    Raises:
        RunFolderError: locked by another process, made with other settings, not ours, full, read-only.
    """
    with explain_disk_errors(run):
        _refuse_foreign_folder(run)
        with lock_folder(run):
            record = read_record(run)
            if fresh_from is not None:
                remove_outputs(run, fresh_from)
            if record is not None:
                source = record["settings"].get(SOURCE_KEY) if keep_source else source
                check_same_settings(run, record, config, source)
            write_record(run, config, source)
            remove_temporaries(run.root)
            yield


def _refuse_foreign_folder(run: RunFolder) -> None:
    """A folder with files and without run.json is somebody else's: nothing is written or removed there."""
    if run.record.exists() or not run.root.is_dir():
        return
    first_moments = (run.lock.name, f".{run.record.stem}.*.tmp*")  # of a run killed before it could write run.json
    foreign = [e.name for e in run.root.iterdir() if not any(fnmatch(e.name, pattern) for pattern in first_moments)]
    if foreign:
        raise RunFolderError(
            f"{run.root} holds {', '.join(sorted(foreign)[:3])} but no {run.record.name}: no run of this program made "
            "it. Nothing was touched; pass an empty or new folder with --run"
        )


def remove_outputs(run: RunFolder, first_stage: str) -> None:
    """Remove the files of `first_stage` and of all later stages, then the folders this leaves empty. Files this program
    did not make stay."""
    for stage in reversed(stages_from(first_stage)):  # a kill in between leaves no file without what it was made from
        for path in list(stage.files(run)):
            path.unlink()
        for top in {pattern.split("/")[0] for pattern in stage.makes if "/" in pattern}:
            _remove_empty_folders(run.root / top)


def _remove_empty_folders(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        if not os.listdir(path):
            os.rmdir(path)


class WorkFolder(Protocol):
    """A folder in which one command works at a time: a run, an evaluation."""

    @property
    def root(self) -> Path: ...

    @property
    def lock(self) -> Path: ...


@contextmanager
def lock_folder(run: WorkFolder, option: str = "--run") -> Iterator[None]:
    """Hold `run.lock` until the block ends or the process does, however it does. The file stays: removing it would let
    two processes lock two files of the same name.

    Args:
        option: the one that names another folder.

    Raises:
        RunFolderError: another process holds it.
    """
    run.root.mkdir(parents=True, exist_ok=True)
    with open(run.lock, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise RunFolderError(
                f"{run.root} is in use by another command (process {holder}). Wait for it, stop it with "
                f"`kill {holder}`, or use another folder with {option}"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


@contextmanager
def explain_disk_errors(run: WorkFolder, option: str = "--run") -> Iterator[None]:
    """Turn what the file system may refuse into RunFolderError: path, what is kept, what to do. `option` names another
    folder."""
    try:
        yield
    except OSError as error:
        path = Path(error.filename) if isinstance(error.filename, str) else run.root
        ours = run.root == path or run.root in path.parents or path in run.root.parents
        if error.errno in _FULL:
            raise RunFolderError(
                f"{path}: the disk is full ({error.strerror}; {_free_mb(path)} MB free). Every finished file is kept, "
                f"nothing is half-written. Free some space, or move {run.root} to a larger disk and pass {option}; "
                "then the same command goes on where it stopped"
            ) from error
        if error.errno in _NOT_WRITABLE and ours:
            raise RunFolderError(
                f"{path}: cannot be written ({error.strerror}). What is there is untouched. Make {run.root} writable, "
                f"or choose another folder with {option}"
            ) from error
        if error.errno in _NOT_A_FOLDER and ours:
            raise RunFolderError(
                f"{path}: a file is in the way of a folder ({error.strerror}). Move it, or choose another folder with "
                f"{option}"
            ) from error
        if ours:  # a name too long, a folder removed under our hands, a broken disk
            raise RunFolderError(
                f"{path}: cannot be used ({error.strerror or error}). Finished files are kept where they could be "
                f"written. See to the folder and repeat the command, or choose another folder with {option}"
            ) from error
        raise


def _free_mb(folder: Path) -> int:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free // 2**20
