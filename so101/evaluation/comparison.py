"""Runs side by side: differences of success with their intervals, settings on which they disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from so101.evaluation.statistics import Difference, share_difference


@dataclass(frozen=True)
class Compared:
    """One run.

    Attributes:
        name: unique in the comparison.
        source: where it was found.
        params: setting -> value as text.
        metrics: figure -> last value.
        curves: figure -> ((N,) steps, (N,) values), for what was logged over time.
        success: strict successes and episodes; None for a training.
        outcomes: seed -> strict success, where the episodes are at hand.
    """

    name: str
    source: str
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    curves: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    success: tuple[int, int] | None = None
    outcomes: dict[int, bool] = field(default_factory=dict)


class Pair(NamedTuple):
    """Two runs: strict success of the first less that of the second.

    Attributes:
        difference: as of independent samples.
        only_first, only_second: of the seeds that both ran, those that one alone did; None when they share none.
        p_value: of these two being so different by chance (exact sign test); None likewise.
    """

    first: str
    second: str
    difference: Difference
    only_first: int | None = None
    only_second: int | None = None
    p_value: float | None = None


def unique_names(runs: Sequence[Compared]) -> list[Compared]:
    """The same runs; those of one name are told apart by their source, then by number."""
    names = [run.name for run in runs]
    longer = [run.source if names.count(run.name) > 1 else run.name for run in runs]
    return [
        replace(run, name=f"{name} ({longer[:i].count(name) + 1})" if longer.count(name) > 1 else name)
        for i, (run, name) in enumerate(zip(runs, longer, strict=True))
    ]


def pairs(runs: Sequence[Compared], confidence: float) -> list[Pair]:
    """Every two runs that have a success rate."""
    tried = [run for run in runs if run.success is not None and run.success[1] > 0]
    return [_pair(a, b, confidence) for a, b in combinations(tried, 2)]


def _pair(a: Compared, b: Compared, confidence: float) -> Pair:
    from scipy.stats import binomtest

    difference = share_difference(a.success, b.success, confidence)
    both = a.outcomes.keys() & b.outcomes.keys()
    if not both:
        return Pair(a.name, b.name, difference)
    first = sum(a.outcomes[seed] and not b.outcomes[seed] for seed in both)
    second = sum(b.outcomes[seed] and not a.outcomes[seed] for seed in both)
    p_value = float(binomtest(first, first + second).pvalue) if first + second else 1.0
    return Pair(a.name, b.name, difference, first, second, p_value)


def differing_params(runs: Sequence[Compared]) -> dict[str, list[str]]:
    """Setting -> value in each run, "" where it has none; those on which runs that have them disagree."""
    keys = dict.fromkeys(key for run in runs for key in run.params)
    rows = {key: [run.params.get(key, "") for run in runs] for key in sorted(keys)}
    return {key: row for key, row in rows.items() if len({value for value in row if value}) > 1}
