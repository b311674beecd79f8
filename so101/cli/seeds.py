"""`./twin seeds`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from so101.cli.options import Common, with_options
from so101.cli.stage import run_one_stage

EPILOG = (
    "Example: ./twin seeds --run runs/operator; from a recording: ./twin seeds --run runs/mine --seeds my_recording"
)


@with_options(Common)
def seeds(
    common: Common,
    seeds: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER_OR_FILE",
            help="LeRobot folder, CSV or HDF5 to read. Without it a scripted operator makes the demonstrations.",
        ),
    ] = None,
) -> None:
    """Make or import the seed demonstrations (seeds.hdf5) and say which were kept and why others were not."""
    run_one_stage("seeds", common, source=seeds)
