"""The arm, through its driver."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from proto.messages.driver import STATE_TOPIC, DriverState
from services.control.errors import Conflict, NotRunning
from services.control.models import Service
from services.control.sources.common import absent, patience_s
from services.driver.client import RemoteRobot
from services.wire import make_client, make_subscriber
from so101.config import Config
from so101.robot.base import RobotError


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
            return absent(f"no driver at {where}; `./twin serve driver` starts it")
        if self._newest is None:
            return absent(f"the driver at {where} has not told its state yet")
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
    def _robot(self) -> Iterator[RemoteRobot]:
        client = make_client(self._config, "driver", timeout_s=patience_s(self._config))
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
