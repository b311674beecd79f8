"""A person has the arm: it follows the leader arm in their hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from so101.config import Config
from so101.control.pilot import Choice, EpisodeEnd, Look
from so101.control.stats import LoopStats
from so101.robot.base import RobotError


class LeaderPilot:
    """Comes to the leader within start_ease_s, wherever that moves meanwhile, then goes with it; recorded from there.

    Args:
        leader: (6,) rad, the leader's joints now. Raises RobotError when they cannot be read.
        started: called once the arm has come to the leader and recording begins.
    """

    def __init__(
        self, config: Config, leader: Callable[[], np.ndarray], started: Callable[[], None] = lambda: None
    ) -> None:
        settings = config.deploy.control
        self._leader, self._started = leader, started
        self._ease_ticks = max(1, round(settings.start_ease_s * settings.control_hz))
        self._max_failed_reads = settings.max_failed_reads

    def begin(self, last: np.ndarray, stats: LoopStats) -> None:
        self._from, self._eased, self._failed_reads = last, 0, 0
        self._last = last

    def choose(self, look: Look) -> Choice:
        try:
            leader = np.asarray(self._leader(), float)
            self._failed_reads = 0
        except RobotError as error:
            self._failed_reads += 1
            if self._failed_reads >= self._max_failed_reads:
                raise EpisodeEnd("aborted", f"the leader arm does not answer: {error}") from error
            return Choice(None, "leader", miss="leader", record=self._eased == self._ease_ticks)
        if self._eased < self._ease_ticks:
            self._eased += 1
            share = (1 - math.cos(math.pi * self._eased / self._ease_ticks)) / 2
            if self._eased == self._ease_ticks:
                self._started()
            self._last = self._from + share * (leader - self._from)
            return Choice(self._last, "start")
        self._last = leader
        return Choice(leader, "leader", record=True)

    def pause(self) -> None:
        """After a pause, or before one: come to the leader again."""
        self._from, self._eased = self._last, 0

    def end(self) -> dict[str, Any]:
        return {}
