"""What the (virtual) rig tells of itself, for twin cameras."""

from __future__ import annotations

import functools
import json
import threading
import time
from typing import Any

import numpy as np

from proto.messages.rig import STATE_TOPIC, RigState
from proto.sockets import Subscriber
from services.wire import make_subscriber
from so101.cameras import SceneState
from so101.config import Config

_POLL_S = 0.2  # how soon `close` is seen


class RigFeed:
    """The newest state the rig published, as a `so101.cameras.StateSource`.

    Attributes:
        rejected: states that cannot be shown.
    """

    def __init__(self, config: Config, *, subscriber: Subscriber | None = None) -> None:
        self._subscriber = subscriber or make_subscriber(config, "rig_state", (STATE_TOPIC,))
        self.rejected = 0
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
                try:
                    self._state = _scene_of(message)
                except (AttributeError, ValueError, RecursionError):
                    self.rejected += 1


def _scene_of(message: RigState) -> SceneState:
    ago_s = time.time() - message.stamp_s
    return SceneState(
        stamp_s=time.monotonic() - ago_s,
        q=np.array(message.q_rad),
        objects={name: np.array(pose) for name, pose in message.objects.items()},
        looks=_parsed(message.looks_json),
        randomisation=_parsed(message.randomisation_json),
    )


@functools.lru_cache(maxsize=4)  # a rig tells the same in every state
def _parsed(text: str) -> dict[str, Any]:
    drawn = json.loads(text)
    if not isinstance(drawn, dict):
        raise ValueError("not a mapping")
    return drawn
