"""`./twin smooth`."""

from __future__ import annotations

from so101.cli.options import Common, with_options
from so101.cli.stage import run_one_stage

EPILOG = "Example: ./twin smooth --run runs/vials"


@with_options(Common)
def smooth(common: Common) -> None:
    """Smooth the arm joints of the kept demos; the jaw stays as it is."""
    run_one_stage("smooth", common)
