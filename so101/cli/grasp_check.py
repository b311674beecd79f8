"""`./twin grasp-check`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from so101.cli.options import Settings, with_options
from so101.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from so101.tasks.grasp_check import GraspReport, Trial

EPILOG = "Example: ./twin grasp-check --task so101_tower_lift_brick     (or --all: every task with a grasp)"


@with_options(Settings)
def grasp_check(
    settings: Settings,
    all_: Annotated[
        bool, typer.Option("--all", help="Every task with a grasp: those of task.yaml and of the families.")
    ] = False,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures here.")] = None,
) -> None:
    """Close the jaw on the task's object, lift it, hold it: how far it creeps, and that an open jaw holds nothing."""
    from so101.files import write_json
    from so101.tasks.grasp_check import GraspNotHeld

    console, reports = Console(), []
    checks = _all(settings) if all_ else [_one(settings)]
    for check in checks:
        reports.append(check())
        console.print(_table(reports[-1]))
    if json is not None:
        write_json(json, [report.to_json() for report in reports] if all_ else reports[0].to_json())
    failed = [report for report in reports if report.faults]
    if failed:
        raise GraspNotHeld(
            "\n".join(
                f"grasp-check {report.task}: {len(report.faults)} of the checks failed; see impratio and the contacts "
                f"{'of its family' if report.task.startswith('so101_') else 'in scene.yaml'}\n"
                + "\n".join(report.faults)
                for report in failed
            )
        )


def _one(settings: Settings) -> Callable[[], GraspReport]:
    """The check of --task, a task of task.yaml or of a family."""
    from so101.families import load_tasks
    from so101.families.grasp_check import check_family_grasp
    from so101.families.scene import workshop
    from so101.tasks.grasp_check import check_grasp

    plain = replace(settings, task=None).load()
    if settings.task is None or settings.task in plain.task.tasks:
        return partial(check_grasp, settings.load())
    tasks = load_tasks(settings.configs, plain)
    if settings.task not in tasks:
        known = [*plain.task.tasks, *tasks]
        raise ConfigError(
            f"--task: unknown task {settings.task!r}; there are {', '.join(known)}{did_you_mean(settings.task, known)}"
        )
    task = tasks[settings.task]
    if task.family.declaration.workshop_task is not None:
        return partial(check_grasp, workshop(task.family))
    return partial(check_family_grasp, task)


def _all(settings: Settings) -> list[Callable[[], GraspReport]]:
    from so101.families import load_tasks
    from so101.families.grasp_check import grasp_tasks

    plain = replace(settings, task=None).load()
    names = [*plain.task.grasp_check.offsets_m, *grasp_tasks(load_tasks(settings.configs, plain))]
    return [_one(replace(settings, task=name)) for name in names]


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
