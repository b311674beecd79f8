"""`./twin grasp-check`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from so101.cli.options import Settings, with_options

if TYPE_CHECKING:
    from so101.tasks.grasp_check import GraspReport, Trial

EPILOG = "Example: ./twin grasp-check --task cube_in_box"


@with_options(Settings)
def grasp_check(
    settings: Settings,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures here.")] = None,
) -> None:
    """Close the jaw on the task's object, lift it, hold it: how far it creeps, and that an open jaw holds nothing."""
    from so101.files import write_json
    from so101.tasks.grasp_check import GraspNotHeld, check_grasp

    report = check_grasp(settings.load())
    Console().print(_table(report))
    if json is not None:
        write_json(json, report.to_json())
    if report.faults:
        raise GraspNotHeld(
            f"grasp-check {report.task}: {len(report.faults)} of the checks failed; see impratio and the contacts in "
            "scene.yaml\n" + "\n".join(report.faults)
        )


def _table(report: GraspReport) -> Table:
    table = Table(
        title=f"{report.task}: held for {report.hold_s:g} s, allowed creep {report.max_creep_m * 1e3:g} mm",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for column in ("jaw", "offset\nmm", "dip\ndeg", "lift\nmm", "creep\nmm", "turn\ndeg", "squeeze\nN", "outcome"):
        table.add_column(column, justify="left" if column in ("jaw", "outcome") else "right", no_wrap=True)
    for trial in report.trials:
        table.add_row("closed", *_cells(trial))
    table.add_section()
    table.add_row("open (control)", *_cells(report.jaw_open))
    table.add_row("far (control)", *[""] * 6, f"{report.far_contacts} contacts")
    table.add_section()
    for trial in report.soft_friction:
        table.add_row("closed*", *_cells(trial))
    table.caption, table.caption_justify = "* pyramidal cone, impratio 1: for comparison, not judged", "left"
    return table


def _cells(trial: Trial) -> list[str]:
    from so101.tasks.grasp_check import LOST

    where = [f"{trial.offset_m * 1e3:.0f}", f"{trial.dip_deg:.0f}"]
    if not trial.measured:
        return [*where, "", "", "", "", trial.outcome]
    figures = [f"{trial.lifted_m * 1e3:.0f}", f"{trial.creep_m * 1e3:.2f}", f"{math.degrees(trial.creep_rad):.1f}"]
    if trial.outcome == LOST:  # what is not in the hand cannot creep there
        figures[1:] = ["", ""]
    return [*where, *figures, f"{trial.squeeze_n:.1f}", trial.outcome]
