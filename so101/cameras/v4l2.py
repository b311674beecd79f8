"""USB cameras through OpenCV."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from so101.cameras.base import CameraError, Frame, Picture, stamped
from so101.cameras.buffers import BufferPool
from so101.cameras.v4l2_modes import list_devices, list_modes
from so101.config import Config

_RATE_TOLERANCE = 0.05  # 29.97 passes for 30
_STAMP_AGE_S = 1.0  # a stamp up to this old is one of the kernel's, on our clock; others are of some other clock


class V4l2Camera:
    """One picture in flight, so that `read` gives the newest; stamps are the kernel's where the driver gives them.

    Args:
        open_capture: `cv2.VideoCapture` unless told otherwise.
    """

    kind = "v4l2"

    def __init__(self, name: str, config: Config, open_capture: Callable[..., Any] | None = None) -> None:
        self.name, self._open_capture = name, open_capture
        self._source, self._picture = config.cameras.source(name), Picture.of(config)
        self._timeout_s = config.cameras.capture.read_timeout_s
        self.mode = f"{self._source.pixel_format} {self._picture}"
        self._pool = BufferPool(self._picture.height_px, self._picture.width_px, config.cameras.capture.pooled_frames)
        self._capture = None

    def open(self) -> None:
        cv2 = self._cv2 = _opencv(self._timeout_s)
        self._check_device()
        backend = cv2.CAP_V4L2 if self._source.backend == "v4l2" else cv2.CAP_ANY
        self._capture = (self._open_capture or cv2.VideoCapture)(self._source.device, backend)
        if not self._capture.isOpened():
            raise CameraError(
                f"{self._device} cannot be opened ({self._key}): another program uses it, it is no camera, or you may "
                "not (`sudo usermod -aG video $USER`, then log in again)"
            )
        self._set_mode(cv2)
        self._bgr = None
        self._index, self._stamp_s = 0, -math.inf

    def read(self, timeout_s: float) -> Frame:
        if not self._capture.grab():  # waits for at most capture.read_timeout_s, see _opencv
            gone = self._source.backend == "v4l2" and not Path(self._device).exists()
            raise CameraError(f"{self._device} {'was unplugged' if gone else 'gives no frames'} ({self._key})")
        stamp_s = self._kernel_stamp(time.monotonic())
        came, self._bgr = self._capture.retrieve(self._bgr)
        image = self._pool.take()
        if not came or self._bgr.shape != image.shape:
            raise CameraError(f"{self._device} sent a picture that is none of {self.mode} ({self._key})")
        self._cv2.cvtColor(self._bgr, self._cv2.COLOR_BGR2RGB, dst=image)
        # OpenCV does not tell the driver's numbers: a gap in time is as many lost frames as fit in
        step = (stamp_s - self._stamp_s) * self._picture.fps_hz
        self._index += max(1, round(step)) if math.isfinite(step) else 0
        self._stamp_s = stamp_s
        return stamped(image, stamp_s, self._index, self.name)

    def close(self) -> None:
        if self._capture is not None:
            self._capture.release()
            self._capture = None

    @property
    def _device(self) -> str:
        device = self._source.device
        return f"/dev/video{device}" if isinstance(device, int) and self._source.backend == "v4l2" else str(device)

    @property
    def _key(self) -> str:
        return f"cameras.sources.{self.name}.device"

    def _check_device(self) -> None:
        if self._source.backend == "v4l2" and not Path(self._device).exists():
            there = ", ".join(f"{path} ({label})" for path, label in list_devices().items())
            raise CameraError(
                f"{self._device} does not exist ({self._key}); cameras here: {there or 'none. Is it plugged in?'}"
            )

    def _set_mode(self, cv2: Any) -> None:
        wanted = {
            cv2.CAP_PROP_FOURCC: cv2.VideoWriter.fourcc(*self._source.pixel_format),
            cv2.CAP_PROP_FRAME_WIDTH: self._picture.width_px,
            cv2.CAP_PROP_FRAME_HEIGHT: self._picture.height_px,
            cv2.CAP_PROP_FPS: self._picture.fps_hz,
            cv2.CAP_PROP_BUFFERSIZE: 1,
        }
        for key, value in wanted.items():
            self._capture.set(key, value)
        got = Picture(
            int(self._capture.get(cv2.CAP_PROP_FRAME_WIDTH)),
            int(self._capture.get(cv2.CAP_PROP_FRAME_HEIGHT)),
            float(self._capture.get(cv2.CAP_PROP_FPS)),
        )
        rate_is_right = abs(got.fps_hz - self._picture.fps_hz) <= _RATE_TOLERANCE * self._picture.fps_hz
        if got[:2] != self._picture[:2] or not rate_is_right:
            modes = ", ".join(list_modes(self._device)) if self._source.backend == "v4l2" else ""
            raise CameraError(
                f"{self._device} gives {got}, not {self.mode} (width_px, height_px, fps_hz and sources.{self.name}."
                f"pixel_format of cameras.yaml); it offers: {modes or 'it does not say'}"
            )

    def _kernel_stamp(self, arrival_s: float) -> float:
        stamp_s = self._capture.get(self._cv2.CAP_PROP_POS_MSEC) / 1000
        return stamp_s if 0 <= arrival_s - stamp_s <= _STAMP_AGE_S else arrival_s


def _opencv(timeout_s: float) -> Any:
    """cv2, told how long to wait for a frame (it looks when it is loaded; 10 s of its own).

    Raises:
        CameraError: it is not installed.
    """
    os.environ.setdefault("OPENCV_VIDEOIO_V4L_SELECT_TIMEOUT", str(math.ceil(timeout_s)))
    try:
        import cv2
    except ImportError as error:
        raise CameraError(f"USB cameras need OpenCV ({error}); install it with `pip install -e .[cameras]`") from None
    return cv2
