"""Keeping an arm that holds from going home by itself, while the program does something that takes time."""

from __future__ import annotations

import threading
from types import TracebackType

from so101.errors import So101Error
from so101.robot.base import Robot

_INTERVAL_S = 0.2  # drivers take silence of half a second for a loss


class KeepAlive:
    """A context: inside, the arm is told to hold several times a second. Errors show at the next command."""

    def __init__(self, robot: Robot, *, active: bool = True) -> None:
        self._robot, self._active = robot, active
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="hold", daemon=True)

    def __enter__(self) -> KeepAlive:
        if self._active:
            self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        if self._active:
            self._thread.join()

    def _repeat(self) -> None:
        while not self._ended.is_set():
            try:
                self._robot.hold()
            except So101Error:
                pass
            self._ended.wait(_INTERVAL_S)
