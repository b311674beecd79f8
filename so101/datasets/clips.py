"""Clips: the frames of a video file that are one episode, taken out as a file of their own, or put one after another.

Packets are moved without decoding where that is exact: a clip that begins at a key frame and whose packets follow one
another in the file. Any other is decoded and encoded again, frame by frame; a cut by time would bleed at its ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from so101.config import Config
from so101.datasets.videos import VideoFacts, open_video
from so101.errors import DataError

_FRAME_TOLERANCE = 0.1  # of a frame: how far a video's times may be from the grid of its rate


@dataclass(frozen=True)
class Clip:
    """Frames `first` to `first + length` of `path`, at `fps`. With `picks` (N,) it is these of them, in this order:
    the episode at another rate."""

    path: Path
    first: int
    length: int
    fps: float
    picks: tuple[int, ...] | None = None

    @property
    def num_frames(self) -> int:
        return self.length if self.picks is None else len(self.picks)


@dataclass(frozen=True)
class Encoding:
    """What encoded clips are: picture size, Hz, and the codec of render.yaml."""

    width: int
    height: int
    fps: float
    config: Config

    @property
    def feature(self) -> dict[str, Any]:
        """The entry under `features` in info.json of a video encoded like this."""
        codec = self.config.render.codec
        name = av.Codec(codec.encoder, "w").canonical_name
        facts = (self.height, self.width, name, codec.pixel_format, self.fps, False)
        return VideoFacts(*facts, np.zeros(0), np.zeros(0, int), np.zeros(0, bool)).feature()


def clip_faults(clip: Clip, facts: VideoFacts) -> list[str]:
    """Why the file does not hold the clip; texts without the file's name."""
    times = facts.timestamps_s * clip.fps
    if len(times) < clip.first + clip.length:
        return [f"{len(times)} frames, the episode is frames {clip.first} to {clip.first + clip.length - 1}"]
    span = slice(clip.first, clip.first + clip.length)
    off = np.abs(times[span] - np.arange(len(times))[span])
    if off.max(initial=0) > _FRAME_TOLERANCE:
        return [f"frame {clip.first + int(off.argmax())} is not at frame / fps with {clip.fps:g} fps"]
    return []


def is_whole(clip: Clip, facts: VideoFacts) -> bool:
    """Whether the clip is all of its file."""
    return clip.picks is None and clip.first == 0 and clip.length == facts.num_frames


def can_copy(clip: Clip, facts: VideoFacts) -> bool:
    """Whether the clip's packets can be taken as they are: they follow one another, and the first is a key frame."""
    inside = (facts.decode_order >= clip.first) & (facts.decode_order < clip.first + clip.length)
    packets = np.flatnonzero(inside)
    contiguous = len(packets) == clip.length and packets[-1] - packets[0] == clip.length - 1
    starts = contiguous and facts.keyframe[packets[0]] and facts.decode_order[packets[0]] == clip.first
    return clip.picks is None and bool(starts)


def copy_clip(clip: Clip, target: Path) -> None:
    """Write the clip's packets as a file of its own, without decoding; `can_copy` must hold.

    Raises:
        DataError: the file cannot be read.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_video(clip.path) as source, _Remuxer(target, clip.fps) as out:
        out.append(source, clip.first, clip.length)


def encode_clip(clip: Clip, target: Path, encoding: Encoding) -> None:
    """Decode the clip's frames and encode them; a picture of another shape gets black bars.

    Raises:
        DataError: the file cannot be read, or the frames are not there.
    """
    from so101.rendering.video import VideoWriter

    size = {"width_px": encoding.width, "height_px": encoding.height, "fps_hz": encoding.fps}
    cameras = encoding.config.cameras.model_copy(update=size)
    with VideoWriter(target, encoding.config.model_copy(update={"cameras": cameras})) as writer:
        for image in decode_clip(clip):
            writer.write(_with_bars(image, encoding.width / encoding.height))
        if writer.num_frames != clip.num_frames:
            raise DataError(
                f"{clip.path}: {writer.num_frames} of the episode's {clip.num_frames} frames could be decoded"
            )


def decode_clip(clip: Clip) -> Iterator[np.ndarray]:
    """The clip's frames, (h, w, 3) uint8 RGB."""
    picks = iter(range(clip.length) if clip.picks is None else clip.picks)
    wanted = next(picks, None)
    with open_video(clip.path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        if clip.first:
            container.seek(int(clip.first / clip.fps / stream.time_base), stream=stream)
        for frame in container.decode(stream):
            number = round(frame.time * clip.fps) - clip.first
            image = None
            while wanted is not None and number == wanted:
                image = frame.to_ndarray(format="rgb24") if image is None else image
                yield image
                wanted = next(picks, None)
            if wanted is None:
                return


def _with_bars(image: np.ndarray, aspect: float) -> np.ndarray:
    height, width = image.shape[:2]
    wide, high = max(width, round(height * aspect)), max(height, round(width / aspect))
    if (wide, high) == (width, height):
        return image
    canvas = np.zeros((high, wide, 3), np.uint8)
    top, left = (high - height) // 2, (wide - width) // 2
    canvas[top : top + height, left : left + width] = image
    return canvas


class ClipFiles:
    """Clips one after another in files of a v3.0 dataset, moved packet by packet. A clip of other codec parameters than
    the one before, or for which there is no room, begins a new file."""

    def __init__(self, path_of: Any, fps: float, max_bytes: int) -> None:
        """`path_of(number)` gives the path of the number-th file."""
        self._path_of, self._fps, self._max_bytes = path_of, fps, max_bytes
        self._number = -1
        self._frames = self._bytes = 0
        self._out: _Remuxer | None = None

    def append(self, path: Path, length: int) -> tuple[int, int]:
        """Add a file that is one clip of `length` frames; returns the number of its file, and its first frame there."""
        size = path.stat().st_size
        with open_video(path) as source:
            fits = self._out is not None and self._bytes + size <= self._max_bytes
            if not (fits and self._out.takes(source, length)):
                self.close()
                self._number, self._frames, self._bytes = self._number + 1, 0, 0
                target = self._path_of(self._number)
                target.parent.mkdir(parents=True, exist_ok=True)
                self._out = _Remuxer(target, self._fps).__enter__()
            first = self._frames
            self._out.append(source, 0, length)
        self._frames, self._bytes = first + length, self._bytes + size
        return self._number, first

    def close(self) -> None:
        if self._out is not None:
            self._out.__exit__(None, None, None)
            self._out = None


class _Remuxer:
    """Packets of several files, one after another, on the grid of one rate."""

    def __init__(self, target: Path, fps: float) -> None:
        self._target, self._fps = target, Fraction(fps).limit_denominator(1001)
        self._stream = self._signature = None
        self._frames = self._delay = 0

    def __enter__(self) -> _Remuxer:
        self._container = av.open(str(self._target), "w", options={"fflags": "+bitexact"})
        return self

    def __exit__(self, *failure) -> None:
        self._container.close()

    def takes(self, source: av.container.InputContainer, length: int) -> bool:
        """Whether packets of `source` may follow: one decoder with one set of parameters must read them all."""
        packets = self._packets(source, 0, length)
        source.seek(0)
        return self._signature == _signature(source) and self._delay == _delay(packets)

    def append(self, source: av.container.InputContainer, first: int, length: int) -> None:
        packets = self._packets(source, first, length)
        if self._stream is None:
            self._stream = self._container.add_stream_from_template(source.streams.video[0], opaque=True)
            self._signature, self._delay = _signature(source), _delay(packets)
        for place, (number, packet) in enumerate(packets):
            packet.stream = self._stream
            packet.time_base = 1 / self._fps
            packet.pts, packet.dts = self._frames + number, self._frames + place - self._delay
            packet.duration = 1
            self._container.mux(packet)
        self._frames += length

    def _packets(self, source: av.container.InputContainer, first: int, length: int) -> list[tuple[int, Any]]:
        """(frame of the clip, packet), in the order of the file."""
        stream = source.streams.video[0]
        if first:
            source.seek(int(first / self._fps / stream.time_base), stream=stream)
        packets = []
        for packet in source.demux(stream):
            number = None if packet.pts is None else round(packet.pts * stream.time_base * self._fps) - first
            if number is not None and 0 <= number < length:
                packets.append((number, packet))
                if len(packets) == length:
                    return packets
        raise DataError(f"{self._target}: {len(packets)} of {length} frames could be read from {source.name}")


def _signature(source: av.container.InputContainer) -> tuple:
    context = source.streams.video[0].codec_context
    return (context.name, context.width, context.height, context.pix_fmt, context.extradata)


def _delay(packets: list[tuple[int, Any]]) -> int:
    """How many frames decoding runs ahead of showing."""
    return max(place - number for place, (number, _) in enumerate(packets))
