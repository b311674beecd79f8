"""Datasets, checkpoints, videos and result files: looked up on disk whenever somebody asks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from services.control import models
from services.control.errors import NotFound
from so101.pipeline.run_folder import RunFolder

_DEPTH = 3  # folders below a search folder where a dataset may be
_SERVED = {".html", ".png", ".svg", ".json", ".jsonl", ".mp4", ".parquet"}
_LISTED = 500  # files of one run


def find_datasets(folders: Sequence[str]) -> list[models.Dataset]:
    """LeRobot datasets below `folders`, newest first."""
    infos = {info.resolve(): info for folder in folders for info in _infos(Path(folder), _DEPTH)}
    return [dataset_at(info.parents[1]) for info in sorted(infos.values(), key=_modified, reverse=True)]


def dataset_at(folder: Path) -> models.Dataset:
    """What meta/info.json says; whatever cannot be read is told in `problem`."""
    info, problem = {}, ""
    try:
        info = json.loads((folder / "meta" / "info.json").read_text(encoding="utf-8"))
        if not isinstance(info, dict):
            raise ValueError("not a mapping")
    except (OSError, ValueError) as error:
        info, problem = {}, f"meta/info.json cannot be read: {error}"
    features = info.get("features")
    return models.Dataset(
        path=_shown(folder),
        episodes=_number(info.get("total_episodes"), int),
        frames=_number(info.get("total_frames"), int),
        fps=_number(info.get("fps"), (int, float)),
        version=str(info.get("codebase_version", ""))[:40],
        robot=str(info.get("robot_type", ""))[:80],
        features=[str(name)[:200] for name in features][:100] if isinstance(features, dict) else [],
        size_bytes=_size(folder),
        problem=problem,
    )


def find_checkpoints(folder: Path) -> list[models.Checkpoint]:
    """One a role: the folders in `folder`."""
    found = []
    for role in _subfolders(folder):
        files = list(_files(role))
        found.append(
            models.Checkpoint(
                role=_text(role.name),
                path=_shown(role),
                files=len(files),
                size_bytes=sum(_stat_size(file) for file in files),
                modified_s=max(map(_modified, files), default=_modified(role)),
            )
        )
    return found


def find_recordings(folders: Sequence[str]) -> list[str]:
    """What seeds may come from: LeRobot datasets, CSV and HDF5 files below `folders`."""
    found = set()
    for folder in folders:
        found |= {_shown(info.parents[1]) for info in _infos(Path(folder), _DEPTH)}
        for pattern in ("*.csv", "*.hdf5", "*.h5"):
            found |= {_shown(path) for path in Path(folder).glob(pattern)}
    return sorted(found)


def latest_videos(run_id: str, run: RunFolder, demos: int) -> list[models.Video]:
    """Videos of the newest `demos` demos of a run."""
    folders = sorted(run.videos.glob("demo_[0-9]*"), key=_modified, reverse=True)
    return [
        models.Video(
            run=run_id,
            demo=int(folder.name.removeprefix("demo_")),
            camera=_text(video.stem),
            url=file_url(run_id, video.relative_to(run.root)),
        )
        for folder in folders[:demos]
        if folder.name.removeprefix("demo_").isdigit()
        for video in sorted(folder.glob("*.mp4"))
        if not video.name.startswith(".")
    ]


def result_files(run_id: str, run: RunFolder) -> list[models.RunFile]:
    """Files of a run that a browser can show or save."""
    tops = (run.report, run.dataset, run.videos)
    files = [path for top in tops for path in _files(top) if path.suffix in _SERVED and path.name[0] != "."]
    return [
        models.RunFile(
            path=_text(str(path.relative_to(run.root))),
            size_bytes=_stat_size(path),
            url=file_url(run_id, path.relative_to(run.root)),
        )
        for path in sorted(files)[:_LISTED]
    ]


def file_url(run_id: str, path: Path) -> str:
    return f"/api/runs/{quote(run_id, safe='')}/files/{quote(os.fsencode(path))}"


def served_file(run: RunFolder, path: str) -> Path:
    """The file of a run at `path`; only results are served, and nothing outside the run's folder.

    Raises:
        NotFound.
    """
    tops = (run.report, run.dataset, run.videos)
    try:
        file = (run.root / path).resolve()
        inside = any(file.is_relative_to(top.resolve()) for top in tops)
        if "\0" not in path and inside and file.suffix in _SERVED and file.is_file():
            return file
    except (OSError, ValueError):
        pass
    raise NotFound(f"there is no result file {path[:200]!r} in this run")


def tail(path: Path, lines: int, limit_bytes: int = 1 << 20) -> models.Log:
    """The last `lines` lines of a text file; none when it is absent."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit_bytes))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return models.Log(lines=[], truncated=False)
    every = text.splitlines()
    if size > limit_bytes:
        every = every[1:]  # cut
    return models.Log(lines=every[-lines:], truncated=size > limit_bytes or len(every) > lines)


def _infos(folder: Path, depth: int) -> Iterator[Path]:
    info = folder / "meta" / "info.json"
    if info.is_file():
        yield info
    elif depth:
        for below in _subfolders(folder):
            yield from _infos(below, depth - 1)


def _subfolders(folder: Path) -> list[Path]:
    try:
        entries = [e for e in os.scandir(folder) if e.name[0] != "." and e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(Path(entry.path) for entry in entries)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _size(folder: Path) -> int:
    return sum(_stat_size(path) for path in _files(folder))


def _stat_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _number(value: object, kind: type | tuple[type, ...]) -> int | float | None:
    return value if isinstance(value, kind) and not isinstance(value, bool) else None


def _text(name: str) -> str:
    """A file name as text that JSON can carry."""
    return os.fsencode(name).decode(errors="replace")


def _shown(path: Path) -> str:
    """Relative to where we run, when it is below."""
    try:
        return _text(str(path.resolve().relative_to(Path.cwd())))
    except ValueError:
        return _text(str(path))
