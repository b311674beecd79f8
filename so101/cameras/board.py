"""The newest frame of each camera, between whoever takes pictures and whoever looks at them."""

from __future__ import annotations

import threading
from collections import Counter

from so101.cameras.base import Frame


class FrameBoard:
    """Newest frame wins: a writer never waits for a reader, a reader never sees a frame older than it could.

    Attributes:
        skipped: camera -> frames that were replaced before `take` came for them.
    """

    def __init__(self) -> None:
        self._frames: dict[str, Frame] = {}
        self._fresh: dict[str, Frame] = {}
        self._changed = threading.Condition()
        self.skipped: Counter[str] = Counter()

    def put(self, frame: Frame) -> None:
        with self._changed:
            self.skipped[frame.camera] += frame.camera in self._fresh
            self._frames[frame.camera] = self._fresh[frame.camera] = frame
            self._changed.notify_all()

    def take(self, timeout_s: float) -> list[Frame]:
        """Frames that were not taken before, the newest of each camera; waits for one, none when none comes."""
        with self._changed:
            self._changed.wait_for(lambda: self._fresh, timeout_s)
            frames = list(self._fresh.values())
            self._fresh.clear()
            return frames

    def wait_for(self, cameras: tuple[str, ...], max_age_s: float, timeout_s: float) -> dict[str, Frame]:
        """The newest frame of each of these cameras, once none is older than `max_age_s`; those there are after
        `timeout_s`. They are not taken."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._young(cameras, max_age_s)) == len(cameras), timeout_s)
            return self._young(cameras, max_age_s)

    def newest(self, camera: str) -> Frame | None:
        """The newest frame of `camera`, however old."""
        return self._frames.get(camera)

    def _young(self, cameras: tuple[str, ...], max_age_s: float) -> dict[str, Frame]:
        return {
            name: self._frames[name]
            for name in cameras
            if name in self._frames and self._frames[name].age_s <= max_age_s
        }
