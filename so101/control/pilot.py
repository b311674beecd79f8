"""Who has the arm: what a pilot sees in a tick, what it may answer, and how it ends a rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from so101.cameras.base import Frame
from so101.control.pacing import Tick
from so101.control.stats import LoopStats
from so101.datasets.rollouts import Outcome
from so101.robot.base import RobotState


class EpisodeEnd(Exception):
    """The rollout is over. `can_move`: whether the arm may still be sent home by the loop."""

    def __init__(self, outcome: Outcome, reason: str, *, can_move: bool = True) -> None:
        super().__init__(reason)
        self.outcome, self.reason, self.can_move = outcome, reason, can_move


@dataclass(frozen=True)
class Look:
    """What a tick sees. `frames_age_s`: of the oldest frame; `patience_s`: how long from now an answer may be waited
    for without being late."""

    tick: Tick
    state: RobotState
    frames: Mapping[str, Frame]
    frames_age_s: float
    patience_s: float


@dataclass(frozen=True)
class Choice:
    """The target (6,) rad of this tick, None for the one before; where it is from; whether it is recorded.

    Attributes:
        chunk, row: of a policy's chunk; -1 for none.
        miss: reason why there is no fresh target though there should be one.
    """

    target: np.ndarray | None
    phase: str
    chunk: int = -1
    row: int = -1
    miss: str = ""
    record: bool = False


class Pilot(Protocol):
    """Chooses targets. Called from the loop's thread, once a tick; must not take its time."""

    def begin(self, last: np.ndarray, stats: LoopStats) -> None:
        """A rollout begins. `last` (6,) rad: the target sent last; `stats`: to count in."""

    def choose(self, look: Look) -> Choice:
        """The target of this tick.

        Raises:
            EpisodeEnd: it has finished, or cannot go on.
        """

    def pause(self) -> None:
        """Somebody made the arm hold; `choose` will be called again some time later."""

    def end(self) -> dict[str, Any]:
        """The rollout is over; facts about it."""
