"""What the loop looks at beside the arm: the cameras, and the keys of a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from so101.cameras.base import Frame


class Keys(Protocol):
    """What a person at the terminal wants."""

    def poll(self) -> list[str]:
        """Meanings of the keys pressed since the last call: pause, abort, success, failure, help."""


class NoKeys:
    """Nobody is there."""

    def poll(self) -> list[str]:
        return []


class Cameras(Protocol):
    """Newest frames."""

    def latest(self, timeout_s: float) -> Mapping[str, Frame]:
        """Camera name -> newest frame. Raises CameraError when a camera has none in time."""
