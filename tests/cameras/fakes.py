"""Cameras that do what a test tells them."""

from __future__ import annotations

import queue
import time

import numpy as np

from so101.cameras.base import CameraError, Frame, stamped


class ScriptedCamera:
    """Gives what is put into `script`: a frame index, or an exception to raise. `opening`: one entry for each `open`,
    an exception to raise or None; None once it is used up."""

    kind, mode = "scripted", "4x2 at 30 Hz"

    def __init__(self, name: str = "ego", opening: list[Exception | None] | None = None) -> None:
        self.name = name
        self.script: queue.Queue[int | Exception] = queue.Queue()
        self.opening = opening or []
        self.opened = self.closed = 0

    def open(self) -> None:
        self.opened += 1
        fault = self.opening.pop(0) if self.opening else None
        if fault is not None:
            raise fault

    def read(self, timeout_s: float) -> Frame:
        try:
            item = self.script.get(timeout=timeout_s)
        except queue.Empty:
            raise CameraError(f"{self.name}: no frame for {timeout_s:g} s") from None
        if isinstance(item, Exception):
            raise item
        return stamped(np.full((2, 4, 3), item % 256, np.uint8), time.monotonic(), item, self.name)

    def close(self) -> None:
        self.closed += 1


def until(condition, seconds: float = 20.0) -> None:
    """Wait for `condition()`; fails the test when it does not come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.005)
