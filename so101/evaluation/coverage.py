"""Which start poses were tried and which ever succeeded, in cells; how evenly the seeds were used."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from so101.config.report import ReportConfig
from so101.config.task import PlacementConfig, SubtaskConfig, TaskDefinition
from so101.datasets.demo import Demo
from so101.evaluation.statistics import (
    Interval,
    SourceUse,
    StartOffset,
    bin_counts,
    bin_indices,
    heading_range,
    wilson_interval,
)
from so101.geometry import rotation_from_quat

YawsServed = Callable[[tuple[float, float], tuple[float, float]], float]  # x and y limits, m, to a share
_TOLERANCE = 1e-6  # m and rad: a start drawn at the end of its range is in it


@dataclass
class Starts:
    """Where one object began, and what came of it: one entry an attempt that tells something about the object."""

    offsets: list[StartOffset] = field(default_factory=list)
    success: list[bool] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)  # "" for success
    elsewhere: int = 0  # further attempts, ended in a subtask that has nothing to do with the object


class Cell(NamedTuple):
    """One cell of a grid: its limits by axis (low, high), its attempts, and the causes of those that failed."""

    limits: tuple[tuple[float, float], ...]
    tried: int
    succeeded: int
    causes: dict[str, int]

    def interval(self, confidence: float) -> Interval:
        return wilson_interval(self.succeeded, self.tried, confidence)


@dataclass(frozen=True)
class Grid:
    """Attempts counted in equal cells. `axes` names them with units, `edges` (cells + 1,) an axis; counts have one
    dimension an axis; `causes` counts the failures of a cell by its flat index."""

    axes: tuple[str, ...]
    edges: tuple[np.ndarray, ...]
    tried: np.ndarray
    succeeded: np.ndarray
    causes: dict[int, Counter[str]]

    @property
    def covered_share(self) -> float:
        """Share of the cells with at least one success."""
        return float((self.succeeded > 0).mean())

    def cells(self) -> Iterator[Cell]:
        """All cells, the last axis fastest."""
        for flat, place in enumerate(np.ndindex(self.tried.shape)):
            tried, succeeded = int(self.tried[place]), int(self.succeeded[place])
            limits = tuple((float(e[i]), float(e[i + 1])) for e, i in zip(self.edges, place, strict=True))
            causes = dict(sorted(self.causes.get(flat, {}).items(), key=lambda item: (-item[1], item[0])))
            yield Cell(limits, tried, succeeded, causes)

    def low(self, share: float, confidence: float) -> list[Cell]:
        """Tried cells with a success share below `share`, the surest first: lowest upper end of the interval."""
        found = [cell for cell in self.cells() if cell.tried and cell.succeeded < share * cell.tried]
        return sorted(found, key=lambda cell: (cell.interval(confidence).high, cell.limits))

    def never_tried(self) -> list[Cell]:
        return [cell for cell in self.cells() if not cell.tried]


@dataclass(frozen=True)
class ObjectCoverage:
    """Coverage of the start area of one object.

    Attributes:
        moved: a subtask carries it.
        inside: which starts lie in the configured ranges, (N,) bool; the others are in no cell.
        positions: (N, 2) x and y in world, m, of the point that yaw turns about.
        position, heading: cells over the ranges; headings from nominal.
        elsewhere: attempts that ended in a subtask of other objects, in no cell either (moved objects only).
    """

    name: str
    moved: bool
    positions: np.ndarray
    success: np.ndarray
    inside: np.ndarray
    position: Grid
    heading: Grid
    elsewhere: int


class SourceSkew(NamedTuple):
    """How unevenly seeds were used: share of the most used one, and how many evenly used seeds would be as varied
    (inverse Simpson index)."""

    seeds: int
    top_share: float
    effective: float


def failed_subtask(demo: Demo, task: TaskDefinition) -> SubtaskConfig | None:
    """The subtask in which an attempt was stopped, None where all of them went through."""
    if demo.strict:
        return None
    done = {str(mark[0]) for mark in demo.meta.get("subtasks", [])}
    return next((subtask for subtask in task.subtasks if subtask.name not in done), None)


def is_moved(name: str, task: TaskDefinition) -> bool:
    """Whether a subtask carries the object `name`."""
    return any(subtask.held == name for subtask in task.subtasks)


def object_coverage(name: str, starts: Starts, task: TaskDefinition, settings: ReportConfig) -> ObjectCoverage:
    """Count the starts of one object of the task in cells."""
    placement = task.objects[name]
    nominal = turning_point(placement)
    offsets = np.array(starts.offsets, float).reshape(-1, 3)
    positions = offsets[:, :2] + nominal
    limits = [
        (nominal[0] + placement.x_m[0], nominal[0] + placement.x_m[1]),
        (nominal[1] + placement.y_m[0], nominal[1] + placement.y_m[1]),
    ]
    turns = heading_range(placement)
    headings = turns[0] + (offsets[:, 2] - turns[0] + _TOLERANCE) % (2 * np.pi) - _TOLERANCE
    values = np.column_stack([positions, headings])
    low, high = np.array([*limits, turns]).T
    inside = ((values >= low - _TOLERANCE) & (values <= high + _TOLERANCE)).all(1)
    success = np.array(starts.success, bool)
    kept = [cause for cause, here in zip(starts.causes, inside, strict=True) if here]
    cell_m, cell_rad = settings.coverage_cell_m, math.radians(settings.coverage_cell_deg)
    return ObjectCoverage(
        name=name,
        moved=is_moved(name, task),
        positions=positions,
        success=success,
        inside=inside,
        position=count_cells(("x_m", "y_m"), positions[inside], success[inside], kept, limits, cell_m),
        heading=count_cells(("heading_rad",), headings[inside, None], success[inside], kept, [turns], cell_rad),
        elsewhere=starts.elsewhere,
    )


def turning_point(placement: PlacementConfig) -> np.ndarray:
    """Nominal x and y (2,) in world of the point that yaw turns about, m."""
    pivot = rotation_from_quat(np.array(placement.quat_wxyz)) @ placement.yaw_center_m
    return np.array(placement.position_m[:2]) + pivot[:2]


def count_cells(
    axes: tuple[str, ...],
    values: np.ndarray,
    success: np.ndarray,
    causes: Sequence[str],
    limits: Sequence[tuple[float, float]],
    cell: float,
) -> Grid:
    """Count attempts in cells of about `cell`, so many that they fill the limits; one where there is no range.

    Args:
        values: (N, A), one column an axis, inside `limits` (A pairs).
        success, causes: (N,), of each attempt.
    """
    shape = tuple(max(1, round((high - low) / cell)) for low, high in limits)
    places = [bin_indices(values[:, a], *limits[a], shape[a]) for a in range(len(axes))]
    flat = np.ravel_multi_index(places, shape) if len(values) else np.zeros(0, int)
    tried, succeeded = bin_counts(flat, success, shape)
    by_cell: dict[int, Counter[str]] = {}
    for index, good, cause in zip(flat.tolist(), success.tolist(), causes, strict=True):
        if not good:
            by_cell.setdefault(index, Counter())[cause] += 1
    edges = tuple(np.linspace(*limit, count + 1) for limit, count in zip(limits, shape, strict=True))
    return Grid(axes, edges, tried, succeeded, by_cell)


def source_skew(uses: Sequence[SourceUse]) -> SourceSkew:
    """Skew of the seeds used by one subtask; `uses` must not be empty."""
    shares = np.array([use.used for use in uses], float)
    shares /= shares.sum()
    return SourceSkew(len(uses), float(shares.max()), float(1.0 / (shares**2).sum()))


def coverage_numbers(
    objects: Sequence[ObjectCoverage],
    usage: dict[str, list[SourceUse]],
    settings: ReportConfig,
    yaws_served: YawsServed | None = None,
) -> dict[str, Any]:
    """The `coverage` part of report.json. `yaws_served` tells of the position cells of moved objects what IK serves."""
    return {
        "low_share": settings.coverage_low_share,
        "objects": {
            coverage.name: {
                "moved": coverage.moved,
                "starts": len(coverage.success),
                "outside_ranges": int((~coverage.inside).sum()),
                "ended_elsewhere": coverage.elsewhere,
                "position": _grid_numbers(coverage.position, settings, yaws_served if coverage.moved else None),
                "heading": _grid_numbers(coverage.heading, settings, None),
            }
            for coverage in objects
        },
        "sources": {subtask: source_skew(uses)._asdict() for subtask, uses in usage.items() if uses},
    }


def _grid_numbers(grid: Grid, settings: ReportConfig, yaws_served: YawsServed | None) -> dict[str, Any]:
    def limits(cell: Cell) -> dict[str, tuple[float, float]]:
        rounded = (tuple(round(value, 6) for value in limit) for limit in cell.limits)
        return dict(zip(grid.axes, rounded, strict=True))

    return {
        "edges": {axis: np.round(edges, 6).tolist() for axis, edges in zip(grid.axes, grid.edges, strict=True)},
        "tried": grid.tried.tolist(),
        "succeeded": grid.succeeded.tolist(),
        "covered_share": grid.covered_share,
        "never_tried": [limits(cell) for cell in grid.never_tried()],
        "low": [
            {
                **limits(cell),
                "tried": cell.tried,
                "succeeded": cell.succeeded,
                "interval": cell.interval(settings.confidence),
                "causes": cell.causes,
                "yaws_served": None if yaws_served is None else yaws_served(*cell.limits),
            }
            for cell in grid.low(settings.coverage_low_share, settings.confidence)
        ],
    }
