"""H.264 files: equal frames and settings give equal bytes, and a file is there whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from so101.config import Config
from so101.errors import DataError
from so101.files import atomic_path
from so101.rendering.renderer import FrameScaler


class VideoWriter:
    """Encodes frames into `path` as they come; the file appears when the `with` block ends well.

    Frames are (h, w, 3) uint8 RGB of any size; they are scaled to the size in cameras.yaml.
    """

    def __init__(self, path: Path | str, config: Config) -> None:
        self.path = Path(path)
        self.num_frames = 0
        self._config = config
        self._scaler = FrameScaler(config, config.render.codec.pixel_format)
        self._exit = ExitStack()

    def __enter__(self) -> VideoWriter:
        codec, cameras = self._config.render.codec, self._config.cameras
        with ExitStack() as stack:
            temporary = stack.enter_context(atomic_path(self.path))
            # bitexact: no version strings and dates in the file
            self._container = stack.enter_context(av.open(str(temporary), "w", options={"fflags": "+bitexact"}))
            options = {"preset": codec.preset, "crf": str(codec.crf), "flags": "+bitexact"}
            try:
                self._stream = self._container.add_stream(
                    codec.encoder, rate=Fraction(cameras.fps_hz).limit_denominator(1001), options=options
                )
            except (ValueError, av.error.FFmpegError) as error:
                raise DataError(
                    f"cannot encode {self.path}: render.codec.encoder is {codec.encoder!r} ({error}); "
                    "libx264 is in the av wheel"
                ) from error
            self._stream.width, self._stream.height = cameras.width_px, cameras.height_px
            self._stream.pix_fmt = codec.pixel_format
            self._stream.gop_size = codec.gop_frames
            self._stream.thread_count = codec.threads
            self._exit = stack.pop_all()
        return self

    def write(self, rgb: np.ndarray) -> None:
        """Add one frame."""
        frame = self._scaler.scale(rgb)
        frame.pts = self.num_frames  # in units of 1 / fps, the time base of the encoder
        try:
            packets = self._stream.encode(frame)
        except av.error.ArgumentError as error:  # the encoder looks at its options when the first frame comes
            raise DataError(
                f"cannot encode {self.path}: {error}; see encoder, preset and crf under codec in render.yaml"
            ) from error
        self._container.mux(packets)
        self.num_frames += 1

    def __exit__(self, *failure) -> None:
        if failure[0] is not None:
            self._exit.__exit__(*failure)  # removes the temporary file
            return
        with self._exit:
            if self.num_frames == 0:
                raise DataError(f"cannot write {self.path}: a video needs at least one frame")
            self._container.mux(self._stream.encode(None))


def encode_video(path: Path | str, frames: Iterable[np.ndarray], config: Config) -> int:
    """Write `frames`, (h, w, 3) uint8 RGB each, to an mp4 file at cameras.fps_hz; returns how many there were.

    Raises:
        DataError: no frame, or an encoder that this FFmpeg does not have.
    """
    with VideoWriter(path, config) as writer:
        for frame in frames:
            writer.write(frame)
    return writer.num_frames
