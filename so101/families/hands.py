"""Hands that drive a recording: a leader arm, keys and sliders, or a driver in a person's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from so101.families.drivers import Driver
from so101.families.vector_env import FamilyVectorEnv

JOG_KEYS = ("qa", "ws", "ed", "rf", "tg", "yh")  # up and down, one pair a joint
JOG_RAD = 0.05


class Source(Protocol):
    """The person's hand."""

    def begin(self, q: np.ndarray, obs: np.ndarray) -> None:
        """An episode begins with the arm at q (6,) rad, which sees obs (1, D); or the person takes over there."""

    def read(self, obs: np.ndarray) -> np.ndarray:
        """(6,) rad where the person wants the joints. Raises RobotError when that cannot be read now."""

    def press(self, key: str) -> None:
        """A key that the recorder does not know."""

    def drive(self, q: np.ndarray) -> None:
        """A slider."""


class Leader:
    """A leader arm, read only.

    Args:
        read: gives its joints (6,) rad; raises RobotError.
    """

    def __init__(self, read: Callable[[], np.ndarray]) -> None:
        self._read = read

    def begin(self, q: np.ndarray, obs: np.ndarray) -> None:
        pass

    def read(self, obs: np.ndarray) -> np.ndarray:
        return np.asarray(self._read(), float)

    def press(self, key: str) -> None:
        pass

    def drive(self, q: np.ndarray) -> None:
        pass


class Jog:
    """No arm: keys (JOG_KEYS) and sliders move the joints.

    Args:
        lower, upper: (6,) rad.
    """

    def __init__(self, lower: np.ndarray, upper: np.ndarray) -> None:
        self._lower, self._upper = lower, upper
        self._q = np.zeros(6)

    def begin(self, q: np.ndarray, obs: np.ndarray) -> None:
        self._q = np.array(q, float)

    def read(self, obs: np.ndarray) -> np.ndarray:
        return self._q

    def press(self, key: str) -> None:
        for joint, pair in enumerate(JOG_KEYS):
            if key in pair:
                self._q[joint] += JOG_RAD if key == pair[0] else -JOG_RAD
        self._q = np.clip(self._q, self._lower, self._upper)

    def drive(self, q: np.ndarray) -> None:
        self._q = np.clip(np.asarray(q, float), self._lower, self._upper)


class StandIn:
    """No person: a driver, such as the scripted expert, gives the joints."""

    def __init__(self, env: FamilyVectorEnv, driver: Driver) -> None:
        self._env, self._driver = env, driver

    def begin(self, q: np.ndarray, obs: np.ndarray) -> None:
        self._driver.begin(obs)

    def read(self, obs: np.ndarray) -> np.ndarray:
        return self._env.action_to_ctrl(self._driver.act(obs))

    def press(self, key: str) -> None:
        pass

    def drive(self, q: np.ndarray) -> None:
        pass
