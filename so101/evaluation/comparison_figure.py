"""Runs side by side in one picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from so101.evaluation.closed_loop.stages import STAGES
from so101.evaluation.comparison import Compared
from so101.evaluation.statistics import wilson_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ABREAST = 3  # panels


def comparison_figure(runs: Sequence[Compared], confidence: float) -> Figure:
    """Success with intervals, stages reached, curves of the loss: what the runs have of it, one colour a run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    tried = [run for run in runs if run.success is not None and run.success[1] > 0]
    losses = sorted({key for run in runs for key in run.curves if "loss" in key})
    panels = [_draw_success, _draw_stages] if tried else []
    count = len(panels) + len(losses)
    columns = max(1, min(count, _ABREAST))
    rows = max(1, math.ceil(count / columns))
    figure = Figure(figsize=(5.2 * columns, 3.4 * rows), layout="constrained")
    colours = {run.name: f"C{i % 10}" for i, run in enumerate(runs)}
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in axes[max(count, 1) :]:
        ax.set_axis_off()
    for draw, ax in zip(panels, axes, strict=False):
        draw(ax, tried, colours, confidence)
    for key, ax in zip(losses, axes[len(panels) :], strict=False):
        for run in runs:
            if key in run.curves:
                ax.plot(*run.curves[key], color=colours[run.name], lw=1.2, label=run.name)
        ax.set_title(key, loc="left", fontsize=9)
        ax.set(xlabel="step", yscale="log")
        ax.legend(fontsize=7, frameon=False)
    for ax in axes:
        ax.tick_params(which="both", labelsize=7)
        ax.spines[["top", "right"]].set_visible(False)
    if not count:
        axes[0].text(0.5, 0.5, "neither success nor loss to draw", ha="center")
    return figure


def _draw_success(axes: Axes, runs: Sequence[Compared], colours: Mapping[str, str], confidence: float) -> None:
    for i, run in enumerate(runs):
        k, n = run.success
        low, high = wilson_interval(k, n, confidence)
        axes.barh(i, 100 * k / n, color=colours[run.name], height=0.6)
        axes.plot([100 * low, 100 * high], [i, i], color="0.2", lw=1.5)
        axes.text(100 * high + 1, i, f"{k}/{n}", va="center", fontsize=8)
    axes.set_yticks(range(len(runs)), [run.name for run in runs], fontsize=8)
    axes.invert_yaxis()
    axes.set(xlim=(0, 112), xlabel="%")
    axes.set_title(f"strict success, {confidence:.0%} Wilson intervals", loc="left", fontsize=9)


def _draw_stages(axes: Axes, runs: Sequence[Compared], colours: Mapping[str, str], confidence: float) -> None:
    names = [*STAGES, "success"]
    for run in runs:
        shares = [run.metrics.get(f"stage/{stage}", np.nan) for stage in STAGES] + [run.success[0] / run.success[1]]
        axes.plot(range(len(names)), 100 * np.array(shares), "o-", color=colours[run.name], ms=4, label=run.name)
    axes.set_xticks(range(len(names)), names, rotation=25, ha="right", fontsize=7)
    axes.set(ylim=(0, 103), ylabel="% of the episodes")
    axes.set_title("stage reached", loc="left", fontsize=9)
    axes.legend(fontsize=7, frameon=False)
