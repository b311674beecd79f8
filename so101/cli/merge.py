"""`./twin merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from so101.cli.options import Settings, default_workers, with_options
from so101.cli.sources import show_sources

EPILOG = (
    "Example: ./twin merge runs/vials/dataset:1:sim my_recording:1:real --rename real:side=front --drop sim:top "
    "--out runs/both"
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
        show_sources(out, out / "sources.png", config, console)
    except DataError as error:  # of a single source, units need not be known
        console.print(f"no picture of the sources: {error}", soft_wrap=True, markup=False, highlight=False)
