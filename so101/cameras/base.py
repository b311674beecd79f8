"""What every camera is: something that is opened, gives time-stamped frames, and is closed."""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol

import numpy as np

from so101.config import Config
from so101.errors import So101Error


class CameraError(So101Error):
    """A camera cannot be opened, went away, or does not give the pictures it is asked for."""

    exit_code = 9


class NoFrameYet(CameraError):
    """Nothing to show so far, through no fault of the camera: opening it again would not help."""


class Frame(NamedTuple):
    """One picture. Do not write into it: others hold it too.

    Attributes:
        image: (height, width, 3) uint8 RGB, top row first.
        stamp_s: when it was captured, on the monotonic clock all processes of one machine share.
        wall_s: the same moment as seconds since 1970.
        index: number the device gave it. Gaps are frames that were lost before anyone could read them; it starts anew
            when the camera is opened again.
        camera: name in cameras.yaml.
    """

    image: np.ndarray
    stamp_s: float
    wall_s: float
    index: int
    camera: str

    @property
    def age_s(self) -> float:
        """Time since capture, by the wall clock: across machines it is as good as their clocks agree."""
        return time.time() - self.wall_s


class Camera(Protocol):
    """A source of frames. `open`, `read` and `close` are called from one thread; cameras do not share state.

    Attributes:
        name: in cameras.yaml.
        kind: in cameras.yaml.
        mode: picture size, rate and format in words; known once it is open.
    """

    name: str
    kind: str
    mode: str

    def open(self) -> None:
        """Start the stream; after a `close` again.

        Raises:
            CameraError: the device or the mode is missing; says what there is.
        """

    def read(self, timeout_s: float) -> Frame:
        """The next frame that was not read before; older ones that were not read are gone.

        Raises:
            CameraError: none came in time, or the device went away.
            NoFrameYet: what the camera shows does not exist yet.
        """

    def close(self) -> None:
        """Free the device; calling it twice, or unopened, is fine."""


class Picture(NamedTuple):
    """The one mode all cameras of cameras.yaml have."""

    width_px: int
    height_px: int
    fps_hz: float

    @classmethod
    def of(cls, config: Config) -> Picture:
        return cls(config.cameras.width_px, config.cameras.height_px, config.cameras.fps_hz)

    def __str__(self) -> str:
        return f"{self.width_px}x{self.height_px} at {self.fps_hz:g} Hz"


def stamped(image: np.ndarray, stamp_s: float, index: int, camera: str) -> Frame:
    """A frame captured at `stamp_s` on the monotonic clock."""
    return Frame(image, stamp_s, time.time() - (time.monotonic() - stamp_s), index, camera)
