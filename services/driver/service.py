"""Requests of the driver's socket, carried out by an `ArmDriver`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from proto.errors import RemoteError
from proto.messages.base import Message
from proto.messages.driver import STATE_TOPIC, Arm, Command, Commanded, Disarm, DriverState, GetState, Hold, Stop
from proto.stopping import StopFlag
from services.wire import make_publisher, make_server
from so101.config import Config
from so101.robot.base import CommandRefused, NotArmed, RobotError, RobotState
from so101.robot.driver import ArmDriver
from so101.robot.sessions import Busy, Sessions

_CODES: dict[type[RobotError], str] = {NotArmed: "not_armed", CommandRefused: "refused", Busy: "busy"}
_LOOKS_ONLY = (
    "not armed: this driver was started without --arm; stop it, then ./twin serve driver --arm (or ./twin up --arm)"
)


class DriverService:
    """Who may command, and messages to and from the driver."""

    def __init__(self, config: Config, driver: ArmDriver, clock: Callable[[], float] = time.monotonic) -> None:
        self._driver = driver
        self._max_age_s = config.robot.safety.max_command_age_ms / 1000
        self._sessions = Sessions(config.robot.safety.session_s, clock)
        self.ending = False  # set: nobody arms any more
        handlers = {
            GetState: self._get_state,
            Arm: self._arm,
            Command: self._command,
            Hold: self._hold,
            Disarm: self._disarm,
            Stop: self._stop,
        }
        self.handlers: Mapping[type[Message], Callable[[Any], Message]] = {
            kind: _with_codes(handler) for kind, handler in handlers.items()
        }

    def state_message(self, state: RobotState) -> DriverState:
        """`state` and who commands, for the wire."""
        values = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
        values = {name: tuple(v.tolist()) if isinstance(v, np.ndarray) else v for name, v in values.items()}
        values["warnings"] = list(state.warnings)
        return DriverState(
            **values, may_arm=self._driver.may_arm, port=self._driver.port, commander=self._sessions.commander
        )

    def _get_state(self, request: GetState | None = None) -> DriverState:
        return self.state_message(self._driver.read())

    def _arm(self, request: Arm) -> DriverState:
        if self.ending:
            raise NotArmed("the driver is ending")
        if not self._driver.may_arm:
            raise NotArmed(_LOOKS_ONLY)
        self._sessions.take(request.session, request.name)
        self._driver.arm()
        return self._get_state()

    def _command(self, request: Command) -> Commanded:
        if not self._driver.may_arm:
            raise NotArmed(_LOOKS_ONLY)
        age_s = time.time() - request.stamp_s
        if not -self._max_age_s <= age_s <= self._max_age_s:  # nan is refused too
            raise CommandRefused(
                f"the command is {age_s * 1000:.0f} ms old, at most {self._max_age_s * 1000:.0f} are allowed "
                "(robot.safety.max_command_age_ms); do the clocks of both machines agree?"
            )
        self._sessions.heard(request.session)
        limited = self._driver.command_limited(np.array(request.q_rad))
        return Commanded(q_rad=tuple(limited.goal.tolist()), limited=list(limited.by))

    def _hold(self, request: Hold) -> DriverState:
        self._sessions.heard(request.session)
        self._driver.hold()
        return self._get_state()

    def _disarm(self, request: Disarm) -> DriverState:
        self._sessions.may_end(request.session)
        self._sessions.end()
        self._driver.disarm(wait=False)
        return self._get_state()

    def _stop(self, request: Stop) -> DriverState:
        self._sessions.end()
        self._driver.stop()
        return self._get_state()


def run(config: Config, driver: ArmDriver, stop: StopFlag) -> None:
    """Serve `driver`, not connected yet, until `stop` is set. It goes home and lets go of the arm then, whatever ended
    it; an emergency stop is heard until it is there.

    Raises:
        RobotError: the arm was not found, or did not get home (`TorqueLeftOn`).
        BindRefused, OSError: a socket cannot be opened.
    """
    service = DriverService(config, driver)
    with make_publisher(config, "driver_state") as publisher:
        driver.watch(lambda state: publisher.send(STATE_TOPIC, service.state_message(state)))
        server = make_server(config, "driver", service.handlers)
        try:
            driver.connect()
            server.start()
            stop.wait()
        finally:
            service.ending = True
            try:
                driver.close()
            finally:
                server.close()


def _with_codes(handler: Callable[[Any], Message]) -> Callable[[Any], Message]:
    def answer(request: Message) -> Message:
        try:
            return handler(request)
        except RobotError as error:
            code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), "failed")
            raise RemoteError(code, str(error)) from None

    return answer
