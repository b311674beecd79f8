"""How the sources of a dataset move: path length, duration, smoothness and use of the jaw, side by side.

What differs here differs in what a policy is shown: people take detours, pause, and work the jaw more than once.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from so101.config import Config
from so101.datasets.lerobot_source import marker_of
from so101.datasets.merge import read_sources
from so101.datasets.merge_units import find_units, to_rad
from so101.datasets.recordings import Recording, read_recording
from so101.datasets.unit_detection import Unit
from so101.evaluation.statistics import trajectory_statistics
from so101.evaluation.style import BLUE, INK, LINE, MUTED, ORANGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = {"sim": BLUE, "real": ORANGE}
_WIDTH_IN, _LEAST_IN, _HEIGHT_IN = 0.85, 2.6, 3.2  # of a violin, a panel at least, the figure


class EpisodeMotion(NamedTuple):
    """One episode. `jaw_strokes`: way of the jaw's command, in times its whole span; a pick takes about two."""

    path_length_m: float
    duration_s: float
    smoothness: float
    jaw_strokes: float


_TITLES = {
    "path_length_m": ("Path length", "m"),
    "duration_s": ("Duration", "s"),
    "smoothness": ("Smoothness, lower is smoother", ""),
    "jaw_strokes": ("Jaw travel", "strokes"),
}


class SourceMotion(NamedTuple):
    """A source and how its episodes move. `share`: of the frames that training draws."""

    name: str
    kind: str
    weight: float
    share: float
    frames: int
    episodes: list[EpisodeMotion]


def source_motions(dataset: Path | str, config: Config, units: Unit | None = None) -> list[SourceMotion]:
    """The sources of a dataset; one that was not merged is one source.

    Args:
        dataset: LeRobot folder.
        config: the arm; `training.mix.weights`.
        units: of its joints, where neither the dataset nor its numbers say.

    Raises:
        DataError: the dataset cannot be read, or its units are not decidable.
    """
    from so101.kinematics import ArmKinematics

    recordings = read_recording(dataset, config)
    found = find_units(marker_of(dataset), recordings, config, units)
    radians, fk = to_rad(found, config, nominal=True), ArmKinematics(config).fk
    motions = [
        _motion(radians(number, r.state), radians(number, r.action), r, fk, config)
        for number, r in enumerate(recordings)
    ]
    lengths = [recording.num_frames for recording in recordings]
    sources = read_sources(dataset, config.training.mix.weights)
    if not sources:
        whole = (Path(dataset).resolve().name, "", float(sum(lengths)), 1.0, sum(lengths))
        return [SourceMotion(*whole, motions)]
    total = sum(source.weight for source in sources)
    return [
        SourceMotion(
            source.name,
            source.kind,
            source.weight,
            source.weight / total,
            sum(lengths[index] for index in source.episodes),
            [motions[index] for index in source.episodes],
        )
        for source in sources
    ]


def _motion(q: np.ndarray, q_target: np.ndarray, recording: Recording, fk: Any, config: Config) -> EpisodeMotion:
    numbers = trajectory_statistics(q, q_target, recording.fps, fk)
    jaw = config.robot.joints[-1]
    span = math.radians(jaw.nominal_upper_deg - jaw.nominal_lower_deg)
    strokes = float(np.abs(np.diff(q_target[:, -1])).sum() / span)
    return EpisodeMotion(numbers.path_length_m, numbers.duration_s, numbers.smoothness, strokes)


def source_figure(sources: list[SourceMotion], title: str) -> Figure:
    """A panel a statistic, a violin a source; simulated ones blue, real ones red."""
    from matplotlib.figure import Figure

    from so101.evaluation.plots import draw_violin

    width = max(_LEAST_IN, _WIDTH_IN * len(sources) + 0.8)
    figure = Figure(figsize=(width * len(_TITLES), _HEIGHT_IN), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, color=INK)
    for axes, (key, (name, unit)) in zip(figure.subplots(1, len(_TITLES)), _TITLES.items(), strict=True):
        samples = [np.array([getattr(episode, key) for episode in source.episodes]) for source in sources]
        for place, (source, values) in enumerate(zip(sources, samples, strict=True)):
            draw_violin(axes, place, values, _COLOURS.get(source.kind, MUTED), INK)
        labels = [f"{s.name}\n{f'{s.kind}, ' if s.kind else ''}n = {len(s.episodes)}" for s in sources]
        axes.set_xticks(range(len(sources)), labels, fontsize=8)
        axes.set_xlim(-0.6, len(sources) - 0.4)
        axes.set_ylim(0, 1.08 * max(float(max(values.max() for values in samples)), 1e-9))
        axes.set_title(f"{name} [{unit}]" if unit else name, loc="left", fontsize=9)
        axes.tick_params(labelsize=8, length=0)
        axes.grid(axis="y", color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    return figure


def source_numbers(sources: list[SourceMotion]) -> list[dict[str, Any]]:
    """JSON: per source weight, share, frames, and every episode's statistics."""
    return [
        {
            **{key: value for key, value in source._asdict().items() if key != "episodes"},
            "episodes": len(source.episodes),
            **{key: [getattr(episode, key) for episode in source.episodes] for key in EpisodeMotion._fields},
        }
        for source in sources
    ]


def write_sources_png(path: Path | str, sources: list[SourceMotion], title: str) -> None:
    """The figure as PNG, atomically."""
    from so101.evaluation.closed_loop.figures import write_figure

    write_figure(path, source_figure(sources, title))
