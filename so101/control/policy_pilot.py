"""A policy has the arm: it is asked for chunks, which are executed row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from so101.config import Config
from so101.control.asking import Answer, Asker
from so101.control.boundary import PolicyBoundary
from so101.control.chunks import ChunkPlan
from so101.control.pacing import Clock, MonotonicClock
from so101.control.pilot import Choice, EpisodeEnd, Look
from so101.control.stats import LoopStats
from so101.errors import So101Error


class PolicyPilot:
    """Asks when a chunk has run its execute_steps. With deploy.control.overlap the old chunk goes on meanwhile, and the
    new one is aligned by the rows executed since its observation; otherwise the arm holds.

    Args:
        language: the task in words.
        say: takes one line for the person at the terminal.
    """

    def __init__(
        self,
        config: Config,
        boundary: PolicyBoundary,
        asker: Asker,
        language: str,
        *,
        clock: Clock | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._settings = config.deploy.control
        self._boundary, self._asker, self._language = boundary, asker, language
        self._clock, self._say = clock or MonotonicClock(), say

    def begin(self, last: np.ndarray, stats: LoopStats) -> None:
        settings = self._settings
        self._stats, self._info = stats, {}
        self._plan = ChunkPlan(
            settings.execute_steps,
            run_on=settings.overlap,
            ema_alpha=settings.ema_alpha,
            max_stale_s=settings.max_stale_ms / 1000,
        )
        self._plan.start_from(last)
        self._done, self._errors_in_row, self._asked_at = False, 0, 0
        self._settle_ticks = round(settings.settle_s * settings.control_hz)

    def choose(self, look: Look) -> Choice:
        if self._done and self._plan.wants_next:
            return self._settle()
        self._take(self._asker.answer())
        blind = look.frames_age_s > self._settings.max_frame_age_ms / 1000
        if self._plan.wants_next and not (self._asker.waiting or self._done or blind):
            self._asked_at = self._plan.executed
            self._asker.ask(self._boundary.observation(look.state.q_rad, look.frames, self._language))
        if self._plan.empty and self._asker.waiting:  # there is nothing to send but the answer: wait for it a little
            self._take(self._asker.answer(look.patience_s))
        target = self._plan.next(self._clock.now())
        if target is None:
            begun = self._plan.executed > 0
            why = "camera" if blind else "inference"
            return Choice(None, "policy", miss=why if begun and not self._done else "", record=begun)
        return Choice(target.q, "policy", target.chunk, target.row, record=True)

    def pause(self) -> None:
        self._plan.drop()
        self._asker.forget()

    def end(self) -> dict[str, Any]:
        self._asker.forget()
        return self._info

    def _settle(self) -> Choice:
        """The policy has nothing more: hold its last pose, so that things come to rest before they are judged."""
        if self._settle_ticks == 0:
            raise EpisodeEnd("unknown", "the policy is done")
        self._settle_ticks -= 1
        return Choice(None, "settle", record=True)

    def _take(self, answer: Answer | None) -> None:
        if answer is None:
            return
        self._stats.inference_ms.append(answer.took_s * 1000)
        try:
            if answer.error is not None:
                raise answer.error
            rows = self._boundary.joint_targets(answer.action)
        except Exception as error:  # of the policy, of the wire, or a chunk that is none
            self._failed(error)
            return
        self._errors_in_row = 0
        self._stats.chunks += 1
        self._info = answer.info
        self._plan.push(rows, elapsed=self._plan.executed - self._asked_at, now_s=self._clock.now())
        self._done = bool(answer.info.get("done"))

    def _failed(self, error: Exception) -> None:
        """Hold; ask again while retries are left, otherwise end."""
        self._stats.policy_errors += 1
        self._errors_in_row += 1
        self._plan.drop()
        what = f"the policy failed: {error if isinstance(error, So101Error) else _named(error)}"
        if self._errors_in_row > self._settings.policy_retries:
            raise EpisodeEnd("aborted", what) from error
        self._say(f"{what}; the arm holds, asking again ({self._errors_in_row})")


def _named(error: Exception) -> str:
    return str(error) or type(error).__name__
