"""What became of the episodes of an evaluation, in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from so101.config import Config
from so101.evaluation.closed_loop.record import Episode
from so101.evaluation.closed_loop.stages import NONE
from so101.evaluation.statistics import start_offset
from so101.evaluation.style import BLUE, MUTED, ORANGE
from so101.files import atomic_path
from so101.sim.bake import T_world_base

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GOOD, _BAD, _SOFT = BLUE, ORANGE, "#a9c5ea"
_CM = 100.0


def outcome_figure(config: Config, episodes: Sequence[Episode], summary: dict[str, Any], title: str) -> Figure:
    """Stages reached, where failures ended, where objects started, how they lay, when it was done."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    (stages, starts), (times, headings) = figure.subplots(2, 2)
    _draw_stages(stages, summary)
    _draw_starts(starts, config, episodes)
    _draw_headings(headings, config, episodes)
    _draw_times(times, episodes)
    strict, n = summary["strict"], summary["n"]
    interval = f"{100 * strict['low']:.0f} to {100 * strict['high']:.0f} %"
    figure.suptitle(
        f"{title}: strict {strict['successes']}/{n} = {100 * strict['share']:.1f} % ({interval}), "
        f"seeds {summary['first_seed']} to {summary['last_seed']}",
        x=0.01,
        ha="left",
    )
    return figure


def write_figure(path: Path | str, figure: Figure) -> None:
    """PNG, atomically."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=100, metadata={"Software": None})


def _draw_stages(axes: Axes, summary: dict[str, Any]) -> None:
    """Bars: episodes that came so far; the share of them that failed there and then is red."""
    names = [*summary["stages"], "strict success"]
    reached = [*summary["stages"].values(), summary["strict"]["successes"]]
    failed = [*(summary["failures"][stage] for stage in summary["stages"]), 0]
    y = np.arange(len(names))[::-1]
    axes.barh(y, reached, color=[*[_SOFT] * (len(names) - 1), _GOOD], height=0.7)
    axes.barh(y, failed, left=np.array(reached) - failed, color=_BAD, height=0.7, label="furthest of a failure")
    axes.set_yticks(y, names)
    for at, count, lost in zip(y, reached, failed, strict=True):
        axes.text(count, at, f" {count}" + (f"  ({lost} failed here)" if lost else ""), va="center", fontsize=8)
    axes.set_xlim(0, max(1, summary["n"]) * 1.3)
    axes.set_title(f"Stage reached (none: {summary['failures'][NONE]})", loc="left", fontsize=10)
    axes.set_xlabel("episodes")
    axes.legend(loc="upper right", bbox_to_anchor=(1.0, 1.06), fontsize=8, frameon=False)
    _plain(axes)


def _draw_starts(axes: Axes, config: Config, episodes: Sequence[Episode]) -> None:
    """Start positions in base from above, away from the arm upwards."""
    success = config.task.active.success
    for name in (*success.objects, success.container):
        for strict in (True, False):
            places = [_CM * e.objects[name][0, :2] for e in episodes if e.strict == strict]
            x, y = np.array(places).reshape(-1, 2).T
            colour = _GOOD if strict else _BAD
            axes.plot(y, x, _marker(name == success.container, strict), color=colour, ms=5, mfc="none")
    axes.set(xlabel="y [cm]", ylabel="x, away from the arm [cm]", aspect="equal")
    axes.invert_xaxis()
    words = f"{', '.join(success.objects)} o, failed x; {success.container} □, failed +"
    axes.set_title(f"Starts: {words}", loc="left", fontsize=10)
    _plain(axes)


def _marker(container: bool, strict: bool) -> str:
    return ("s" if strict else "+") if container else ("o" if strict else "x")


def _draw_headings(axes: Axes, config: Config, episodes: Sequence[Episode]) -> None:
    """Headings at the start, from nominal: of the first object and of the container."""
    success, base = config.task.active.success, T_world_base(config)
    names = (success.objects[0], success.container)
    for strict in (True, False):
        turns = [
            [np.degrees(start_offset(e.objects[name][0], config.objects[name], base).heading_rad) for name in names]
            for e in episodes
            if e.strict == strict
        ]
        x, y = np.array(turns).reshape(-1, 2).T
        axes.plot(x, y, _marker(False, strict), color=_GOOD if strict else _BAD, ms=5, mfc="none")
    axes.set(xlabel=f"{names[0]} [deg]", ylabel=f"{names[1]} [deg]")
    axes.set_title("Headings at the start, from nominal", loc="left", fontsize=10)
    _plain(axes)


def _draw_times(axes: Axes, episodes: Sequence[Episode]) -> None:
    times = [episode.time_to_success_s for episode in episodes if episode.time_to_success_s is not None]
    if times:
        axes.hist(times, bins=min(30, max(5, len(times) // 4)), color=_GOOD)
        axes.axvline(float(np.median(times)), color=MUTED, lw=1, ls="--")
    axes.set_title("Time to strict success [s]; dashed: median", loc="left", fontsize=10)
    axes.set_xlabel("s")
    axes.set_ylabel("episodes")
    _plain(axes)


def _plain(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=8)
