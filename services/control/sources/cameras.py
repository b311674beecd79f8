"""The cameras, through their service."""

from __future__ import annotations

import io
import threading
import time
from typing import Any

import numpy as np
from PIL import Image

from proto.messages.camera import STATUS_TOPIC, CameraStatus
from services.camera.client import RemoteCameras
from services.control.errors import NotFound, NotRunning
from services.control.models import Service
from services.wire import make_subscriber
from so101.cameras import Frame
from so101.config import Config


class CameraSource:
    """The camera service: how each camera is doing, and its newest picture as JPEG. Pictures travel only while somebody
    looks at them: three cameras are 80 MB/s."""

    def __init__(self, config: Config) -> None:
        self._config, self._settings = config, config.deploy.control_plane
        self.names = tuple(config.cameras.names)
        self._subscriber = make_subscriber(config, "cameras", [STATUS_TOPIC + name for name in self.names])
        self._heard: dict[str, tuple[float, CameraStatus]] = {}
        self._lock = threading.Lock()
        self._cameras: RemoteCameras | None = None
        self._asked_s = 0.0
        self._frames: dict[str, Frame] = {}
        self._encoded: dict[str, tuple[Frame, bytes]] = {}

    def look(self) -> Service:
        """State of each camera; also ends the pictures that nobody looks at any more. For one thread."""
        now = time.monotonic()
        for topic, message in self._subscriber.latest(0).items():
            if isinstance(message, CameraStatus):
                self._heard[topic.removeprefix(STATUS_TOPIC)] = now, message
        with self._lock:
            if self._cameras is not None and now - self._asked_s > self._settings.events.camera_idle_s:
                self._end_pictures()
        cameras = [self._told(name, now) for name in self.names]
        running = any(camera["state"] != "absent" for camera in cameras)
        problem = f"no cameras at {self._subscriber.endpoint}; `./twin serve camera` starts them"
        return Service(running=running, problem="" if running else problem, values={"cameras": cameras})

    def jpeg(self, name: str) -> bytes:
        """The newest picture; for any thread.

        Raises:
            NotFound: no such camera.
            NotRunning: it has no picture now.
        """
        if name not in self.names:
            raise NotFound(f"there is no camera {name[:80]!r}; cameras.yaml has {', '.join(self.names)}")
        with self._lock:
            self._asked_s = time.monotonic()
            if self._cameras is None:
                self._cameras = RemoteCameras(self._config)
            if name not in self._frames:
                self._take(self._settings.request_timeout_s)
            self._take(0)
            frame = self._frames.get(name)
            if frame is None or frame.age_s > self._settings.events.stale_s:
                raise NotRunning(f"camera {name} sends no pictures now")
            if name not in self._encoded or self._encoded[name][0] is not frame:
                self._encoded[name] = frame, _jpeg(frame.image, self._settings.jpeg_quality_pct)
            return self._encoded[name][1]

    def close(self) -> None:
        with self._lock:
            if self._cameras is not None:
                self._end_pictures()
        self._subscriber.close()

    def _told(self, name: str, now: float) -> dict[str, Any]:
        heard_s, status = self._heard.get(name, (0.0, None))
        if status is None or now - heard_s > self._settings.events.stale_s:
            return {"name": name, "state": "absent", "kind": "", "mode": "", "dropped": 0, "error": ""}
        plain = ("state", "kind", "mode", "dropped", "error")
        return {"name": name, **{key: getattr(status, key) for key in plain}}

    def _take(self, timeout_s: float) -> None:
        for frame in self._cameras.take(timeout_s):
            self._frames[frame.camera] = frame

    def _end_pictures(self) -> None:
        self._cameras.close()
        self._cameras = None
        self._frames.clear()
        self._encoded.clear()


def _jpeg(image: np.ndarray, quality_pct: int) -> bytes:
    """(H, W, 3) uint8 RGB as JPEG."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality_pct)
    return file.getvalue()
