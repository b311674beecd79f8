"""Reaches of an arm as numbers and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from so101.config import Config
from so101.control.reach_run import ReachRun
from so101.evaluation.style import BLUE, LINE, MUTED, ORANGE
from so101.files import write_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_runs(folder: Path, runs: Sequence[ReachRun], config: Config) -> list[Path]:
    """Write reach.json (every run's summary and its looks at the arm) and reach.png; returns both paths."""
    from so101.evaluation.closed_loop.figures import write_figure

    within_m = config.deploy.reach.within_m
    content = [
        run.summary(within_m)
        | {
            "time_s": run.time_s.round(4).tolist(),
            "q_rad": run.q.round(5).tolist(),
            "goals_rad": run.goals.round(5).tolist(),
            "points_m": run.points.round(5).tolist(),
        }
        for run in runs
    ]
    write_json(folder / "reach.json", {"runs": content})
    write_figure(folder / "reach.png", runs_figure(runs, config.robot.joint_names, within_m))
    return [folder / "reach.json", folder / "reach.png"]


def runs_figure(runs: Sequence[ReachRun], joint_names: Sequence[str], within_m: float) -> Figure:
    """The distance from the target over time, all runs; the joints of the last one and what was sent to them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    top, below = figure.subfigures(2, 1, height_ratios=[1.0, 1.6])
    axes = top.subplots()
    for run in runs:
        if len(run.time_s):
            axes.plot(run.time_s, 1000 * run.errors_m, color=BLUE, lw=1.2, alpha=1.0 if len(runs) == 1 else 0.5)
    axes.axhline(1000 * within_m, color=MUTED, lw=1, ls=":")
    moved = "" if all(run.moved for run in runs) else " (dry run: nothing was sent)"
    axes.set(xlabel="s", ylabel="hand from target [mm]", ylim=(0, None))
    axes.set_title(f"{len(runs)} target{'s' * (len(runs) > 1)}{moved}; dotted: near enough", loc="left", fontsize=10)
    _plain(axes)
    last = runs[-1]
    for number, (name, each) in enumerate(zip(joint_names, below.subplots(2, 3, sharex=True).flat, strict=True)):
        if len(last.time_s):
            each.plot(last.time_s, np.degrees(last.goals[:, number]), color=ORANGE, lw=1, label="sent")
            each.plot(last.time_s, np.degrees(last.q[:, number]), color=BLUE, lw=1, label="measured")
        each.set_title(f"{name} [deg]", loc="left", fontsize=9)
        _plain(each)
    each.legend(frameon=False, fontsize=8)
    return figure


def _plain(axes) -> None:
    axes.grid(axis="y", color=LINE)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=8)
