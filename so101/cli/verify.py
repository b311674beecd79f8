"""`./twin verify`."""

from __future__ import annotations

from so101.cli.options import Common, with_options
from so101.cli.stage import run_one_stage

EPILOG = "Example: ./twin verify --run runs/vials"


@with_options(Common)
def verify(common: Common) -> None:
    """Replay every smoothed demo open-loop with physics and keep those that succeed again."""
    run_one_stage("verify", common)
