"""The learning curve: a CSV that grows while training, and its plot."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from so101.evaluation.statistics import wilson_interval
from so101.files import atomic_path, write_text

COLUMNS = (
    "step", "minutes", "updates", "reward", "train_return", "train_success", "mean_q", "q_ratio", "critic_loss",
    "entropy", "alpha", "bc_loss", "bc_weight", "intervened", "eval_n", "eval_any", "eval_end", "eval_held",
    "eval_return",
)  # fmt: skip
"""`train_*` are of the last 100 training episodes (a success in any step), `eval_*` of greedy ones on tuning seeds."""


def append_row(path: Path, values: Mapping[str, Any]) -> None:
    """Add a row; what it lacks stays empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", extrasaction="ignore")
        if new:
            writer.writeheader()
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in values.items()})


def cut_rows(path: Path, step: int) -> None:
    """Drop rows after `step` and a line that a kill cut off: they will be written again."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines[1:] if (first := line.split(",")[0]).isdigit() and int(first) <= step]
    kept = [line for line in kept if line.count(",") == len(COLUMNS) - 1]
    write_text(path, "".join(f"{line}\n" for line in [",".join(COLUMNS), *kept]))


def read_curve(path: Path) -> list[dict[str, float]]:
    """Rows as numbers, nan where a cell is empty."""
    with open(path, newline="", encoding="utf-8") as file:
        return [{k: float(v) if v else math.nan for k, v in row.items()} for row in csv.DictReader(file)]


def draw_curves(curves: Mapping[str, Path], path: Path, title: str) -> None:
    """Success on tuning seeds with Wilson 95 % bands, return and values against steps, one colour a curve, as PNG.

    Args:
        curves: label -> CSV.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    figure = Figure(figsize=(15, 4.2), layout="constrained")
    success, returns, values = figure.subplots(1, 3)
    for number, (label, source) in enumerate(curves.items()):
        rows, colour = read_curve(source), f"C{number}"
        evaluated = [row for row in rows if not math.isnan(row["eval_end"])]
        steps = [row["step"] for row in evaluated]
        if steps:
            bands = [wilson_interval(round(r["eval_end"] * r["eval_n"]), round(r["eval_n"])) for r in evaluated]
            success.plot(steps, [row["eval_end"] for row in evaluated], "o-", ms=3, color=colour, label=f"{label}, END")
            success.fill_between(steps, [b.low for b in bands], [b.high for b in bands], color=colour, alpha=0.15, lw=0)
            success.plot(steps, [row["eval_any"] for row in evaluated], ":", color=colour, label=f"{label}, ANY")
            returns.plot(steps, [row["eval_return"] for row in evaluated], "o-", ms=3, color=colour, label=label)
        for ax, key, style in (
            (returns, "train_return", {"alpha": 0.4, "lw": 1}),
            (values, "q_ratio", {"label": label}),
        ):
            points = [(row["step"], row[key]) for row in rows if not math.isnan(row[key])]
            ax.plot([x for x, _ in points], [y for _, y in points], color=colour, **style)
    for ax, name in ((success, "success, greedy, tuning seeds"), (returns, "return (thin: training episodes)")):
        ax.set_ylabel(name)
    success.set_ylim(-0.02, 1.02)
    values.set_ylabel("mean Q / what the rewards bear out")
    values.axhline(1.0, color="grey", lw=0.8)
    for ax in (success, returns, values):
        ax.set_xlabel("environment steps")
        ax.xaxis.set_major_formatter(EngFormatter())  # 100 k: whole numbers run into each other
        ax.grid(alpha=0.3)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize=8)
    figure.suptitle(title)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=110)
