"""How a stage tells its progress, and what it returns. The library never prints; the CLI gives a rich reporter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


class Reporter(Protocol):
    """Receives progress. `start` may be called again with a new total."""

    def start(self, stage: str, total: int, done: int = 0, unit: str = "demos") -> None:
        """A stage begins; `done` of `total` were already on disk."""

    def advance(self, count: int = 1, note: str = "") -> None:
        """`count` more are on disk; `note` replaces the short text beside the bar."""

    def message(self, text: str) -> None:
        """One line worth keeping on screen."""


class SilentReporter:
    """A reporter for tests, workers and notebooks."""

    def start(self, stage: str, total: int, done: int = 0, unit: str = "demos") -> None:
        pass

    def advance(self, count: int = 1, note: str = "") -> None:
        pass

    def message(self, text: str) -> None:
        pass


@dataclass(frozen=True)
class StageResult:
    """What a stage did. `summary` is JSON and goes to the report; `produced` counts usable outputs on disk."""

    stage: str
    produced: int
    summary: dict[str, Any] = field(default_factory=dict)
