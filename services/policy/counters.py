"""What a policy server counts; the endpoint `stats` and the control page show it."""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import Any

import numpy as np

_KEPT = 512  # newest durations that the percentiles are of


class Counters:
    """Written by both threads of a server; each single step is atomic."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.requests: Counter[str] = Counter()  # by endpoint; "malformed" for what is none
        self.generations: Counter[str] = Counter()  # clients by the generation they speak
        self.errors = 0  # replies that were errors, for whatever reason
        self.unauthorized = 0  # requests without the right token
        self.expired = 0  # waited longer than the deadline
        self.superseded = 0  # the client asked anew
        self.refused = 0  # queue full
        self.dropped = 0  # replies to clients that are gone or do not read
        self.queue_ms: deque[float] = deque(maxlen=_KEPT)
        self.infer_ms: deque[float] = deque(maxlen=_KEPT)

    def report(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "uptime_s": time.monotonic() - self._started,
            "requests": dict(self.requests),
            "generations": dict(self.generations),
            "errors": self.errors,
            "unauthorized": self.unauthorized,
            "expired": self.expired,
            "superseded": self.superseded,
            "refused": self.refused,
            "dropped": self.dropped,
            "queue_ms": _summary(self.queue_ms),
            "infer_ms": _summary(self.infer_ms),
        }


def _summary(values: deque[float]) -> dict[str, float]:
    if not values:
        return {}
    sample = np.array(list(values))
    return {
        "last": float(sample[-1]),
        "p50": float(np.percentile(sample, 50)),
        "p99": float(np.percentile(sample, 99)),
        "max": float(sample.max()),
    }
