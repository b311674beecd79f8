"""A recorded video as a camera."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import av

from so101.cameras.base import CameraError, Frame, NoFrameYet, Picture, stamped
from so101.cameras.episode_video import Clip, find_clip
from so101.cameras.timing import Pacer
from so101.config import Config

_EARLY_S = 1e-4  # a time in seconds may lie this much beside the frame's own, which is a fraction


class PlaybackCamera:
    """Plays a video file or an episode of a dataset at the rate it was recorded at, scaled to the size of cameras.yaml.

    Frames that pass while nobody reads are skipped, so that cameras of one episode stay together.
    """

    kind = "playback"

    def __init__(self, name: str, config: Config) -> None:
        self.name = name
        self._source, self._picture = config.cameras.source(name), Picture.of(config)
        self._feature = self._source.feature or f"observation.images.{config.dataset.cameras.get(name, name)}"
        self.mode = str(self._picture)
        self._container = None

    def open(self) -> None:
        self._clip = find_clip(self._source.path, self._source.episode, self._feature)
        self._scaler = av.video.reformatter.VideoReformatter()
        self._frames = self._decoded()
        first = next(self._frames, None)  # found here, faults of the file are told when it is opened
        if first is None:
            raise CameraError(f"{self._clip.path}: holds no frame of episode {self._source.episode}")
        self._frames = itertools.chain([first], self._frames)
        rate_hz = float(self._container.streams.video[0].average_rate or self._picture.fps_hz)
        self.mode = str(self._picture._replace(fps_hz=rate_hz))
        self._pacer, self._shown = Pacer(rate_hz), -1

    def read(self, timeout_s: float) -> Frame:
        index, stamp_s = self._pacer.wait()
        for _ in range(index - self._shown):  # those that passed unread are decoded too: later ones build on them
            picture = self._advance()
        self._shown = index
        image = self._scaler.reformat(picture, self._picture.width_px, self._picture.height_px, "rgb24").to_ndarray()
        return stamped(image, stamp_s, index, self.name)

    def close(self) -> None:
        container, self._container = self._container, None
        if container is not None:
            container.close()

    def _advance(self) -> av.VideoFrame:
        picture = next(self._frames, None)
        if picture is None and self._source.loop:
            self._frames = self._decoded()
            picture = next(self._frames, None)
        if picture is None:
            raise NoFrameYet(f"{self._clip.path} is over (cameras.sources.{self.name}.loop is {self._source.loop})")
        return picture

    def _decoded(self) -> Iterator[av.VideoFrame]:
        self.close()
        clip: Clip = self._clip
        try:
            self._container = container = av.open(str(clip.path))
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1  # other cameras decode too
            if clip.start_s > 0:
                container.seek(int(clip.start_s / stream.time_base), stream=stream)  # to the key frame before it
            for frame in container.decode(stream):
                if frame.time >= clip.end_s - _EARLY_S:
                    return
                if frame.time >= clip.start_s - _EARLY_S:
                    yield frame
        except (av.error.FFmpegError, OSError, IndexError) as error:
            raise CameraError(f"{clip.path}: not a readable video ({error})") from None
