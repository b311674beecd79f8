"""What the (virtual) rig tells of itself, for twin cameras."""

from __future__ import annotations

import threading
import time

from proto.sockets import Subscriber
from services.wire import make_subscriber
from so101.cameras import SceneState
from so101.config import Config

_POLL_S = 0.2  # how soon `close` is seen


class RigFeed:
    """The newest state the rig published, as a `so101.cameras.StateSource`."""

    def __init__(self, config: Config, *, subscriber: Subscriber | None = None) -> None:
        self._subscriber = subscriber or make_subscriber(config, "rig_state")
        self._state: SceneState | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="rig feed", daemon=True)
        self._thread.start()

    def __call__(self) -> SceneState | None:
        return self._state

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._subscriber.close()

    def __enter__(self) -> RigFeed:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _listen(self) -> None:
        while not self._ended.is_set():
            for message in self._subscriber.latest(_POLL_S).values():
                if type(message).__name__ == "RigState":
                    self._state = _scene_of(message)


def _scene_of(message) -> SceneState:
    now_wall, now = time.time(), time.monotonic()
    return SceneState(now - (now_wall - message.stamp_s), message.q_rad, message.objects, message.looks)
