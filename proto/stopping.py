"""Ending a process in order: SIGTERM and Ctrl-C set a flag that loops look at."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class StopFlag(threading.Event):
    """Set when the process shall end. `signal_number` says which signal asked for it, None when a program did."""

    signal_number: int | None = None

    @property
    def exit_code(self) -> int:
        """128 + signal number, as shells count; 0 when no signal came."""
        return 0 if self.signal_number is None else 128 + self.signal_number


@contextmanager
def stop_on_signals(signals: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT)) -> Iterator[StopFlag]:
    """A flag that the signals set; their former handlers come back at the end. In the main thread only."""
    flag = StopFlag()

    def stop(number: int, frame: object) -> None:
        flag.signal_number = number
        flag.set()

    former = {number: signal.signal(number, stop) for number in signals}
    try:
        yield flag
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
