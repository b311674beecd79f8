"""Ctrl-C, `kill` and a closed terminal as one exception that no `except Exception` swallows."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """The user or the system asked the command to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number  # the shells' convention


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, a stop signal raises `Stopped` in the main thread; after the first one further ones are ignored, so that
    the way out is not interrupted. Compiled code that the signal meets may turn `Stopped` into an error of its own (an
    ImportError, while a library loads): whatever then leaves the block, `Stopped` does."""
    received: list[Stopped] = []

    def stop(number: int, frame: object) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        received.append(Stopped(number))
        raise received[0]

    previous = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    except Exception as error:
        if received:
            raise received[0] from error
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
