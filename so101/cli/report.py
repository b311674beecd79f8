"""`./twin report`."""

from __future__ import annotations

from so101.cli.options import Common, with_options
from so101.cli.stage import run_one_stage

EPILOG = "Example: ./twin report --run runs/vials"


@with_options(Common)
def report(common: Common) -> None:
    """Write one HTML page: counts, causes of failure, coverage, plots, sample frames and videos."""
    run_one_stage("report", common)
