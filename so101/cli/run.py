"""`./twin run`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from so101.cli.options import Common, with_options
from so101.cli.progress import make_reporter
from so101.cli.stage import print_result

SEEDED_PRESET = "recording"  # of skillgen.yaml; --preset, --demos and --set win over it

EPILOG = "Example: ./twin run --run runs/vials --demos 20"


@with_options(Common)
def run(
    common: Common,
    seeds: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER_OR_FILE",
            help="Seed demonstrations: LeRobot folder, CSV or HDF5. Without it a scripted operator makes them. "
            "With it the preset `recording` applies.",
        ),
    ] = None,
) -> None:
    """Everything: seeds, generate, filter, smooth, verify, render, dataset, report.

    Goes on where an earlier run of the same command stopped. Ends with verified, rendered demos in a LeRobot dataset.
    """
    from so101.pipeline.flow import run_pipeline

    console = Console()
    if seeds is not None and common.preset is None and SEEDED_PRESET in common.load().skillgen.presets:
        common = replace(common, preset=SEEDED_PRESET)
    config = common.load_for_run(console, source=seeds, makes_seeds=True)
    with make_reporter(console) as reporter:
        results = run_pipeline(
            config,
            common.run_folder,
            reporter=reporter,
            workers=common.worker_count,
            source=seeds,
            fresh=common.fresh,
        )
    for result in results.values():
        print_result(console, result)
    folder = common.run_folder
    console.print(f"dataset: {folder.dataset}", soft_wrap=True, highlight=False, markup=False)
    console.print(f"report:  {folder.report / 'index.html'}", soft_wrap=True, highlight=False, markup=False)
