"""A camera on a thread of its own: frames go to a board, faults are counted, and it is opened again after them."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import NamedTuple

from so101.cameras.base import Camera, CameraError, Frame, NoFrameYet
from so101.cameras.board import FrameBoard
from so101.config.cameras import CaptureConfig

log = logging.getLogger(__name__)

STARTING, LIVE, WAITING, FAILED = "starting", "live", "waiting", "failed"
_RATE_FRAMES = 60  # the rate told is that of the last so many frames: two seconds


class CameraState(NamedTuple):
    """How a camera is doing. Counters run from the start of the program.

    Attributes:
        mode: as `Camera.mode`.
        state: starting, live, waiting (nothing to show yet) or failed (opened again soon).
        fps_hz: of late; 0 when no frame came for a while.
        captured: frames read.
        dropped: frames the device took and nobody could read: gaps in its numbers.
        skipped: frames that were replaced by newer ones before anyone took them.
        failures: times it could not be opened or stopped.
        error: the last fault, "" when there was none or it is over.
    """

    camera: str
    kind: str
    mode: str
    state: str
    fps_hz: float
    captured: int
    dropped: int
    skipped: int
    failures: int
    error: str


class Capture:
    """Reads `camera` until closed. A camera that fails is closed and opened again after a wait that doubles each time.

    `tried` is set once it was opened for the first time, or could not be.
    """

    def __init__(self, camera: Camera, board: FrameBoard, settings: CaptureConfig) -> None:
        self.camera = camera
        self.tried = threading.Event()
        self._board, self._settings = board, settings
        self._state, self._error = STARTING, ""
        self._captured = self._dropped = self._failures = 0
        self._stamps: deque[float] = deque(maxlen=_RATE_FRAMES)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"camera {camera.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Ask the thread to end, without waiting."""
        self._ended.set()

    def close(self) -> None:
        """End the thread, which frees the camera; waits for the read in progress, but not for an SDK that hangs."""
        self.end()
        if self._thread.ident is not None:
            self._thread.join(self._settings.open_timeout_s)

    @property
    def state(self) -> CameraState:
        return CameraState(
            self.camera.name, self.camera.kind, self.camera.mode, self._state, self._rate_hz(), self._captured,
            self._dropped, self._board.skipped[self.camera.name], self._failures, self._error,
        )  # fmt: skip

    def _run(self) -> None:
        wait_s = self._settings.reopen_min_s
        while not self._ended.is_set():
            captured = self._captured
            try:
                self.camera.open()
                self._state = WAITING
                self.tried.set()
                self._read_on()
            except Exception as error:  # an SDK may raise anything, and the other cameras shall go on
                self._failed(error)
            self._release()
            self.tried.set()
            if self._captured > captured:
                wait_s = self._settings.reopen_min_s
            self._ended.wait(wait_s)
            wait_s = min(2 * wait_s, self._settings.reopen_max_s)

    def _read_on(self) -> None:
        last = None
        while not self._ended.is_set():
            try:
                frame = self.camera.read(self._settings.read_timeout_s)
            except NoFrameYet as error:
                self._state, self._error = WAITING, str(error)
                continue
            self._count(frame, last)
            self._board.put(frame)
            last = frame.index

    def _release(self) -> None:
        try:
            self.camera.close()
        except Exception as error:  # of a device that is gone
            log.debug("camera %s: closing: %s", self.camera.name, error)

    def _count(self, frame: Frame, last: int | None) -> None:
        if self._state != LIVE:
            log.info("camera %s: live, %s", self.camera.name, self.camera.mode)
        self._state, self._error = LIVE, ""
        self._captured += 1
        if last is not None:
            self._dropped += max(0, frame.index - last - 1)
        self._stamps.append(frame.stamp_s)

    def _failed(self, error: Exception) -> None:
        text = str(error) if isinstance(error, CameraError) else f"{type(error).__name__}: {error}"
        if text != self._error and self.tried.is_set():  # before that, whoever opens it is told
            log.warning("camera %s: %s", self.camera.name, text)
        self._state, self._error = FAILED, text
        self._failures += 1

    def _rate_hz(self) -> float:
        stamps = list(self._stamps)
        if len(stamps) < 2 or time.monotonic() - stamps[-1] > self._settings.read_timeout_s:
            return 0.0
        return (len(stamps) - 1) / max(stamps[-1] - stamps[0], 1e-9)
