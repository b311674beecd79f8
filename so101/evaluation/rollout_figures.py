"""Pictures of one rollout: its joints, the way of its hand, which joint the error comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from so101.config import Config
from so101.datasets.lerobot_v21 import dataset_units
from so101.datasets.units import rad_to_lerobot
from so101.evaluation.joint_errors import JointErrors
from so101.evaluation.measure import Measured, Reference
from so101.evaluation.tracks import Track
from so101.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COMMANDED, OBSERVED, REFERENCE, SEAM = "tab:orange", "tab:blue", "0.78", "0.9"
_MOST_DEMOS = 40  # drawn; more would be a grey area


def write_figures(
    config: Config,
    measured: Measured,
    fk: Callable[[np.ndarray], np.ndarray],
    references: Sequence[Reference],
    folder: Path,
) -> list[Path]:
    """The three pictures of one rollout as NAME_joints.png, NAME_path.png, NAME_mse.png in `folder`."""
    track = measured.track
    title = "; ".join([f"{track.name}: {measured.outcome}".rstrip(": "), *(found.name for found in measured.diagnoses)])
    observed, commanded = (fk(part)[:, :3, 3] for part in (track.q, track.sent))
    pictures = {
        "joints": joint_panels(config, track, measured.errors, title),
        "path": hand_paths(observed, commanded, title, references),
        "mse": mse_bars(measured.errors, title),
    }
    for name, figure in pictures.items():
        with atomic_path(folder / f"{track.name}_{name}.png") as temporary:
            figure.savefig(temporary, dpi=90, metadata={"Software": None})
    return [folder / f"{track.name}_{name}.png" for name in pictures]


def joint_panels(config: Config, track: Track, errors: JointErrors, title: str) -> Figure:
    """A panel a joint: commanded and observed over time in LeRobot units; a thin line where a chunk begins, a cross
    where a tick was missed."""
    units = dataset_units(config)
    observed, commanded, wanted = (rad_to_lerobot(part, units) for part in (track.q, track.sent, track.q_target))
    t = np.arange(track.num_frames) / track.fps
    figure = _figure((13, 7.4), title)
    panels = figure.subplots(3, 2, sharex=True)
    clamped = not np.allclose(wanted, commanded, atol=0.05)
    for j, (axes, name) in enumerate(zip(panels.T.flat, errors.names, strict=True)):
        for seam in track.seams:
            axes.axvline(t[seam], color=SEAM, lw=0.6, zorder=0)
        if clamped:
            axes.plot(t, wanted[:, j], color="0.55", lw=0.9, ls=":", label="wanted, before limits")
        axes.plot(t, commanded[:, j], color=COMMANDED, lw=1.1, label="commanded")
        axes.plot(t, observed[:, j], color=OBSERVED, lw=1.3, label="observed")
        missed = sorted(track.misses)
        axes.plot(t[missed], observed[missed, j], "x", color="tab:red", ms=3.5, label="missed tick" if missed else None)
        lag = "" if np.isnan(errors.lag_frames[j]) else f", lag {errors.lag_ms[j]:.0f} ms"
        axes.set_title(f"{name}: MSE {errors.mse[j]:.1f} ({errors.share[j]:.0%}){lag}", loc="left", fontsize=9)
        axes.set_ylabel("0 to 100" if j == len(errors.names) - 1 else "deg", fontsize=8)
        axes.tick_params(labelsize=7)
    for axes in panels[-1]:
        axes.set_xlabel("s; a thin line is the beginning of a chunk" if len(track.seams) else "s", fontsize=8)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=4, fontsize=8, frameon=False)
    return figure


def hand_paths(observed: np.ndarray, commanded: np.ndarray, title: str, references: Sequence[Reference] = ()) -> Figure:
    """The way of the end effector in base, (T, 3) m each: in space, from above, from the side; demos in grey."""
    figure = _figure((13, 4.6), title)
    grid = figure.add_gridspec(1, 3)
    space = figure.add_subplot(grid[0], projection="3d")
    views = [
        (figure.add_subplot(grid[1]), (0, 1), "from above"),
        (figure.add_subplot(grid[2]), (0, 2), "from the side"),
    ]
    every = max(1, len(references) // _MOST_DEMOS)
    lines = [(path, REFERENCE, 0.5, "demos" if i == 0 else None) for i, (_, path) in enumerate(references[::every])]
    lines += [(commanded, COMMANDED, 1.0, "commanded"), (observed, OBSERVED, 1.4, "observed")]
    for path, colour, width, label in lines:
        space.plot(*(100 * path.T), color=colour, lw=width, label=label)
        for axes, (a, b), _ in views:
            axes.plot(100 * path[:, a], 100 * path[:, b], color=colour, lw=width)
    space.set(xlabel="x cm", ylabel="y cm", zlabel="z cm")
    space.set_aspect("equal")
    space.tick_params(labelsize=6)
    for axes, (a, b), name in views:
        axes.plot(100 * observed[0, a], 100 * observed[0, b], "o", color=OBSERVED, ms=5, label="start")
        axes.plot(100 * observed[-1, a], 100 * observed[-1, b], "s", color=OBSERVED, ms=5, label="end")
        axes.set(xlabel="xyz"[a] + " cm", ylabel="xyz"[b] + " cm", aspect="equal")
        axes.set_title(name, loc="left", fontsize=9)
        axes.tick_params(labelsize=7)
        axes.grid(color=SEAM, lw=0.6)
    views[0][0].legend(fontsize=8, frameon=False)
    handles, labels = space.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=3, fontsize=8, frameon=False)
    return figure


def mse_bars(errors: JointErrors, title: str) -> Figure:
    """Mean squared tracking error of each joint and its share of the action MSE; the gripper in its own colour."""
    figure = _figure((7, 3.2), title)
    axes = figure.subplots()
    places = np.arange(len(errors.names))
    colours = ["tab:red" if j == len(places) - 1 else OBSERVED for j in places]
    bars = axes.barh(places, errors.mse, color=colours)
    axes.bar_label(bars, [f" {m:.1f} ({s:.0%})" for m, s in zip(errors.mse, errors.share, strict=True)], fontsize=8)
    axes.set_yticks(places, errors.names, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.set_xlabel(f"LeRobot units squared; action MSE {errors.action_mse:.1f}", fontsize=8)
    axes.tick_params(axis="x", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _figure(size_in: tuple[float, float], title: str) -> Figure:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=size_in, layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure
