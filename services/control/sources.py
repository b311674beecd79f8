"""What other services say, kept up to date. A service that is not there is an ordinary state, told as such."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from proto.errors import ProtoError, RemoteError
from proto.messages.camera import STATUS_TOPIC, CameraStatus
from proto.messages.driver import STATE_TOPIC, DriverState
from proto.messages.work import WorkStatus
from services.camera.client import RemoteCameras
from services.control.errors import Conflict, NotFound, NotRunning
from services.control.models import Service
from services.driver.client import RemoteRobot
from services.policy.client import PolicyClient
from services.policy.options import read_token as read_api_token
from services.wire import make_client, make_subscriber
from services.work.broker import Broker
from so101.cameras import Frame
from so101.config import Config
from so101.robot.base import RobotError

log = logging.getLogger(__name__)

_STATS_LIMIT = 20_000  # characters of a policy server's counters


class Poller:
    """Calls `look` every `period_s` on a thread of its own until closed; an exception is logged once in a row."""

    def __init__(self, name: str, look: Callable[[], None], period_s: float) -> None:
        self._name, self._look, self._period_s = name, look, period_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        said = ""
        while not self._ended.is_set():
            try:
                self._look()
                said = ""
            except Exception as error:  # one bad look must not end all further ones
                if repr(error) != said:
                    log.exception("%s: %s", self._name, error)
                said = repr(error)
            self._ended.wait(self._period_s)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


class ArmSource:
    """The driver: its state as it publishes it, and the two wishes a page may have. `look` is for one thread."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._subscriber = make_subscriber(config, "driver_state", (STATE_TOPIC,))
        self._newest: DriverState | None = None

    def look(self) -> Service:
        """The newest state."""
        arrived = self._subscriber.latest(0)
        self._newest = arrived.get(STATE_TOPIC, self._newest)
        where = self._subscriber.endpoint
        if self._subscriber.age_s > self._config.deploy.control_plane.events.stale_s:
            return _absent(f"no driver at {where}; `./twin serve driver` starts it")
        if self._newest is None:
            return _absent(f"the driver at {where} has not told its state yet")
        return Service(running=True, problem="", values=_arm_values(self._config, self._newest))

    def stop(self) -> str:
        """Emergency stop: the arm stays where it is, until somebody arms it anew or sends it home.

        Raises:
            NotRunning: no driver answered; the arm was not told.
        """
        with self._robot() as robot:
            robot.stop()
            return f"the arm was told to stay where it is ({robot.driver_state.mode})"

    def home(self) -> str:
        """Back to the home pose, then torque off; goes on after this returns.

        Raises:
            Conflict: somebody commands the arm.
            NotRunning.
        """
        with self._robot() as robot:
            robot.disarm(wait=False)
            return f"the arm was told to go home ({robot.driver_state.mode})"

    def close(self) -> None:
        self._subscriber.close()

    @contextlib.contextmanager
    def _robot(self):
        client = make_client(self._config, "driver", timeout_s=_patience_s(self._config))
        robot = RemoteRobot(self._config, name="control page", client=client)
        try:
            yield robot
        except RobotError as error:
            answered = str(error).startswith("driver: ")
            raise (Conflict if answered else NotRunning)(str(error)) from None
        finally:
            robot.close()


def _arm_values(config: Config, state: DriverState) -> dict[str, Any]:
    """Rounded to what can be read: so the values stay equal, and silent, while the arm rests."""
    joints = [
        {
            "name": name,
            "q_rad": round(state.q_rad[i], 3),
            "load_pct": round(state.load_pct[i]),
            "temperature_c": round(state.temperature_c[i]),
            "voltage_v": round(state.voltage_v[i], 1),
            "error_bits": state.error_bits[i],
        }
        for i, name in enumerate(config.robot.joint_names)
    ]
    plain = ("mode", "reason", "armed", "may_arm", "commander")
    return {**{name: getattr(state, name) for name in plain}, "warnings": list(state.warnings), "joints": joints}


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


def _jpeg(image, quality_pct: int) -> bytes:
    """(H, W, 3) uint8 RGB as JPEG."""
    try:
        import cv2
    except ImportError:
        raise NotRunning("pictures need OpenCV: pip install -e .[control]") from None
    return cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality_pct])[1].tobytes()


class WorkSource:
    """The broker, in this process or elsewhere: its workers and what they work on.

    Attributes:
        endpoint: where runs of this machine find it.
    """

    def __init__(self, config: Config, *, embed: bool) -> None:
        self.embedded = embed
        self._broker = Broker(config).start() if embed else None
        self._client = None if embed else make_client(config, "work", timeout_s=_patience_s(config))
        bound = self._broker.endpoint if embed else config.deploy.sockets.work.connect
        self.endpoint = bound.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")

    def look(self) -> Service:
        """Workers and batches; for one thread."""
        try:
            report = self._broker.status() if self._broker else self._client.request(WorkStatus())
        except (ProtoError, OSError) as error:
            return _absent(f"no broker at {self.endpoint} ({error}); `./twin serve broker` starts one")
        values = msgspec.to_builtins(report)
        for worker in values["workers"]:
            for clock in ("rate_per_min", "joined_s", "silent_s"):  # else every look would be news
                worker[clock] = round(worker[clock])
        return Service(running=True, problem="", values=values)

    def has_workers(self) -> bool:
        """Whether a worker is connected to the broker of this process."""
        return self._broker is not None and bool(self._broker.status().workers)

    def close(self) -> None:
        (self._broker or self._client).close()


class PolicySource:
    """The policy server: what it has counted."""

    def __init__(self, client: PolicyClient) -> None:
        self._client = client

    def look(self) -> Service:
        """Its counters."""
        try:
            stats = self._client.stats()
        except RemoteError as error:  # a GR00T server of others is well and counts nothing
            return Service(running=True, problem="", values={"note": f"{self._client.endpoint}: {error}"[:500]})
        except (ProtoError, OSError):
            return _absent(f"no policy server at {self._client.endpoint}; `./policy` starts it")
        return Service(running=True, problem="", values=_plain(stats))

    def close(self) -> None:
        self._client.close()


def policy_source(config: Config) -> PolicySource:
    """That of deploy.client, with the patience of a page."""
    client = config.deploy.client
    return PolicySource(
        PolicyClient(
            client.host,
            client.port,
            timeout_ms=round(_patience_s(config) * 1000),
            api_token=read_api_token(client.api_token_file),
            wire=client.wire,
        )
    )


def _plain(stats: dict[str, Any]) -> dict[str, Any]:
    """Counters as JSON, rounded. A stranger may send anything under this name."""
    text = json.dumps(stats, default=str)[:_STATS_LIMIT]
    try:
        return json.loads(text, parse_float=lambda number: round(float(number), 1), parse_constant=str)
    except ValueError:
        return {"note": "more counters than fit here"}


def _patience_s(config: Config) -> float:
    return config.deploy.control_plane.request_timeout_s


def _absent(problem: str) -> Service:
    return Service(running=False, problem=problem)
