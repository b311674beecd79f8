"""What a loop counts about itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class LoopStats:
    """Counters of one rollout, or of several added up.

    Attributes:
        ticks, skipped: places of the time grid served, and passed over because the loop was still busy.
        misses: ticks whose command came later than the deadline, or that had no fresh action, by what took the time.
        chunks, policy_errors: answers of the policy, good and bad.
        woke_ms, sent_ms: lateness of every tick: when the loop woke, when the command had been sent.
        inference_ms: from asking the policy to its answer.
    """

    ticks: int = 0
    skipped: int = 0
    misses: Counter[str] = field(default_factory=Counter)
    chunks: int = 0
    policy_errors: int = 0
    woke_ms: list[float] = field(default_factory=list)
    sent_ms: list[float] = field(default_factory=list)
    inference_ms: list[float] = field(default_factory=list)

    def add(self, other: LoopStats) -> None:
        """Count `other` in."""
        self.ticks += other.ticks
        self.skipped += other.skipped
        self.misses += other.misses
        self.chunks += other.chunks
        self.policy_errors += other.policy_errors
        self.woke_ms += other.woke_ms
        self.sent_ms += other.sent_ms
        self.inference_ms += other.inference_ms

    def summary(self) -> dict[str, Any]:
        """JSON-ready figures; lateness as p50, p99 and max in ms."""
        return {
            "ticks": self.ticks,
            "skipped": self.skipped,
            "misses": dict(sorted(self.misses.items())),
            "chunks": self.chunks,
            "policy_errors": self.policy_errors,
            **{name: percentiles(getattr(self, name)) for name in ("woke_ms", "sent_ms", "inference_ms")},
        }


def percentiles(values: list[float]) -> dict[str, float] | None:
    """p50, p99 and max; None of nothing."""
    if not values:
        return None
    p50, p99 = np.percentile(values, [50, 99])
    return {"p50": round(float(p50), 3), "p99": round(float(p99), 3), "max": round(max(values), 3)}
