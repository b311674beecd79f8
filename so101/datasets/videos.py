"""Reading mp4 files the way a dataset needs it: what is in them, at which times, and statistics of sampled frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np

from so101.datasets.stats import histogram_stats, image_histogram, sample_indices
from so101.errors import DataError


@dataclass(frozen=True)
class VideoFacts:
    """`timestamps_s` (T,) are presentation times in display order, one a frame; `decode_order` (T,) says which of them
    each packet of the file holds, `keyframe` (T,) whether decoding can start there, both in the order of the file."""

    height: int
    width: int
    codec: str
    pix_fmt: str
    fps: float
    has_audio: bool
    timestamps_s: np.ndarray
    decode_order: np.ndarray
    keyframe: np.ndarray

    @property
    def num_frames(self) -> int:
        return len(self.timestamps_s)

    def feature(self) -> dict:
        """The entry of this video under `features` in info.json."""
        return {
            "dtype": "video",
            "shape": [self.height, self.width, 3],
            "names": ["height", "width", "channels"],
            "info": {
                "video.height": self.height,
                "video.width": self.width,
                "video.codec": self.codec,
                "video.pix_fmt": self.pix_fmt,
                "video.is_depth_map": False,
                "video.fps": round(self.fps),
                "video.channels": 3,
                "has_audio": self.has_audio,
            },
        }


def probe_video(path: Path | str) -> VideoFacts:
    """What a video file holds, from its packets; nothing is decoded.

    Raises:
        DataError: not a video, or truncated.
    """
    with open_video(path) as container:
        stream = container.streams.video[0]
        packets = [
            (float(packet.pts * packet.time_base), packet.is_keyframe)
            for packet in container.demux(stream)
            if packet.pts is not None
        ]
        times, keyframe = np.array(packets, float).reshape(-1, 2).T
        return VideoFacts(
            height=stream.height,
            width=stream.width,
            codec=stream.codec.canonical_name,
            pix_fmt=stream.pix_fmt,
            fps=float(stream.base_rate),
            has_audio=bool(container.streams.audio),
            timestamps_s=np.sort(times),
            decode_order=np.argsort(np.argsort(times)),
            keyframe=keyframe.astype(bool),
        )


def video_stats(path: Path | str, num_frames: int) -> dict[str, list]:
    """LeRobot image statistics of a video of `num_frames` frames, from the frames as they decode.

    Raises:
        DataError: it does not decode, or holds another number of frames.
    """
    return histogram_stats(*video_histogram(path, num_frames))


def video_histogram(path: Path | str, num_frames: int) -> tuple[np.ndarray, int]:
    """What `video_stats` are statistics of: `so101.datasets.stats.image_histogram` of the frames LeRobot samples.

    Raises:
        DataError: as `video_stats`.
    """
    return image_histogram(_sampled_frames(path, num_frames))


def sample_frames(path: Path | str, count: int, step_px: int = 4) -> np.ndarray:
    """(N, H / step_px, W / step_px, 3) uint8: up to `count` frames evenly spread over a video, thinned out.

    Seeks, so a few frames a sample are decoded. Fewer than `count` when the video ends before its index says.

    Raises:
        DataError: not a video, or it does not decode.
    """
    frames = []
    with open_video(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        times = sorted(packet.pts for packet in container.demux(stream) if packet.pts is not None)
        for wanted in np.rint(np.linspace(0, len(times) - 1, count)).astype(int):
            container.seek(times[wanted], stream=stream)
            for frame in container.decode(stream):
                if frame.pts is not None and frame.pts >= times[wanted]:
                    frames.append(frame.to_ndarray(format="rgb24")[::step_px, ::step_px])
                    break
    return np.array(frames)


def _sampled_frames(path: Path | str, num_frames: int) -> Iterator[np.ndarray]:
    wanted, count = set(sample_indices(num_frames).tolist()), 0
    with open_video(path) as container:
        container.streams.video[0].codec_context.thread_count = 1  # the stage has a process a core already
        for frame in container.decode(video=0):
            if count in wanted:
                yield frame.to_ndarray(format="rgb24")
            count += 1
    if count != num_frames:
        raise DataError(f"{path}: {count} frames, its demo has {num_frames}; delete it and run `./twin render` again")


class open_video:
    """`av.open` whose errors, at opening or while reading, name the file and what to do."""

    def __init__(self, path: Path | str) -> None:
        self._path = path

    def __enter__(self) -> av.container.InputContainer:
        try:
            self._container = av.open(str(self._path))
            if not self._container.streams.video:
                self._container.close()
                raise DataError(f"{self._path}: no video stream in it; delete it and run `./twin render` again")
        except (av.error.FFmpegError, OSError) as error:
            raise self._fault(error) from None
        return self._container

    def __exit__(self, kind, error, trace) -> None:
        self._container.close()
        if isinstance(error, av.error.FFmpegError):
            raise self._fault(error) from None

    def _fault(self, error: Exception) -> DataError:
        return DataError(f"{self._path}: not a readable video ({error}); delete it and run `./twin render` again")
