"""`RemoteRobot`: the arm behind the driver service, with the interface of the arm on this machine."""

from __future__ import annotations

import dataclasses
import logging
import secrets
import threading
import time

import numpy as np

from proto.errors import ProtoError, RemoteError
from proto.messages.base import Message
from proto.messages.driver import Arm, Command, Disarm, DriverState, GetState, Hold, Stop
from proto.sockets import Client
from services.wire import make_client
from so101.config import Config
from so101.robot.base import CommandRefused, NotArmed, RobotError, RobotState, TorqueLeftOn
from so101.robot.sessions import Busy

log = logging.getLogger(__name__)

ERRORS: dict[str, type[RobotError]] = {"not_armed": NotArmed, "refused": CommandRefused, "busy": Busy}
_POLL_S = 0.1


class RemoteRobot:
    """A `so101.robot.base.Robot` over the driver's socket. One session: from `arm` to `disarm`, as long as it is not
    silent for longer than the driver allows.

    Args:
        name: who we are, shown to others who want to command.
        client: socket to use instead of that of deploy.yaml.
    """

    def __init__(self, config: Config, *, name: str, client: Client | None = None) -> None:
        self.joint_names = config.robot.joint_names
        self._name = name
        self._client = client if client is not None else make_client(config, "driver")
        self._session = secrets.token_hex(16)
        self._lock = threading.Lock()
        self._armed = False

    def connect(self) -> None:
        """Check that the driver is there.

        Raises:
            RobotError: it does not answer.
        """
        self.read()

    def read(self) -> RobotState:
        return state_of_message(self._request(GetState()))

    @property
    def driver_state(self) -> DriverState:
        """As the driver tells it: also who commands and whether it may arm."""
        return self._request(GetState())

    def arm(self) -> None:
        self._request(Arm(session=self._session, name=self._name))
        self._armed = True

    def command(self, q_rad: np.ndarray) -> np.ndarray:
        joints = np.asarray(q_rad, float).reshape(-1)
        if joints.shape != (len(self.joint_names),):
            raise CommandRefused(f"a command needs {len(self.joint_names)} joints, got {joints.size}")
        command = Command(session=self._session, q_rad=tuple(joints.tolist()), stamp_s=time.time())
        return np.array(self._request(command).q_rad)

    def hold(self) -> None:
        self._request(Hold(session=self._session))

    def stop(self) -> None:
        self._request(Stop())
        self._armed = False

    def disarm(self, wait: bool = True) -> None:
        state = self._request(Disarm(session=self._session if self._armed else ""))
        self._armed = False
        while wait and state.mode in ("returning", "holding", "lost"):
            time.sleep(_POLL_S)
            state = self._request(GetState())
        if wait and state.mode != "released":
            raise TorqueLeftOn(f"driver: {state.reason}")

    def close(self) -> None:
        """Disarm what this session armed, and close the socket. An arm that somebody stopped stays where it is."""
        try:
            if self._armed:
                self.disarm()
        except Busy as error:  # not ours any more
            log.info("the arm is left as it is: %s", error)
        finally:
            self._client.close()

    def __enter__(self) -> RemoteRobot:
        self.connect()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _request(self, message: Message) -> Message:
        try:
            with self._lock:
                return self._client.request(message)
        except RemoteError as error:
            raise ERRORS.get(error.code, RobotError)(f"driver: {error.text}") from None
        except ProtoError as error:
            raise RobotError(
                f"the driver service did not answer ({error}); is it running? ./twin serve driver starts it"
            ) from None


def state_of_message(message: DriverState) -> RobotState:
    """The state a `DriverState` carries."""
    values = {field.name: getattr(message, field.name) for field in dataclasses.fields(RobotState)}
    arrays = {name: np.array(value) for name, value in values.items() if isinstance(value, tuple)}
    return RobotState(**{**values, **arrays, "warnings": tuple(message.warnings)})
