"""What became of the episodes of an evaluation, in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from so101.config import Config
from so101.evaluation.closed_loop.record import Episode
from so101.evaluation.closed_loop.stages import NONE
from so101.files import atomic_path
from so101.geometry import rotation_from_quat

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GOOD, _BAD, _SOFT, _MUTED = "#1b66c9", "#c2410c", "#a9c5ea", "#586273"  # of the report's page, light
_CM = 100.0
_TICK_CM = 0.6  # line that shows an object's heading


def outcome_figure(config: Config, episodes: Sequence[Episode], summary: dict[str, Any], title: str) -> Figure:
    """Stages reached, where failures ended, where objects started, when it was done."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    (stages, starts), (times, racks) = figure.subplots(2, 2)
    _draw_stages(stages, summary)
    success = config.task.active.success
    _draw_starts(starts, config, episodes, success.objects[0])
    _draw_starts(racks, config, episodes, success.container)
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
    axes.legend(loc="lower right", fontsize=8, frameon=False)
    _plain(axes)


def _draw_starts(axes: Axes, config: Config, episodes: Sequence[Episode], name: str) -> None:
    """Start positions in base from above, coloured by outcome; the line shows the heading of the object's longest
    horizontal axis."""
    for strict, colour, label in ((True, _GOOD, "success"), (False, _BAD, "failure")):
        poses = np.array([e.objects[name][0] for e in episodes if e.strict == strict]).reshape(-1, 7)
        axes.plot(_CM * poses[:, 0], _CM * poses[:, 1], "o" if strict else "x", color=colour, ms=5, label=label)
        for pose in poses:
            R = rotation_from_quat(pose[3:])
            axis = R[:2, int(np.argmax(np.linalg.norm(R[:2, ::2], axis=0))) * 2]  # its x or z, whichever lies
            axis = _TICK_CM * axis / max(np.linalg.norm(axis), 1e-9)
            x, y = _CM * pose[0], _CM * pose[1]
            axes.plot([x, x + axis[0]], [y, y + axis[1]], color=colour, lw=0.8)
    axes.set(xlabel="x [cm]", ylabel="y [cm]", aspect="equal")
    axes.set_title(f"Where {name} starts (base, from above)", loc="left", fontsize=10)
    axes.legend(fontsize=8, frameon=False)
    _plain(axes)


def _draw_times(axes: Axes, episodes: Sequence[Episode]) -> None:
    times = [episode.time_to_success_s for episode in episodes if episode.time_to_success_s is not None]
    if times:
        axes.hist(times, bins=min(30, max(5, len(times) // 4)), color=_GOOD)
        axes.axvline(float(np.median(times)), color=_MUTED, lw=1, ls="--")
    axes.set_title("Time to strict success [s]; dashed: median", loc="left", fontsize=10)
    axes.set_xlabel("s")
    axes.set_ylabel("episodes")
    _plain(axes)


def _plain(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=8)
