"""Executing action chunks: which joint targets go out tick by tick, and how a new chunk takes over from the old one.

A chunk is (H, 6) rad; row k is the target k ticks after the observation it was made from. Where a new chunk begins, the
difference to where the old one would have gone fades as an exponential moving average: it weighs 1 - alpha at the first
new target, (1 - alpha)^2 at the second, and so on. Nothing jumps at the seam, and chunks that agree pass unchanged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Target(NamedTuple):
    """One joint target: (6,) rad, the number of its chunk, its row in it."""

    q: np.ndarray
    chunk: int
    row: int


class ChunkPlan:
    """The chunk in execution.

    Args:
        execute_steps: rows after which the next chunk is wanted.
        run_on: whether rows beyond `execute_steps` are executed while the next chunk is not there yet.
        ema_alpha: weight of the new chunk where it meets the old one; 1 = no smoothing.
        max_stale_s: no row is executed later than this after its chunk came.

    Attributes:
        executed: targets given out so far, over all chunks.
    """

    def __init__(self, execute_steps: int, *, run_on: bool, ema_alpha: float, max_stale_s: float) -> None:
        self._execute_steps = execute_steps
        self._run_on = run_on
        self._fade = 1.0 - ema_alpha
        self._max_stale_s = max_stale_s
        self.executed = 0
        self._count = 0
        self._last: np.ndarray | None = None  # the target sent last
        self.drop()

    def drop(self) -> None:
        """Forget the chunk in execution (a pause, an error); the next one fades in from the target sent last."""
        self._rows = np.zeros((0, 0))
        self._row = 0
        self._came_s = -np.inf
        self._offset: np.ndarray | float = 0.0
        self._held = True

    def start_from(self, q: np.ndarray) -> None:
        """No chunk, and `q` (6,) rad as the target sent last."""
        self.drop()
        self._last = np.asarray(q, float)

    @property
    def wants_next(self) -> bool:
        """Whether it is time to ask for a chunk."""
        return self._row >= min(self._execute_steps, len(self._rows))

    @property
    def empty(self) -> bool:
        """Whether there is no row left to execute."""
        return self._row >= (len(self._rows) if self._run_on else min(self._execute_steps, len(self._rows)))

    def push(self, rows: np.ndarray, *, elapsed: int, now_s: float) -> int:
        """Take over a new chunk; returns its number.

        Args:
            rows: (H, 6) rad.
            elapsed: rows of the old chunk executed since the observation was taken: the arm is that far along already.
            now_s: time of its arrival.
        """
        going_on = not self._held and self._row < len(self._rows)
        meets = self._aimed(self._row) if going_on else self._last
        self._rows, self._row, self._came_s = np.asarray(rows, float), min(elapsed, len(rows)), now_s
        fresh = self._row < len(rows)
        self._offset = self._fade * (meets - self._rows[self._row]) if fresh and meets is not None else 0.0
        self._held = False
        self._count += 1
        return self._count

    def next(self, now_s: float) -> Target | None:
        """The target of this tick, or None: hold the pose, for there is no row that is fresh."""
        if now_s - self._came_s > self._max_stale_s:
            self._row = len(self._rows)  # what is left of it will not be executed any more: the next is wanted
        if self.empty:
            self._held = True
            return None
        row, q = self._row, self._aimed(self._row)
        self._row += 1
        self.executed += 1
        self._offset = self._fade * self._offset
        self._held = False
        self._last = q
        return Target(q, self._count, row)

    def _aimed(self, row: int) -> np.ndarray:
        return self._rows[row] + self._offset
