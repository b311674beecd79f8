"""`ArmDriver`: an arm on this machine, watched on a thread of its own, with everything that keeps it safe."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable

import numpy as np

from so101.config import Config
from so101.robot.arm import FeetechArm
from so101.robot.base import BusError, RobotState, TorqueLeftOn
from so101.robot.calibration import ArmCalibration
from so101.robot.guard import ArmGuard
from so101.robot.safety import Limited

log = logging.getLogger(__name__)

_YIELD_S = 0.001  # others get the lock even when every look takes longer than its period
_POLL_S = 0.02


class ArmDriver:
    """A `so101.robot.base.Robot` on a servo bus.

    Commands are limited and sent at once, in the caller's thread; `step`, called at `robot.bus.rate_hz` by a thread
    that `connect` starts, looks at the arm and decides when it must hold or go home. One lock makes them take turns.

    Args:
        arm: the servos.
        may_arm: whether it may ever be energised.
        lowest_m: lowest point of the hand over joints, for the floor; None: no floor.
        clock: monotonic, s.
        threaded: False: `step` is called by the owner.
    """

    def __init__(
        self,
        config: Config,
        arm: FeetechArm,
        *,
        may_arm: bool,
        lowest_m: Callable[[np.ndarray], float] | None = None,
        clock: Callable[[], float] = time.monotonic,
        threaded: bool = True,
    ) -> None:
        self.joint_names = config.robot.joint_names
        self.may_arm = may_arm
        self._arm, self._clock, self._threaded = arm, clock, threaded
        self._guard = ArmGuard(config, arm, may_arm=may_arm, lowest_m=lowest_m, clock=clock)
        self._period_s = 1.0 / config.robot.bus.rate_hz
        self._give_up_s = config.robot.safety.arrival_timeout_s
        self._lock = threading.RLock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._watchers: list[Callable[[RobotState], None]] = []

    @property
    def port(self) -> str:
        """Where the servos are, links followed."""
        return os.path.realpath(self._arm.bus.port)

    @property
    def calibration(self) -> ArmCalibration:
        """Of the arm that was connected."""
        return self._arm.calibration

    def connect(self) -> None:
        with self._lock:
            try:
                self._guard.connect()
            except Exception:
                self._arm.close()
                raise
        if self._threaded:
            atexit.register(self.close)
            self._end.clear()
            self._thread = threading.Thread(target=self._run, name="arm", daemon=True)
            self._thread.start()

    def read(self) -> RobotState:
        state = self._guard.state
        if state is None:
            raise BusError("the arm is not connected; call connect first")
        return state

    def arm(self) -> None:
        with self._lock:
            self._guard.energise()

    def command(self, q_rad: np.ndarray) -> np.ndarray:
        return self.command_limited(q_rad).goal

    def command_limited(self, q_rad: np.ndarray) -> Limited:
        """As `command`, and by which limits it was changed."""
        with self._lock:
            return self._guard.command(q_rad)

    def hold(self) -> None:
        with self._lock:
            self._guard.hold()

    def stop(self) -> None:
        with self._lock:
            self._guard.stop()

    def disarm(self, wait: bool = True) -> None:
        with self._lock:
            self._guard.go_home("asked to")
        if wait:
            self._until_home()

    def close(self) -> None:
        """Return home and release what is armed, end the thread, close the port. What goes wrong on the way leaves the
        torque on, and raises `TorqueLeftOn`. An arm that may not be armed is left as it is."""
        atexit.unregister(self.close)
        try:
            if self._guard.state is not None and self.may_arm:
                self.disarm()
        finally:
            self._end.set()
            if self._thread is not None:
                self._thread.join()
            if self.may_arm and self._guard.has_torque:
                log.critical("the driver ends, TORQUE LEFT ON: %s", self._guard.reason)
            self._thread = self._guard.state = None
            self._arm.close()

    def __enter__(self) -> ArmDriver:
        self.connect()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def watch(self, watcher: Callable[[RobotState], None]) -> None:
        """`watcher(state)` is called after every step, in its thread; it must return soon."""
        self._watchers.append(watcher)

    def step(self) -> None:
        """Look at the arm once and act on it."""
        with self._lock:
            self._guard.step()
            state = self._guard.state
        for watcher in self._watchers:
            try:
                watcher(state)
            except Exception:  # whoever watches, the arm must go on being driven
                log.exception("a watcher of the arm failed")

    def _run(self) -> None:
        due_s = self._clock()
        while not self._end.is_set():
            self.step()
            due_s = max(due_s + self._period_s, self._clock() + _YIELD_S)  # late looks are not caught up
            self._end.wait(due_s - self._clock())

    def _until_home(self) -> None:
        """Wait for the way home to end, whoever steps. A bus that stays away is given up."""
        answered_s = self._clock()
        while self._guard.is_going_home and self._clock() - answered_s <= self._give_up_s:
            if self._guard.mode == "returning":
                answered_s = self._clock()
            if self._thread is None:
                self.step()
            else:
                self._thread.join(_POLL_S)
                if not self._thread.is_alive():
                    raise TorqueLeftOn("the arm's thread is gone; torque is as it was")
        if self._guard.has_torque:
            raise TorqueLeftOn(self._guard.reason)
