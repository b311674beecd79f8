"""An absolute time grid: tick k is due at start + k / rate, so that lateness of one tick never shifts the next."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Time in s that never jumps back."""

    def now(self) -> float:
        """s since some fixed moment."""

    def sleep_until(self, time_s: float) -> None:
        """Return at `time_s` or soon after; at once when it has passed."""


class MonotonicClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.monotonic()

    def sleep_until(self, time_s: float) -> None:
        wait_s = time_s - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)


@dataclass(frozen=True)
class Tick:
    """One place of the grid: its number, when it was due, when the caller was woken, and how many places before it were
    passed over because the caller was still busy."""

    index: int
    due_s: float
    woke_s: float
    skipped: int


class Grid:
    """Hands out ticks at `rate_hz`; the first one is due at once. A caller that is late by whole periods skips them."""

    def __init__(self, rate_hz: float, clock: Clock) -> None:
        self.period_s = 1.0 / rate_hz
        self._clock = clock
        self._start_s = clock.now()
        self._next = 0

    def wait(self) -> Tick:
        """Sleep until the next tick that is not yet over."""
        passed = math.floor((self._clock.now() - self._start_s) / self.period_s + 1e-9)
        skipped = max(0, passed - self._next)
        index = self._next + skipped
        due_s = self._start_s + index * self.period_s
        self._clock.sleep_until(due_s)
        self._next = index + 1
        return Tick(index, due_s, self._clock.now(), skipped)
