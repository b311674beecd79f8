"""Reporters of the command line: a bar with rate and remaining time on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from so101.pipeline.progress import Reporter

PLAIN_INTERVAL_S = 10.0  # between two lines of a stage in a log


def format_rate(per_second: float, unit: str) -> str:
    """A rate in the unit of time that gives a readable number."""
    if per_second >= 10:
        return f"{per_second:.0f} {unit}/s"
    if per_second >= 1:
        return f"{per_second:.1f} {unit}/s"
    return f"{per_second * 60:.1f} {unit}/min"


def format_duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


@contextmanager
def make_reporter(console: Console) -> Iterator[Reporter]:
    """The reporter that suits `console`; its display ends with the block."""
    if not console.is_terminal:
        yield PlainReporter(lambda line: console.print(line, soft_wrap=True, markup=False, highlight=False))
        return
    progress = Progress(
        TextColumn("{task.description:<9}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        _RateColumn(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("[dim]{task.fields[note]}"),
        console=console,
        expand=True,
    )
    with progress:
        yield RichReporter(progress)


class _RateColumn(ProgressColumn):
    """Demos a second (or minute) since the stage began, without those that were on disk before."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(format_rate(speed, task.fields["unit"]) if speed else "", style="progress.data.speed")


class RichReporter:
    """One bar a stage; a stage that starts again goes on with its bar."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bars: dict[str, int] = {}
        self._current: int | None = None

    def start(self, stage: str, total: int, done: int = 0, unit: str = "demos") -> None:
        if stage in self._bars:
            self._progress.remove_task(self._bars[stage])
        self._current = self._progress.add_task(stage, total=total, completed=done, unit=unit, note="")
        self._bars[stage] = self._current

    def advance(self, count: int = 1, note: str = "") -> None:
        if self._current is None:
            return
        fields = {"note": note} if note else {}
        self._progress.update(self._current, advance=count, **fields)

    def message(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)


class PlainReporter:
    """Lines for logs: one at the start of a stage, one at most every PLAIN_INTERVAL_S, one at its end."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._stage, self._unit, self._total, self._done, self._fresh = "", "", 0, 0, 0
        self._began = self._last = 0.0

    def start(self, stage: str, total: int, done: int = 0, unit: str = "demos") -> None:
        self._stage, self._unit, self._total, self._done, self._fresh = stage, unit, total, done, 0
        self._began = self._last = self._clock()
        there = f", {done} already there" if done else ""
        self._write(f"{stage}: {total} {unit}{there}")

    def advance(self, count: int = 1, note: str = "") -> None:
        self._done += count
        self._fresh += count
        now = self._clock()
        finished = self._done >= self._total
        if not finished and now - self._last < PLAIN_INTERVAL_S:
            return
        self._last = now
        elapsed = now - self._began
        line = f"{self._stage}: {self._done}/{self._total} {self._unit}"
        if elapsed > 0:
            rate = self._fresh / elapsed
            line += f", {format_rate(rate, self._unit)}"
            line += f" in {format_duration(elapsed)}" if finished else ""
            line += f", {format_duration((self._total - self._done) / rate)} left" if rate and not finished else ""
        self._write(f"{line}, {note}" if note else line)

    def message(self, text: str) -> None:
        self._write(text)
