"""`./twin metrics`: what rollouts were like, in numbers, words and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from so101.cli.options import Settings, with_options
from so101.cli.progress import make_reporter

if TYPE_CHECKING:
    from so101.config import Config
    from so101.evaluation.measure import Measured

EPILOG = "Example: ./twin metrics runs/eval/policy --reference runs/default --figures 6"

_FOLDER = Path("runs/metrics")
_SHOWN = 20  # rollouts in the table
_FRAME_COLUMNS = (
    "outcome", "time\ns", "path\ncm", "smooth\nmm", "smooth\n/length", "ATE\nmm", "RTE\nmm", "DTW\nm", "action\nMSE"
)  # fmt: skip


@with_options(Settings)
def metrics(
    settings: Settings,
    path: Annotated[
        Path,
        typer.Argument(
            help="A folder of ./twin eval, a session of ./real, a run, a LeRobot dataset, or one file of them."
        ),
    ],
    episode: Annotated[int | None, typer.Option(min=0, help="One of them, from 0.", show_default="all")] = None,
    reference: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Demos to compare with: a run, a dataset, a folder.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where the files go.", show_default="runs/metrics/NAME"),
    ] = None,
    figures: Annotated[
        int, typer.Option(min=0, help="Rollouts to draw; those with a diagnosis come first, then failures.")
    ] = 3,
    track: Annotated[bool, typer.Option("--track", help="Put everything into MLflow, with the evaluation's.")] = False,
) -> None:
    """Measure rollouts: FRAME metrics, errors of each joint, known failures in words, pictures."""
    from so101.evaluation.measure import measure, reference_paths, totals
    from so101.evaluation.rollout_figures import write_figures
    from so101.evaluation.tracks import read_tracks
    from so101.files import write_json
    from so101.kinematics.arm import ArmKinematics

    config, console = settings.load(), Console()
    fk = ArmKinematics(config).fk
    tracks = read_tracks(path, config, episode=episode)
    references = reference_paths(reference, config, fk) if reference is not None else []
    measured: list[Measured] = []
    with make_reporter(console) as reporter:
        reporter.start("metrics", len(tracks), unit="rollouts")
        for one in tracks:
            measured.append(measure(config, one, fk, references))
            reporter.advance(1, one.name)
    folder = out or _FOLDER / path.resolve().name
    numbers = totals(measured)
    write_json(folder / "metrics.json", {"totals": numbers, "rollouts": [one.figures() for one in measured]})
    drawn = sorted(measured, key=lambda one: (not one.diagnoses, one.track.success is not False))[:figures]
    pictures = [file for one in drawn for file in write_figures(config, one, fk, references, folder)]
    for table in _tables(measured):
        console.print(table)
    for line in _words(measured):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
    if track:
        one = "" if episode is None else f"episode_{episode}/"
        _track(config, path, folder, {one + key: value for key, value in numbers.items()}, pictures)
    console.print(f"Written: {folder} ({1 + len(pictures)} files)", soft_wrap=True, markup=False, highlight=False)


def _tables(measured: Sequence[Measured]) -> list[Table]:
    """FRAME metrics, a row a rollout, and the joints, medians over all."""
    import numpy as np

    from so101.evaluation.measure import totals

    frame = Table(title="Commanded against observed", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    frame.add_column("rollout", overflow="fold")
    for header in (*_FRAME_COLUMNS, *(("demo\ncm",) if measured[0].near else ())):
        frame.add_column(header, justify="right", no_wrap=True)
    for one in measured[:_SHOWN]:
        m = one.frame
        cells = (
            f"{m.duration_s:.1f}", f"{100 * m.path_length_m:.1f}", f"{m.smoothness_mm:.2f}",
            f"{m.joint_smoothness_by_length:.2f}", f"{1000 * m.ate_m:.1f}", f"{1000 * m.rte_m:.2f}",
            f"{m.dtw_m:.2f}", f"{m.action_mse:.1f}", *((f"{100 * one.near.distance_m:.1f}",) if one.near else ()),
        )  # fmt: skip
        frame.add_row(one.name, one.outcome, *cells)
    if len(measured) > _SHOWN:
        frame.add_row(f"and {len(measured) - _SHOWN} more", *[""] * (len(frame.columns) - 1))
    many = "" if len(measured) == 1 else f", medians of {len(measured)}"
    joints = Table(title=f"Joints{many}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    joints.add_column("joint", no_wrap=True)
    for header in ("MSE", "share", "lag ms", "off at rest", "range\ncommanded", "\nobserved"):
        joints.add_column(header, justify="right", no_wrap=True)
    numbers = totals(measured)
    for j, name in enumerate(measured[0].errors.names):
        offsets = [one.errors.offset[j] for one in measured if np.isfinite(one.errors.offset[j])]
        lag = numbers.get(f"lag_ms/{name}")
        joints.add_row(
            name,
            f"{numbers[f'mse/{name}']:.1f}",
            f"{numbers[f'mse_share/{name}']:.0%}",
            "" if lag is None else f"{lag:.0f}",
            f"{np.median(offsets):.2f}" if offsets else "",
            f"{np.median([one.errors.range_commanded[j] for one in measured]):.1f}",
            f"{np.median([one.errors.range_observed[j] for one in measured]):.1f}",
        )
    return [frame, joints]


def _words(measured: Sequence[Measured]) -> list[str]:
    """The diagnoses: each in full for one rollout; for many how often, and the first of each in full."""
    from so101.evaluation.diagnosis import summarise

    if len(measured) == 1:
        found = measured[0].diagnoses
        return [f"{d.name}: {d.sentence}. Look at {d.look_at}." for d in found] or ["no known failure"]
    lines = []
    for name, count in summarise([one.diagnoses for one in measured]):
        first, told = next((one, d) for one in measured for d in one.diagnoses if d.name == name)
        lines.append(f"{name}: {count} of {len(measured)}. {first.name}: {told.sentence}. Look at {told.look_at}.")
    return lines or [f"no known failure in {len(measured)} rollouts"]


def _track(config: Config, path: Path, folder: Path, numbers: dict[str, float], pictures: Sequence[Path]) -> None:
    """Into the run of the evaluation where there is one, else into a new one."""
    from so101.tracking import kept_run_id, tracked_run

    before = kept_run_id(path / "summary.json")
    with tracked_run(config, kind="eval", name=path.resolve().name, resume_id=before) as run:
        run.log(numbers)
        run.artifact(folder / "metrics.json", "metrics")
        for picture in pictures:
            run.artifact(picture, "figures")
