"""`./twin generate`."""

from __future__ import annotations

from so101.cli.options import Common, with_options
from so101.cli.stage import run_one_stage

EPILOG = "Example: ./twin generate --run runs/vials --demos 25"


@with_options(Common)
def generate(common: Common) -> None:
    """Multiply the seeds: attempts in the twin until enough succeed or the attempts run out."""
    run_one_stage("generate", common)
