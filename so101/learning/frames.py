"""The pictures of a dataset, decoded once, at the size the network sees: a memory-mapped file a camera."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
from PIL import Image

from so101.config.training import PicturesConfig
from so101.errors import DataError
from so101.files import write_json
from so101.learning.dataset import Dataset
from so101.pipeline.progress import Reporter
from so101.pipeline.workers import map_unordered


def resize_picture(picture: np.ndarray, pictures: PicturesConfig) -> np.ndarray:
    """A picture (H, W, 3) uint8 as the cache holds it: the size of the network's with `margin_px` on every side."""
    size = cached_size(pictures)
    if picture.shape[:2] == size:
        return picture
    return np.asarray(Image.fromarray(picture).resize(size[::-1], Image.Resampling.BILINEAR))


def cached_size(pictures: PicturesConfig) -> tuple[int, int]:
    """Height and width, px."""
    return pictures.height_px + 2 * pictures.margin_px, pictures.width_px + 2 * pictures.margin_px


class FrameCache:
    """Every `stride`-th frame of every episode, of all cameras.

    Attributes:
        frames: camera -> (N, H, W, 3) uint8, read-only.
        rows: per episode the slice of its frames in N; frame k of it is row k * stride of the episode.
    """

    def __init__(self, folder: Path, dataset: Dataset, pictures: PicturesConfig) -> None:
        self.rows = _rows(dataset, pictures.stride)
        shape = (self.rows[-1].stop, *cached_size(pictures), 3)
        self.frames = {
            camera: np.memmap(folder / f"{camera}.u8", np.uint8, "r", shape=shape) for camera in dataset.cameras
        }


def open_frames(
    root: Path | str, dataset: Dataset, pictures: PicturesConfig, *, workers: int, reporter: Reporter
) -> FrameCache:
    """The cache of `dataset` below `root`, made if it is not there; one that was cut off is gone on with. The first
    episodes of a dataset are the first in its cache.

    Raises:
        DataError: a video cannot be read, or has other frames than its episode.
    """
    what = json.dumps([dataset.folder_fingerprint, pictures.model_dump(mode="json"), list(dataset.cameras)])
    folder = Path(root) / hashlib.sha256(what.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    rows, frame_bytes = _rows(dataset, pictures.stride), int(np.prod(cached_size(pictures))) * 3
    done = folder / "done"
    done.mkdir(exist_ok=True)
    files = [folder / f"{camera}.u8" for camera in dataset.cameras]
    there = min(path.stat().st_size if path.exists() else 0 for path in files)
    for e in range(len(rows)):  # of a file that somebody removed or cut off
        if rows[e].stop * frame_bytes > there:
            (done / f"{e}.json").unlink(missing_ok=True)
    missing = [e for e in range(len(dataset.states)) if not (done / f"{e}.json").exists()]
    if missing:
        for path in files:
            _allocate(path, rows[-1].stop * frame_bytes)
        reporter.start("decode", len(rows), len(rows) - len(missing), unit="episodes")
        jobs = (_Job(folder, dataset, pictures, rows[e], e) for e in missing)
        for episode in map_unordered(_decode, jobs, workers=workers):
            write_json(done / f"{episode}.json", {"rows": rows[episode].stop - rows[episode].start})
            reporter.advance(note=f"episode {episode}")
    return FrameCache(folder, dataset, pictures)


def _rows(dataset: Dataset, stride: int) -> list[slice]:
    counts = -(-dataset.lengths // stride)
    ends = np.cumsum(counts)
    return [slice(int(end - count), int(end)) for end, count in zip(ends, counts, strict=True)]


def _allocate(path: Path, num_bytes: int) -> None:
    """Give the file its size and its place on the disk: writing into a mapped file that the disk has no room for would
    end the process.

    Raises:
        DataError: there is no room.
    """
    with open(path, "ab") as file:
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, num_bytes)
            elif os.fstat(file.fileno()).st_size < num_bytes:
                file.truncate(num_bytes)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            free = shutil.disk_usage(path.parent).free
            raise DataError(
                f"{path}: the pictures need {num_bytes / 1e6:.0f} MB, {free / 1e6:.0f} MB are free; make room, learn "
                "from fewer --episodes, raise training.embedded.pictures.stride, or name another folder with "
                "deploy.server.models_dir"
            ) from None


class _Job:
    """What a worker needs of one episode."""

    def __init__(self, folder: Path, dataset: Dataset, pictures: PicturesConfig, rows: slice, episode: int) -> None:
        self.folder, self.pictures, self.rows, self.episode = folder, pictures, rows, episode
        self.length = int(dataset.lengths[episode])
        self.videos = dict(zip(dataset.cameras, dataset.videos[episode], strict=True))


def _decode(job: _Job) -> int:
    size = cached_size(job.pictures)
    for camera, path in job.videos.items():
        out = np.memmap(
            job.folder / f"{camera}.u8", np.uint8, "r+", offset=job.rows.start * size[0] * size[1] * 3,
            shape=(job.rows.stop - job.rows.start, *size, 3),
        )  # fmt: skip
        count = 0
        for frame in _decoded(path):
            if count % job.pictures.stride == 0 and count < job.length:
                out[count // job.pictures.stride] = resize_picture(frame.to_ndarray(format="rgb24"), job.pictures)
            count += 1
        if count != job.length:
            raise DataError(
                f"{path}: has {count} frames, its episode {job.length}; `./twin dataset --check` says what else is "
                "wrong"
            )
        out.flush()
    return job.episode


def _decoded(path: Path) -> Iterator[av.VideoFrame]:
    try:
        with av.open(os.fspath(path)) as container:
            yield from container.decode(video=0)
    except (av.error.FFmpegError, OSError, IndexError) as error:
        raise DataError(f"{path}: not a readable video ({error})") from None
