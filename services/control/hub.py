"""The live state as topics with values, and what of it a browser has not seen yet.

A topic's value replaces the one before. So there is nothing to queue: a slow browser gets the newest value of each
topic that changed meanwhile, and memory does not depend on how many there are or how slowly they read.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any, NamedTuple

_REMOVALS_KEPT = 256  # a browser that missed more starts anew


class Change(NamedTuple):
    """The newest value of a topic, None when it is gone; `number` grows with each change."""

    number: int
    topic: str
    value: Any


class News(NamedTuple):
    """What a browser gets. `anew`: forget everything before."""

    changes: list[Change]
    anew: bool


class Hub:
    """Holds the live state; for any thread.

    Attributes:
        epoch: of this process. Event ids are ``epoch-number``: those of a former process are not taken for ours.
    """

    def __init__(self) -> None:
        self.epoch = f"{time.time_ns():x}"
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._topics: dict[str, Change] = {}
        self._removed: dict[str, Change] = {}
        self._floor = 0  # removals up to here are forgotten
        self._last = 0

    def put(self, topic: str, value: Any) -> None:
        """Set the value (JSON) of `topic`; nothing happens when it is the same."""
        with self._lock:
            known = self._topics.get(topic)
            if known is not None and known.value == value:
                return
            self._removed.pop(topic, None)
            self._topics.pop(topic, None)  # to the end: the table stays in the order of changes
            self._topics[topic] = self._change(topic, value)

    def remove(self, topic: str) -> None:
        """The topic is gone."""
        with self._lock:
            if self._topics.pop(topic, None) is None:
                return
            self._removed[topic] = self._change(topic, None)
            if len(self._removed) > _REMOVALS_KEPT:
                oldest = next(iter(self._removed))
                self._floor = self._removed.pop(oldest).number

    def value(self, topic: str) -> Any:
        """The newest value, None when there is none."""
        with self._lock:
            change = self._topics.get(topic)
        return change.value if change is not None else None

    def topics(self, prefix: str) -> list[str]:
        """Topics that begin with `prefix`."""
        with self._lock:
            return [topic for topic in self._topics if topic.startswith(prefix)]

    def news(self, seen: int) -> News:
        """What changed after number `seen`, oldest first; everything when that is unknown (0) or too long ago."""
        if seen == self._last:  # also without the lock: the common case
            return News([], False)
        with self._lock:
            if not self._floor <= seen <= self._last or seen == 0:
                return News(list(self._topics.values()), True)
            changes = [c for c in (*self._topics.values(), *self._removed.values()) if c.number > seen]
            return News(sorted(changes), False)

    def number_of(self, event_id: str | None) -> int:
        """The number in an event id of ours, 0 for all others."""
        epoch, _, number = (event_id or "").partition("-")
        return int(number) if epoch == self.epoch and number.isascii() and number.isdigit() and len(number) < 19 else 0

    def _change(self, topic: str, value: Any) -> Change:
        self._last = next(self._numbers)
        return Change(self._last, topic, value)
