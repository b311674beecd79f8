"""Several cameras side by side, each on its own thread; one that fails does not hold the others up."""

from __future__ import annotations

import time
from collections.abc import Sequence

from so101.cameras.base import Camera, CameraError, Frame
from so101.cameras.board import FrameBoard
from so101.cameras.capture import FAILED, STARTING, CameraState, Capture
from so101.config.cameras import CaptureConfig


class CameraSet:
    """Opens all cameras, then reads them until closed (or use it in a `with`)."""

    def __init__(self, cameras: Sequence[Camera], settings: CaptureConfig) -> None:
        self.names = tuple(camera.name for camera in cameras)
        self._settings = settings
        self._board = FrameBoard()
        self._captures = [Capture(camera, self._board, settings) for camera in cameras]

    def start(self) -> None:
        """Open all cameras at once.

        Raises:
            CameraError: at least one cannot be opened; all faults, one a line. Nothing is left open.
        """
        deadline = time.monotonic() + self._settings.open_timeout_s
        for capture in self._captures:
            capture.start()
        for capture in self._captures:
            capture.tried.wait(max(0.0, deadline - time.monotonic()))
        faults = [
            f"camera {state.camera}: {_fault(state, self._settings)}"
            for state in self.states()
            if _fault(state, self._settings)
        ]
        if faults:
            self.close()
            raise CameraError("\n".join(faults))

    def take(self, timeout_s: float) -> list[Frame]:
        """Frames that were not taken before, the newest of each camera; waits for one, none when none comes."""
        return self._board.take(timeout_s)

    def latest(self, timeout_s: float) -> dict[str, Frame]:
        """The newest frame of each camera, none older than cameras.capture.max_age_s.

        Raises:
            CameraError: a camera had none within `timeout_s`; says how each of those is doing.
        """
        frames = self._board.wait_for(self.names, self._settings.max_age_s, timeout_s)
        missing = [state for state in self.states() if state.camera not in frames]
        if missing:
            told = "; ".join(f"{s.camera}: {s.state}{f' ({s.error})' if s.error else ''}" for s in missing)
            raise CameraError(
                f"no frame younger than {self._settings.max_age_s:g} s within {timeout_s:g} s from {told}"
            )
        return frames

    def states(self) -> list[CameraState]:
        return [capture.state for capture in self._captures]

    def close(self) -> None:
        for capture in self._captures:
            capture.end()
        for capture in self._captures:
            capture.close()

    def __enter__(self) -> CameraSet:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _fault(state: CameraState, settings: CaptureConfig) -> str:
    if state.state == FAILED:
        return state.error
    if state.state == STARTING:
        return f"did not open within {settings.open_timeout_s:g} s (cameras.capture.open_timeout_s)"
    return ""
