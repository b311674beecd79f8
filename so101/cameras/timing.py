"""When frames are due, and when a device's clock says they were taken."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pacer:
    """The ticks of a steady rate. Ticks that pass while nobody waits are skipped, never made up for."""

    def __init__(
        self,
        rate_hz: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate_hz, self._clock, self._sleep = rate_hz, clock, sleep
        self._start = clock()
        self._last = -1

    def wait(self) -> tuple[int, float]:
        """Sleep until the next tick; its number and its time, s."""
        late = self._clock() - self._start
        self._last = tick = max(self._last + 1, int(late * self._rate_hz))
        due = self._start + tick / self._rate_hz
        self._sleep(max(0.0, due - self._clock()))
        return tick, due


class DeviceClock:
    """Translates stamps of a device's clock, which starts anywhere and runs a little off, to ours.

    A frame arrives some time after its stamp; the frame that took the least time tells how far the clocks are apart.
    As they drift, an old least time is trusted less and less: it grows by `drift`, s a s.
    """

    def __init__(self, drift: float) -> None:
        self._drift = drift
        self._offset: float | None = None
        self._seen_s = 0.0

    def to_ours(self, device_s: float, arrival_s: float) -> float:
        """Our time of the stamp `device_s` of a frame that arrived at `arrival_s`; never later than that."""
        apart = arrival_s - device_s
        if self._offset is not None:
            apart = min(apart, self._offset + self._drift * (arrival_s - self._seen_s))
        self._offset, self._seen_s = apart, arrival_s
        return device_s + apart
