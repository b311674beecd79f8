"""`RemoteCameras`: the cameras behind the camera service, with the interface of those on this machine."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from proto.messages.camera import STATUS_TOPIC, CameraFrame, CameraStatus
from proto.sockets import Subscriber
from services.wire import make_subscriber
from so101.cameras import CameraError, CameraState, Frame
from so101.cameras.board import FrameBoard
from so101.config import Config

_POLL_S = 0.2  # how soon `close` is seen


class RemoteCameras:
    """Listens on a thread of its own, so that what `latest` gives is new however seldom it is asked.

    Args:
        cameras: names; all of cameras.yaml when none is given.
        subscriber: socket to use instead of that of deploy.yaml.

    Attributes:
        rejected: frames of cameras or sizes that cameras.yaml does not have.
        lost: camera -> frames that the device or the network lost on the way here.
    """

    def __init__(self, config: Config, cameras: Sequence[str] = (), *, subscriber: Subscriber | None = None) -> None:
        self.names = tuple(cameras) or config.cameras.names
        self.rejected = 0
        self.lost: Counter[str] = Counter()
        self._shape = (config.cameras.height_px, config.cameras.width_px, 3)
        self._settings, self._timeout_s = config.cameras.capture, config.deploy.messages.timeout_s
        topics = [topic for name in self.names for topic in (name, STATUS_TOPIC + name)]
        self._subscriber = subscriber or make_subscriber(
            config, "cameras", topics, high_water=config.cameras.capture.high_water
        )
        self._board, self._last = FrameBoard(), dict[str, int]()
        self._states: dict[str, CameraState] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="remote cameras", daemon=True)
        self._thread.start()

    @property
    def malformed(self) -> int:
        """Messages that were none of ours."""
        return self._subscriber.malformed

    @property
    def skipped(self) -> Counter[str]:
        """Camera -> frames that were replaced before `take` came for them."""
        return self._board.skipped

    def take(self, timeout_s: float) -> list[Frame]:
        """Frames that were not taken before, the newest of each camera; waits for one, none when none comes."""
        return self._board.take(timeout_s)

    def latest(self, timeout_s: float | None = None) -> dict[str, Frame]:
        """The newest frame of each camera, none older than cameras.capture.max_age_s. Images are read-only.

        Args:
            timeout_s: wait for them; deploy.messages.timeout_s when None.

        Raises:
            CameraError: a camera had none within `timeout_s`; says how each of those is doing.
        """
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        frames = self._board.wait_for(self.names, self._settings.max_age_s, timeout_s)
        missing = [name for name in self.names if name not in frames]
        if missing:
            silent = self._subscriber.age_s > self._timeout_s
            raise CameraError(
                f"no frame younger than {self._settings.max_age_s:g} s within {timeout_s:g} s from "
                f"{'; '.join(self._told(name) for name in missing)}. The camera service at {self._subscriber.endpoint} "
                f"{'is silent: `./twin serve camera` starts it' if silent else 'is running'}"
            )
        return frames

    def states(self) -> list[CameraState]:
        """How each camera is doing, as the service last told; those it does not tell of are left out."""
        return [self._states[name] for name in self.names if name in self._states]

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._subscriber.close()

    def __enter__(self) -> RemoteCameras:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _listen(self) -> None:
        while not self._ended.is_set():
            arrived = self._subscriber.receive(_POLL_S)
            if arrived is None:
                continue
            topic, message = arrived
            if isinstance(message, CameraFrame):
                self._take_frame(message)
            elif isinstance(message, CameraStatus) and message.camera in self.names:
                self._states[message.camera] = state_of_message(message)

    def _take_frame(self, message: CameraFrame) -> None:
        if message.camera not in self.names or message.image.shape != self._shape:
            self.rejected += 1
            return
        last = self._last.get(message.camera, message.index)
        self.lost[message.camera] += max(0, message.index - last - 1)
        self._last[message.camera] = message.index
        self._board.put(Frame(message.image, message.stamp_s, message.wall_s, message.index, message.camera))

    def _told(self, name: str) -> str:
        state = self._states.get(name)
        if state is not None:
            return f"{name}: {state.state}{f' ({state.error})' if state.error else ''}"
        frame = self._board.newest(name)
        return f"{name}: {'nothing came' if frame is None else f'the last is {frame.age_s:.1f} s old'}"


def message_of_state(state: CameraState) -> CameraStatus:
    return CameraStatus(**{**state._asdict(), "mode": state.mode[:128], "error": state.error[:4000]})


def state_of_message(message: CameraStatus) -> CameraState:
    return CameraState(**{name: getattr(message, name) for name in CameraState._fields})
