"""A test pattern: bars, a square that moves, and the frame number in black and white blocks, top and bottom."""

from __future__ import annotations

import numpy as np

from so101.cameras.base import Frame, Picture, stamped
from so101.cameras.buffers import BufferPool
from so101.cameras.timing import Pacer
from so101.config import Config

_BITS = 16  # of the frame number
_BLOCK_ROWS = 8
_BARS_RGB = np.array([[235, 235, 235], [235, 235, 16], [16, 235, 235], [16, 235, 16], [235, 16, 235], [235, 16, 16]])


class SyntheticCamera:
    """Paced by cameras.fps_hz; needs no device. `frame_number` reads the number back, also from compressed video."""

    kind = "synthetic"

    def __init__(self, name: str, config: Config) -> None:
        self.name, self._picture = name, Picture.of(config)
        self.mode = str(self._picture)
        self._pool = BufferPool(self._picture.height_px, self._picture.width_px, config.cameras.capture.pooled_frames)
        self._pacer: Pacer | None = None
        bars = np.arange(self._picture.width_px) * len(_BARS_RGB) // self._picture.width_px
        self._background = np.empty((self._picture.height_px, self._picture.width_px, 3), np.uint8)
        self._background[:] = _BARS_RGB[bars]

    def open(self) -> None:
        self._pacer = Pacer(self._picture.fps_hz)

    def read(self, timeout_s: float) -> Frame:
        index, stamp_s = self._pacer.wait()
        image = self._pool.take()
        np.copyto(image, self._background)
        self._draw(image, index)
        return stamped(image, stamp_s, index, self.name)

    def close(self) -> None:
        self._pacer = None

    def _draw(self, image: np.ndarray, index: int) -> None:
        height, width = image.shape[:2]
        side = height // 6
        left = index * 4 % (width - side)
        image[height // 2 - side // 2 :][:side, left : left + side] = 16
        bits = (index >> np.arange(_BITS)) & 1
        blocks = np.repeat(bits * 255, width // _BITS)[:, None]
        for rows in (image[:_BLOCK_ROWS], image[-_BLOCK_ROWS:]):
            rows[:, : len(blocks)] = blocks


def frame_number(image: np.ndarray) -> int | None:
    """The frame number modulo 65536 of a test pattern; None when top and bottom disagree: halves of two frames."""
    width = image.shape[1] // _BITS
    middles = np.arange(_BITS) * width + width // 2
    top, bottom = (image[row, middles].mean(axis=-1) > 127 for row in (_BLOCK_ROWS // 2, -_BLOCK_ROWS // 2 - 1))
    return int((top << np.arange(_BITS)).sum()) if (top == bottom).all() else None
