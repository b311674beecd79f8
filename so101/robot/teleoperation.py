"""The follower goes where the leader arm in somebody's hand is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from so101.robot.arm import FeetechArm, PartialRead
from so101.robot.base import CalibrationError, Robot, RobotError


class Mirrored(NamedTuple):
    """One tick: the leader's joints (6,) rad, what was sent (None in a dry run), whether the leader answered."""

    leader: np.ndarray
    sent: np.ndarray | None
    answered: bool


class Mirror:
    """Commands the follower to the leader's joints, eased in at the start.

    Args:
        leader: connected, without torque.
        follower: armed; None: a dry run.
        ease_s: time in which the follower comes to the leader.
        now_s: the start.

    Raises:
        CalibrationError: the leader's servos and its file disagree, so that its joints are not known.
        RobotError: the leader does not answer, or has torque.
    """

    def __init__(self, leader: FeetechArm, follower: Robot | None, ease_s: float, now_s: float) -> None:
        self._leader, self._follower = leader, follower
        self._ease_s, self._began_s = ease_s, now_s
        if follower is not None and leader.calibration_fault:
            raise CalibrationError(f"the leader cannot be followed: {leader.calibration_fault}")
        reading = leader.read()
        if reading.torque.any():
            raise RobotError(
                f"the leader at {leader.bus.port} has torque: is this the follower's port? It is not let go here, "
                "because it would fall. Hold it and switch its power off and on"
            )
        self._last = reading.q_rad
        self._start = self._last if follower is None else follower.read().q_rad
        self.unanswered = 0

    def step(self, now_s: float) -> Mirrored:
        """One tick. A leader that does not answer for a moment keeps the follower where it was last.

        Raises:
            BusError: the leader's port is gone.
            RobotError: as `Robot.command`.
        """
        answered = True
        try:
            self._last = self._leader.read().q_rad
        except PartialRead:
            self.unanswered += 1
            answered = False
        if self._follower is None:
            return Mirrored(self._last, None, answered)
        if not answered:
            return Mirrored(self._last, self._follower.read().goal_rad, False)  # silence, for the watchdog
        share = 1.0 if self._ease_s == 0 else np.clip((now_s - self._began_s) / self._ease_s, 0.0, 1.0)
        eased = (1 - np.cos(np.pi * share)) / 2
        return Mirrored(self._last, self._follower.command(self._start + eased * (self._last - self._start)), True)
