"""`./twin grasp-check`."""

from __future__ import annotations

from rich.console import Console

from so101.cli.options import Settings, with_options
from so101.cli.stage import print_result

EPILOG = "Example: ./twin grasp-check --set scene.physics.impratio=1"


@with_options(Settings)
def grasp_check(settings: Settings) -> None:
    """Close the jaw on the object of the task, lift it, hold it; print how far it creeps in the hand."""
    from so101.tasks.grasp_check import check_grasp

    print_result(Console(), check_grasp(settings.load()))
