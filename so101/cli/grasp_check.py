"""`./twin grasp-check`."""

from __future__ import annotations

import math

from rich.console import Console

from so101.cli.options import Settings, with_options

EPILOG = "Example: ./twin grasp-check --set scene.physics.impratio=1"


@with_options(Settings)
def grasp_check(settings: Settings) -> None:
    """Close the jaw on the object of the task, lift it, hold it; print how far it creeps in the hand."""
    from so101.tasks.grasp_check import check_grasp

    figures = check_grasp(settings.load()).summary
    Console().print(
        f"held for {figures['hold_s']:g} s, {figures['lift_m'] * 1000:.0f} mm above its place; moved "
        f"{figures['creep_m'] * 1000:.2f} mm and {math.degrees(figures['creep_rad']):.2f} degrees in the hand",
        highlight=False,
        soft_wrap=True,
    )
