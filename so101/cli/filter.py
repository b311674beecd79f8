"""`./twin filter`."""

from __future__ import annotations

from so101.cli.options import Common, with_options
from so101.cli.stage import run_one_stage

EPILOG = "Example: ./twin filter --run runs/vials"


@with_options(Common)
def filter(common: Common) -> None:
    """Judge the generated demos by the geometric and the strict test (filter.json)."""
    run_one_stage("filter", common)
