"""`./twin render`."""

from __future__ import annotations

from so101.cli.options import Common, with_options
from so101.cli.stage import run_one_stage

EPILOG = "Example: ./twin render --run runs/vials --fresh --set render.setting=shadows"


@with_options(Common)
def render(common: Common) -> None:
    """Render the verified demos with all cameras to h264 videos."""
    run_one_stage("render", common)
