"""The camera service: frames under the name of their camera, and how each camera is doing."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from proto.messages.base import Message
from proto.messages.common import Name, Text

STATUS_TOPIC = "status/"  # and the name of the camera
MAX_SIDE_PX = 4096
_Count = Annotated[int, Meta(ge=0)]
_Time = Annotated[float, Meta(ge=0, lt=1e12)]


class CameraFrame(Message):
    """One picture.

    image: (height, width, 3) uint8 RGB. stamp_s: of the capture, on the monotonic clock of the sender's machine;
    wall_s: the same since 1970. index: the device's number, gaps are frames it lost.
    """

    camera: Name
    index: _Count
    stamp_s: _Time
    wall_s: _Time
    image: np.ndarray

    def __post_init__(self) -> None:
        shape, dtype = self.image.shape, self.image.dtype
        if dtype != np.uint8 or len(shape) != 3 or shape[2] != 3 or not all(0 < n <= MAX_SIDE_PX for n in shape):
            raise ValueError(
                f"image must be (height, width, 3) uint8 of at most {MAX_SIDE_PX} px a side, is {shape} {dtype}"
            )


class CameraStatus(Message):
    """Counters of one camera since its service started; see `so101.cameras.CameraState`."""

    camera: Name
    kind: Name
    mode: Name
    state: Literal["starting", "live", "waiting", "failed"]
    fps_hz: Annotated[float, Meta(ge=0)]
    captured: _Count
    dropped: _Count
    skipped: _Count
    failures: _Count
    error: Text

    def __post_init__(self) -> None:
        if not math.isfinite(self.fps_hz):
            raise ValueError(f"fps_hz must be finite, is {self.fps_hz}")
