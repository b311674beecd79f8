"""`./twin merge` and `./twin sources`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from so101.cli.options import Settings, default_workers, with_options

if TYPE_CHECKING:
    from so101.config import Config
    from so101.evaluation.source_plots import SourceMotion

EPILOG = (
    "Example: ./twin merge runs/vials/dataset:1:sim my_recording:1:real --rename real:side=front --drop sim:top "
    "--out runs/both; later: ./twin sources runs/both"
)
_ALIKE = "Making sources alike"


@with_options(Settings)
def merge(
    settings: Settings,
    sources: Annotated[
        list[str], typer.Argument(metavar="FOLDER[:WEIGHT[:NAME]]...", help="LeRobot datasets, v2.1 or v3.0.")
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The merged dataset.")],
    format: Annotated[str, typer.Option(help="v2.1 (GR00T, ./twin train) or v3.0 (LeRobot since 0.4).")] = "v2.1",
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="[SOURCE:]OLD=NEW", help="Rename a camera; repeatable.", rich_help_panel=_ALIKE),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[SOURCE:]NAME", help="Leave out a camera or feature; repeatable.", rich_help_panel=_ALIKE
        ),
    ] = None,
    to_units: Annotated[
        str | None,
        typer.Option(help="Convert joints: degrees or normalized (-100..100).", rich_help_panel=_ALIKE),
    ] = None,
    units: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE=UNIT",
            help="Unit of a source whose numbers do not say: degrees, normalised, radians, pseudo_radians.",
            rich_help_panel=_ALIKE,
        ),
    ] = None,
    calibration: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE=FILE", help="LeRobot calibration of a source's arm.", rich_help_panel=_ALIKE),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="WIDTHxHEIGHT", help="Bring pictures to this size, with bars.", rich_help_panel=_ALIKE),
    ] = None,
    encode: Annotated[
        bool,
        typer.Option("--encode", help="Bring all videos to the codec of render.yaml (h264).", rich_help_panel=_ALIKE),
    ] = False,
    resample: Annotated[
        float | None, typer.Option(metavar="FPS", min=1, help="Bring sources to this rate.", rich_help_panel=_ALIKE)
    ] = None,
    task_text: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="Replace a task text; repeatable.", rich_help_panel=_ALIKE),
    ] = None,
    robot_type: Annotated[str | None, typer.Option(help="Robot type of the result.", rich_help_panel=_ALIKE)] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE=KIND", help="sim or real, where the files do not say.", rich_help_panel=_ALIKE),
    ] = None,
    allow_duplicates: Annotated[
        bool, typer.Option("--allow-duplicates", help="Take episodes that are there twice.", rich_help_panel=_ALIKE)
    ] = False,
    materialise_weights: Annotated[
        bool,
        typer.Option(
            "--materialise-weights",
            help="Repeat episodes until frames are as the weights say: for GR00T, which has none.",
        ),
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes.", show_default="all CPUs")] = None,
) -> None:
    """Merge simulated and real datasets into one, with weights. Everything is checked before anything is written."""
    from so101.cli.progress import make_reporter
    from so101.cli.stage import print_result
    from so101.datasets.merge import merge_datasets
    from so101.datasets.merge_options import parse_options, parse_source
    from so101.errors import DataError

    config, console = settings.load(), Console()
    options = parse_options(
        format=format,
        rename=rename or (),
        drop=drop or (),
        to_units=to_units,
        units=units or (),
        calibration=calibration or (),
        size=size,
        fps=resample,
        task=task_text or (),
        robot_type=robot_type,
        kind=kind or (),
        allow_duplicates=allow_duplicates,
        encode=encode,
        materialise=materialise_weights,
    )
    specs = [parse_source(text) for text in sources]
    with make_reporter(console) as reporter:
        result = merge_datasets(specs, out, options, config, reporter, workers or default_workers())
    print_result(console, result)
    try:
        _show(out, out / "sources.png", config, console)
    except DataError as error:  # of a single source, units need not be known
        console.print(f"no picture of the sources: {error}", soft_wrap=True, markup=False, highlight=False)


@with_options(Settings)
def sources(
    settings: Settings,
    dataset: Annotated[Path, typer.Argument(metavar="FOLDER", help="A merged dataset, or any LeRobot dataset.")],
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the picture here.", show_default="FOLDER/sources.png")
    ] = None,
    units: Annotated[
        str | None, typer.Option(help="Unit of the joints, where the numbers do not say.", show_default=False)
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures here.")] = None,
) -> None:
    """Show how the sources of a dataset move, as table and violins, and how often their frames are drawn."""
    from so101.datasets.unit_detection import UNITS
    from so101.errors import ConfigError
    from so101.evaluation.source_plots import source_numbers
    from so101.files import write_json

    if units is not None and units not in UNITS:
        raise ConfigError(f"--units is {units!r}; allowed are {', '.join(UNITS)}")
    found = _show(dataset, png or dataset / "sources.png", settings.load(), Console(), units)
    if json is not None:
        write_json(json, source_numbers(found))


def _show(dataset: Path, png: Path, config: Config, console: Console, units: str | None = None) -> list[SourceMotion]:
    from so101.evaluation.source_plots import source_motions, write_sources_png

    found = source_motions(dataset, config, units)
    console.print(_table(found))
    write_sources_png(png, found, f"{dataset.resolve().name}: how its sources move")
    console.print(f"picture: {png}", soft_wrap=True, markup=False, highlight=False)
    return found


def _table(found: list[SourceMotion]) -> Table:
    import numpy as np

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), caption="medians over episodes", caption_justify="left")
    table.add_column("source", overflow="fold")
    table.add_column("kind")
    for column in ("demos", "frames", "drawn", "path\nm", "time\ns", "smooth-\nness", "jaw\nstrokes"):
        table.add_column(column, justify="right", no_wrap=True)
    for source in found:
        path, time, smoothness, strokes = np.median(np.array(source.episodes), axis=0)
        cells = (f"{path:.2f}", f"{time:.1f}", f"{smoothness:.3f}", f"{strokes:.1f}")
        counts = (str(len(source.episodes)), str(source.frames), f"{source.share:.0%}")
        table.add_row(source.name, source.kind, *counts, *cells)
    return table
