"""Progress of a run: the runner appends one JSON line an event, the control plane reads what is new.

The file is the only record: whoever reads it from the start knows all there is to know, also after a restart.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

MESSAGES_KEPT = 20
_LINE_LIMIT = 8192  # characters of a text in an event


class ProgressFile:
    """A `so101.pipeline.progress.Reporter` that appends to a file. Progress is written at most every `interval_s`; what
    comes in between is added up."""

    def __init__(self, path: Path, interval_s: float, clock: Callable[[], float] = time.time) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._interval_s, self._clock = interval_s, clock
        self._pending, self._note, self._left, self._written_s = 0, "", 0, 0.0

    def begin(self, start: int) -> None:
        """A process begins to work on the run, for the `start`-th time."""
        self._write(event="begin", start=start)

    def start(self, stage: str, total: int, done: int = 0, unit: str = "demos") -> None:
        self._flush()
        self._left = total - done
        log.info("%s: %d %s, %d already there", stage, total, unit, done)
        self._write(event="stage", stage=stage, total=total, done=done, unit=unit)

    def advance(self, count: int = 1, note: str = "") -> None:
        self._pending += count
        self._left -= count
        self._note = note or self._note
        if self._left <= 0 or self._clock() - self._written_s >= self._interval_s:
            self._flush()

    def message(self, text: str) -> None:
        self._flush()
        log.info("%s", text)
        self._write(event="message", text=text[:_LINE_LIMIT])

    def close(self) -> None:
        self._flush()
        os.close(self._file)

    def _flush(self) -> None:
        if self._pending or self._note:
            self._write(event="advance", count=self._pending, note=self._note[:_LINE_LIMIT])
        self._pending, self._note = 0, ""

    def _write(self, **values: Any) -> None:
        self._written_s = self._clock()
        line = json.dumps({"at": round(self._written_s, 3), **values}) + "\n"
        os.write(self._file, line.encode(errors="replace"))  # one write a line: a kill cuts at most the last one


@dataclass
class StageProgress:
    """One stage: `done` of `total`; `fresh` of them in this start, since `began_s` (wall clock)."""

    name: str
    total: int
    done: int
    unit: str
    began_s: float
    at_s: float
    fresh: int = 0
    note: str = ""

    @property
    def rate_per_s(self) -> float | None:
        """Since the stage began; None before anything was made."""
        elapsed = self.at_s - self.began_s
        return self.fresh / elapsed if self.fresh > 0 and elapsed > 0 else None

    @property
    def eta_s(self) -> float | None:
        """Seconds left at this rate, counted from `at_s`."""
        rate = self.rate_per_s
        return (self.total - self.done) / rate if rate and self.total > self.done else None


@dataclass
class RunProgress:
    """What the events say so far."""

    start: int = 0
    began_s: float | None = None  # first start
    at_s: float | None = None  # last event
    current: str | None = None
    stages: dict[str, StageProgress] = field(default_factory=dict)
    messages: deque[str] = field(default_factory=lambda: deque(maxlen=MESSAGES_KEPT))

    def apply(self, event: dict[str, Any]) -> None:
        """Take one event. Unknown and malformed ones are passed over: a newer program may have written them."""
        try:
            kind, at = event["event"], finite(event["at"])
            if kind == "begin":
                self.start, self.current = int(finite(event["start"])), None
                self.began_s = at if self.began_s is None else self.began_s
            elif kind == "stage":
                self.current = str(event["stage"])
                done, total = int(finite(event["done"])), int(finite(event["total"]))
                self.stages[self.current] = StageProgress(self.current, total, done, plain(event["unit"]), at, at)
            elif kind == "advance" and self.current in self.stages:
                stage, count = self.stages[self.current], int(finite(event["count"]))
                stage.done, stage.fresh, stage.at_s = stage.done + count, stage.fresh + count, at
                stage.note = plain(event["note"]) or stage.note
            elif kind == "message":
                self.messages.append(plain(event["text"]))
            self.at_s = at
        except (KeyError, TypeError, ValueError, OverflowError):
            return


class ProgressReader:
    """Follows a progress file. `progress` is as of the last `read`."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self.progress = RunProgress()

    def read(self) -> bool:
        """Take what is new; whether there was anything. A file that became shorter is read anew."""
        try:
            with open(self._path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._offset:
                    self._offset, self.progress = 0, RunProgress()
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return False
        end = content.rfind(b"\n") + 1  # the rest is still being written
        for event in _events(content[:end]):
            self.progress.apply(event)
        self._offset += end
        return end > 0


def plain(value: object) -> str:
    """Text that UTF-8 can hold, whatever a damaged file says."""
    return str(value).encode(errors="replace").decode()


def finite(value: object) -> float:
    """A number that JSON can hold.

    Raises:
        TypeError, ValueError, OverflowError: it is none.
    """
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is no JSON")
    return number


def _events(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):  # cut off by a kill, then continued by the next process; or damaged
            continue
        if isinstance(event, dict):
            yield event
