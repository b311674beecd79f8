"""`./twin dataset`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from so101.cli.options import Common, with_options
from so101.cli.stage import run_one_stage

EPILOG = "Example: ./twin dataset --run runs/vials; later: ./twin dataset --check runs/vials/dataset"


@with_options(Common)
def dataset(
    common: Common,
    check: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Only check this LeRobot v2.1 dataset against the format; writes nothing."),
    ] = None,
) -> None:
    """Write the verified, rendered demos as a LeRobot v2.1 dataset with GR00T's modality.json."""
    if check is None:
        run_one_stage("dataset", common)
        return
    from so101.datasets.validate import validate_dataset
    from so101.errors import DataError

    faults = validate_dataset(check)
    if faults:
        raise DataError(f"{check}: {len(faults)} faults\n" + "\n".join(f"  {fault}" for fault in faults))
    Console().print(f"{check}: no faults", soft_wrap=True, markup=False, highlight=False)
