"""`./twin tasks`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from so101.cli.family_options import FamilySettings
from so101.cli.options import with_options

if TYPE_CHECKING:
    from so101.families import FamilyTask

EPILOG = "Example: ./twin tasks so101_tower_lift_brick"


@with_options(FamilySettings)
def tasks(
    settings: FamilySettings,
    name: Annotated[str | None, typer.Argument(metavar="TASK", help="Tell all of this task.")] = None,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write it here too.")] = None,
) -> None:
    """List the families and their tasks: goal, control rate, horizon, what is seen, language."""
    from so101.families.words import task_facts
    from so101.files import write_json

    chosen = list(settings.tasks().values()) if name is None else [settings.task(name)]
    facts = [task_facts(task) for task in chosen]
    console = Console()
    console.print(_table(facts) if name is None else _details(chosen[0], facts[0]))
    if json is not None:
        write_json(json, facts)


def _table(facts: list[dict[str, Any]]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for number, task in enumerate(facts):
        if number == 0 or facts[number - 1]["family"] != task["family"]:
            if number:
                table.add_section()
            table.add_row(
                f"[bold]{task['family']}[/]",
                f"[dim]{task['control_hz']:g} Hz, {task['horizon_steps']} steps ({task['horizon_s']:g} s), "
                f"{task['observation_words']} words seen[/]",
            )
        table.add_row(f"  {task['name']}", f"{task['language']}\n[dim]{task['goal']}[/]")
    table.caption = f"{len({task['family'] for task in facts})} families, {len(facts)} tasks of configs/families"
    table.caption_justify = "left"
    return table


def _details(task: FamilyTask, facts: dict[str, Any]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    reward = task.family.declaration.reward
    rows = {
        "task": task.name,
        "family": task.family.name,
        "language": facts["language"],
        "goal": facts["goal"],
        "time": f"{facts['horizon_steps']} steps of {1e3 / facts['control_hz']:.3g} ms ({facts['control_hz']:g} Hz, "
        f"{facts['physics_steps_per_control']} physics steps each): {facts['horizon_s']:g} s",
        "objects": "; ".join(f"{name} {where}" for name, where in facts["objects"].items()) or "none",
        "absent": ", ".join(facts["absent"]) or "none",
        "seen": f"{facts['observation_words']} words: "
        + ", ".join(f"{group} {size}" for group, size in facts["observation"].items()),
        "action": '6 words in [-1, 1], each onto its actuator\'s range: 0 is the middle, not "stay"',
        "reward": reward.mode + _weights(reward),
        "cameras": ", ".join(facts["cameras"]) or "none",
        "gymnasium": facts["gymnasium_id"],
    }
    for word, text in rows.items():
        table.add_row(word, text)
    return table


def _weights(reward: Any) -> str:
    terms = ("goal", "reach", "grasp", "close")
    if not hasattr(reward, terms[0]):
        return ""
    return ": " + ", ".join(f"{term} {getattr(reward, term).weight:g}" for term in terms)
