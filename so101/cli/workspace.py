"""`./twin workspace`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from so101.cli.options import Settings, with_options

if TYPE_CHECKING:
    from so101.evaluation.workspace import Workspace

EPILOG = "Example: ./twin workspace --task cube_in_box --out maps"


@with_options(Settings)
def workspace(
    settings: Settings,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all cells here.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Write the pictures here, SVG.")] = None,
) -> None:
    """Map what the arm reaches over the table: yaws, approaches, room to the joint limits; with the start areas."""
    from so101.evaluation.maps import pictures, standalone
    from so101.evaluation.workspace import workspace as compute
    from so101.evaluation.workspace import workspace_numbers
    from so101.files import write_json, write_text

    config = settings.load()
    maps = compute(config)
    console = Console()
    console.print(_table(config.task.name, maps))
    if json is not None:
        write_json(json, workspace_numbers(maps))
    if out is not None:
        for name, picture in pictures(maps).items():
            write_text(out / f"{name}.svg", standalone(picture))
        console.print(f"The pictures are in {out}", soft_wrap=True, markup=False, highlight=False)


def _table(task: str, maps: Workspace) -> Table:
    from so101.evaluation.workspace import area_numbers

    table = Table(
        title=f"{task}: {maps.table.reached.mean():.0%} of the table is reached "
        f"{100 * maps.table.height_m:.1f} cm over the base",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for column in ("start area of", "cells\nreached", "yaws\nserved", "approaches\ndeg down", "nearest\njoint limit"):
        table.add_column(column, justify="left", no_wrap=True)
    for area in maps.areas:
        numbers = area_numbers(maps, area)
        dips, margin = numbers["dips_deg"], numbers["limit_margin"]
        table.add_row(
            area.name,
            f"{numbers['reached']} of {numbers['cells']}",
            f"{numbers['yaw_share']:.0%}",
            "none" if dips is None else f"{dips[0]:g} to {dips[1]:g}",
            "" if margin is None else f"{numbers['nearest_joint']} {margin:.0%}",
        )
    return table
