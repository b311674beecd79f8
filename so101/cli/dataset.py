"""`./twin dataset`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from so101.cli.options import Common, with_options
from so101.cli.progress import make_reporter
from so101.cli.stage import run_one_stage

EPILOG = "Example: ./twin dataset --run runs/vials; later: ./twin dataset --check runs/vials/dataset"


@with_options(Common)
def dataset(
    common: Common,
    check: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Only check this LeRobot v2.1 dataset, check by check; writes nothing."),
    ] = None,
) -> None:
    """Write the verified, rendered demos as a LeRobot v2.1 dataset with GR00T's modality.json."""
    if check is None:
        run_one_stage("dataset", common)
        return
    from so101.datasets.checks.table import report_lines
    from so101.datasets.validate import check_dataset
    from so101.errors import DataError

    console = Console()
    with make_reporter(console) as reporter:
        report = check_dataset(check, common.load(), reporter=reporter)
    console.print("\n".join(report_lines(report)), soft_wrap=True, markup=False, highlight=False)
    if report.errors:
        raise DataError(f"{check}: {len(report.errors)} faults; what each is and its fix is said above")
