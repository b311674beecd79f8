"""Where the video of one episode is: a file of its own, or part of a longer one."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from so101.cameras.base import CameraError
from so101.errors import did_you_mean

_PATH_V2 = "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4"
_PATH_V3 = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"


class Clip(NamedTuple):
    """Frames of `path` with presentation times from start_s up to end_s."""

    path: Path
    start_s: float = 0.0
    end_s: float = math.inf


def find_clip(path: Path | str, episode: int, feature: str) -> Clip:
    """The video at `path`: itself when it is a file; of `feature` in `episode` when it is a LeRobot dataset.

    Raises:
        CameraError: it is neither, or has no such episode or feature; says which there are.
    """
    path = Path(path)
    if path.is_file():
        return Clip(path)
    if not (path / "meta" / "info.json").is_file():
        raise CameraError(f"{path}: neither a video file nor a LeRobot dataset (a folder with meta/info.json)")
    info = _read_info(path)
    videos = [key for key, what in info.get("features", {}).items() if what.get("dtype") == "video"]
    if feature not in videos:
        raise CameraError(
            f"{path}: no video feature {feature!r}; it has {', '.join(videos) or 'none'}{did_you_mean(feature, videos)}"
        )
    try:
        clip = (_clip_v3 if (path / "meta" / "episodes").is_dir() else _clip_v2)(path, info, episode, feature)
    except (KeyError, TypeError, ValueError, IndexError, OSError, pa.ArrowException) as error:
        raise CameraError(f"{path}: its meta files are damaged ({type(error).__name__}: {error})") from None
    if not clip.path.is_file():
        raise CameraError(f"{clip.path}: missing, though the dataset's meta lists it; copy the whole dataset")
    return clip


def _read_info(path: Path) -> dict[str, Any]:
    try:
        info = json.loads((path / "meta" / "info.json").read_text(encoding="utf-8"))
        if all(isinstance(what, dict) for what in info.get("features", {}).values()):
            return info
    except (OSError, ValueError, AttributeError) as error:
        raise CameraError(f"{path}/meta/info.json: cannot be read ({error})") from None
    raise CameraError(f"{path}/meta/info.json: its features are no mappings")


def _clip_v2(path: Path, info: dict[str, Any], episode: int, feature: str) -> Clip:
    if not 0 <= episode < info["total_episodes"]:
        raise CameraError(f"{path}: no episode {episode}; it has {info['total_episodes']}, counted from 0")
    template = info.get("video_path") or _PATH_V2
    chunk = episode // info["chunks_size"]
    return Clip(path / template.format(episode_chunk=chunk, video_key=feature, episode_index=episode))


def _clip_v3(path: Path, info: dict[str, Any], episode: int, feature: str) -> Clip:
    keys = [f"videos/{feature}/{key}" for key in ("chunk_index", "file_index", "from_timestamp", "to_timestamp")]
    count = 0
    for file in sorted((path / "meta" / "episodes").rglob("*.parquet")):
        table = pq.read_table(file, columns=["episode_index", *keys])
        for row in table.to_pylist():
            count += 1
            if row["episode_index"] == episode:
                chunk, number, start_s, end_s = (row[key] for key in keys)
                template = info.get("video_path") or _PATH_V3
                name = template.format(video_key=feature, chunk_index=chunk, file_index=number)
                return Clip(path / name, float(start_s), float(end_s))
    raise CameraError(f"{path}: no episode {episode}; it has {count}, counted from 0")
