"""From the twin to rigs that are not quite it: success of policies against how far off the rigs are.

The rig changes with the episode. Placements and rigs are functions of the seed, so every policy meets the same ones.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from so101.config import Config
from so101.errors import ConfigError
from so101.evaluation.closed_loop.bus_world import BusWorld
from so101.evaluation.style import BLUE, LINE, MUTED, ORANGE, TEAL, VIOLET
from so101.files import write_json, write_text
from so101.robot.virtual.pseudo_real import RigDraw, draw_rig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = (
    "policy", "strength", "episodes", "successes", "share", "low", "high", "geometric", "median_s", "failed_at",
    "p99_ms",
)  # fmt: skip
_COLOURS = (BLUE, ORANGE, TEAL, VIOLET, "#b8860b", MUTED)
_MARKERS = "os^Dvp"
_APART = 0.012  # lines of policies are drawn beside one another, share of the axis


def check_apart(config: Config) -> None:
    """
    Raises:
        ConfigError: rigs or placements that are evaluated are among those that demos are recorded on.
    """
    transfer, demos = config.deploy.transfer, config.deploy.transfer.demos
    evaluated = range(transfer.first_rig, transfer.first_rig + transfer.rigs)
    recorded = range(demos.first_rig, demos.first_rig + demos.rigs)
    if max(evaluated.start, recorded.start) < min(evaluated.stop, recorded.stop):
        raise ConfigError(
            f"deploy.transfer: rigs {evaluated.start} to {evaluated.stop - 1} are evaluated and {recorded.start} to "
            f"{recorded.stop - 1} give demos (demos.first_rig, demos.rigs); a policy must not be tried on rigs it "
            "learned from: move first_rig"
        )
    first = config.deploy.evaluation.first_seed
    if demos.first_seed >= first:
        raise ConfigError(
            f"deploy.transfer.demos.first_seed is {demos.first_seed}; placements from {first} on are evaluated "
            "(deploy.evaluation.first_seed): record demos below"
        )


@dataclass(frozen=True)
class RigWorlds:
    """Makes worlds over the servo protocol: `MakeWorld` of `services.evaluation.worker`, found again in its processes.

    Attributes:
        strength: of the rigs, as in `draw_rig`.
        first_seed: of the episodes; the one of first_seed + i has the rig of seed first_rig + i modulo rigs.
    """

    strength: float
    first_seed: int
    first_rig: int
    rigs: int

    def __call__(self, config: Config, cameras: Collection[str]) -> BusWorld:
        return BusWorld(config, partial(self.rig, config), cameras)

    def rig(self, config: Config, seed: int) -> RigDraw:
        """The rig of the episode with this seed."""
        return draw_rig(config, self.first_rig + (seed - self.first_seed) % self.rigs, self.strength)

    def facts(self, config: Config) -> dict[str, Any]:
        """What tells its episodes from those of other worlds, flat."""
        rigs = f"{self.first_rig} to {self.first_rig + self.rigs - 1}, from episode {self.first_seed} on"
        bus = config.robot.bus.model_dump(mode="json", include={"rate_hz", "setup", "jaw_setup"})
        return {"world": "servo bus", "rig_strength": self.strength, "rigs": rigs, **bus}


@dataclass(frozen=True)
class TransferPoint:
    """One policy at one strength. `summary`: as `so101.evaluation.closed_loop.summary.summarise` gives it."""

    policy: str
    strength: float
    summary: dict[str, Any]

    def row(self) -> dict[str, Any]:
        """Its line of the table, by COLUMNS."""
        summary, strict = self.summary, self.summary["strict"]
        failed = {stage: count for stage, count in summary["failures"].items() if count}
        return {
            "policy": self.policy,
            "strength": self.strength,
            "episodes": summary["n"],
            "successes": strict["successes"],
            "share": round(strict["share"], 4),
            "low": round(strict["low"], 4),
            "high": round(strict["high"], 4),
            "geometric": summary["geometric"]["successes"],
            "median_s": (summary["time_to_success_s"] or {}).get("median"),
            "failed_at": ", ".join(f"{stage} {count}" for stage, count in failed.items()),
            "p99_ms": (summary["latency_ms"] or {}).get("p99"),
        }


def write_transfer(folder: Path, points: Sequence[TransferPoint], title: str) -> Figure:
    """Write transfer.json (with the summaries), transfer.csv and transfer.png; returns the figure."""
    rows = [point.row() for point in points]
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_text(folder / "transfer.csv", text.getvalue())
    write_json(folder / "transfer.json", {"rows": rows, "summaries": [point.summary for point in points]})
    from so101.evaluation.closed_loop.figures import write_figure

    figure = transfer_figure(points, title)
    write_figure(folder / "transfer.png", figure)
    return figure


def transfer_figure(points: Sequence[TransferPoint], title: str) -> Figure:
    """Share of strict successes against strength, one line a policy with Wilson intervals; the numbers below it."""
    from matplotlib.figure import Figure

    policies = list(dict.fromkeys(point.policy for point in points))
    figure = Figure(figsize=(9, 4.6 + 0.28 * len(points)), layout="constrained")
    axes, below = figure.subplots(2, 1, height_ratios=[4.0, 0.5 + 0.28 * len(points)])
    strengths = [point.strength for point in points]
    width = (max(strengths) - min(strengths)) or 1.0
    for i, policy in enumerate(policies):
        line = sorted((point for point in points if point.policy == policy), key=lambda point: point.strength)
        rows = [point.row() for point in line]
        beside = width * _APART * (i - (len(policies) - 1) / 2)
        share = [100 * row["share"] for row in rows]
        axes.errorbar(
            [row["strength"] + beside for row in rows],
            share,
            yerr=[
                [100 * (row["share"] - row["low"]) for row in rows],
                [100 * (row["high"] - row["share"]) for row in rows],
            ],
            fmt=f"{_MARKERS[i % len(_MARKERS)]}-",
            color=_COLOURS[i % len(_COLOURS)],
            capsize=3,
            label=policy,
        )
    summaries = [point.summary for point in points]
    confidence = {round(100 * summary["confidence"]) for summary in summaries}
    axes.set(xlabel="strength: how far rigs are from the twin (0: the twin, 1: as drawn)", ylabel="strict success [%]")
    axes.set(ylim=(-3, 103), xticks=sorted(set(strengths)))
    axes.set_title(f"{title}; bars: Wilson {' / '.join(map(str, sorted(confidence)))} %", loc="left", fontsize=10)
    axes.grid(axis="y", color=LINE)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    _draw_table(below, [point.row() for point in points])
    return figure


def _draw_table(axes: Any, rows: list[dict[str, Any]]) -> None:
    axes.axis("off")
    cells = [
        [
            row["policy"],
            f"{row['strength']:g}",
            f"{row['successes']}/{row['episodes']} = {100 * row['share']:.0f} %",
            f"{100 * row['low']:.0f} to {100 * row['high']:.0f} %",
            "" if row["median_s"] is None else f"{row['median_s']:.1f} s",
            row["failed_at"] or "none",
        ]
        for row in rows
    ]
    heads = ["policy", "strength", "strict", "interval", "median time", "failures ended at"]
    widths = [0.2, 0.08, 0.16, 0.12, 0.1, 0.34]
    table = axes.table(
        cells, colLabels=heads, colWidths=widths, loc="upper left", cellLoc="left", colLoc="left", edges="horizontal"
    )
    table.auto_set_font_size(False)
    table.set_fontsize(8)
