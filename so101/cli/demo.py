"""`./twin demo info | recover | merge | convert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from so101.cli.family_options import FamilySettings
from so101.cli.options import with_options

if TYPE_CHECKING:
    from so101.datasets.demo_file import DemoFile

EPILOG = "Example: ./twin demo info demos/lift_brick.demo"

app = typer.Typer(
    help="Look into .demo files, save what is whole of damaged ones, join them, convert them from and to HDF5 and "
    "LeRobot.",
    no_args_is_help=True,
)
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Out = Annotated[Path, typer.Option(metavar="PATH", help="The new file; must not exist.")]


@app.command("info", epilog=EPILOG)
def info(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=".demo files, MRLDEMO1 too.")],
    rows: Annotated[bool, typer.Option("--episodes", help="List every episode.")] = False,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write it here too.")] = None,
    debug: Debug = False,
) -> None:
    """What is in a file. Ends with an error when one is damaged, after saying what is whole."""
    from so101.datasets.demo_file import read_demo
    from so101.errors import DataError
    from so101.files import write_json

    console, damaged, facts = Console(), [], []
    for path in files:
        file = read_demo(path, strict=False)
        facts.append({"file": str(path), **_facts(file)})
        _print(console, path, file, rows)
        if file.lost:
            damaged.append(f"{path}: damaged: {file.lost}. `./twin demo recover` writes what is whole to a new file")
    if json is not None:
        write_json(json, facts)
    if damaged:
        raise DataError("\n".join(damaged))


@app.command("recover", epilog="Example: ./twin demo recover cut.demo --out whole.demo")
def recover(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The damaged file; it stays as it is.")],
    out: Out,
    task: Annotated[
        str | None, typer.Option(metavar="TASK", help="Of an MRLDEMO1 file, which does not say it.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Write every whole episode of a damaged file to a new one, and say what is lost."""
    from so101.datasets.demo_convert import recover as recover_file

    found = recover_file(file, out, task)
    if not found.lost:
        _say(f"{file}: nothing is lost, so nothing is written; {_counted(found)}")
        return
    _say(f"{out}: {_counted(found)}")
    _say(f"lost: {found.lost}")


@app.command("merge", epilog="Example: ./twin demo merge monday.demo tuesday.demo --out both.demo")
def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Of the same task, in this order.")],
    out: Out,
    debug: Debug = False,
) -> None:
    """Write the episodes of several files of one task to a new one."""
    from so101.datasets.demo_convert import merge as merge_files

    written = merge_files(files, out)
    _say(f"{out}: {written.episodes} episodes, {written.rows} rows")
    for text in written.left_out:
        _say(f"not in it: {text}")


@app.command("convert", epilog="Example: ./twin demo convert lift.demo --out lift_lerobot --render")
@with_options(FamilySettings)
def convert(
    settings: FamilySettings,
    source: Annotated[Path, typer.Argument(metavar="FROM", help="A .demo file, .hdf5 of seeds or LeRobot folder.")],
    out: Annotated[Path, typer.Option(metavar="TO", help="Likewise, by its suffix; one of the two is a .demo file.")],
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK", help="Whose words and rewards the rows get (`./twin tasks`), when FROM is silent."
        ),
    ] = None,
    render: Annotated[bool, typer.Option("--render", help="Draw the family's cameras into a LeRobot dataset.")] = False,
    accept_rate: Annotated[
        bool, typer.Option("--accept-rate", help="Take LeRobot's rows at another rate than the task's as they are.")
    ] = False,
) -> None:
    """Convert between .demo files and HDF5 seeds or LeRobot datasets. Says what could not be carried over."""
    from so101.cli.progress import make_reporter
    from so101.datasets.demo_convert import convert as convert_file

    with make_reporter(Console()) as reporter:
        written = convert_file(
            source,
            out,
            settings.load(),
            reporter,
            task=task,
            find=settings.task,
            render=render,
            accept_rate=accept_rate,
        )
    _say(f"{out}: {written.episodes} episodes, {written.rows} rows")
    for text in written.left_out:
        _say(f"not in it: {text}")


def _say(text: str) -> None:
    Console().print(text, soft_wrap=True, markup=False, highlight=False)


def _counted(file: DemoFile) -> str:
    facts = _facts(file)
    return f"{facts['episodes']} episodes, {facts['rows']} rows"


def _facts(file: DemoFile) -> dict:
    from so101.datasets.demo_file import INTERVENED

    rows = sum(episode.num_rows for episode in file.episodes)
    return {
        "task": file.header.task,
        "family": file.header.family,
        "control_hz": file.header.control_hz,
        "observation_words": file.header.widths[0],
        "actions": file.header.widths[1],
        "episodes": len(file.episodes),
        "successes": sum(episode.success for episode in file.episodes),
        "rows": rows,
        "intervened_rows": int(sum((episode.flags & INTERVENED > 0).sum() for episode in file.episodes)),
        "meta": file.header.meta,
        "lost": file.lost,
    }


def _print(console: Console, path: Path, file: DemoFile, episodes: bool) -> None:
    from so101.datasets.demo_file import INTERVENED, NO_SEED

    facts, header = _facts(file), file.header
    of = f"{header.task} at {header.control_hz:g} Hz" if header.task else "a task that it does not name (MRLDEMO1)"
    lines = [f"{path}: {of}, rows of {facts['observation_words']} words and {facts['actions']} actions"]
    if facts["rows"]:
        returns = [float(episode.reward.sum()) for episode in file.episodes]
        lengths = [episode.num_rows for episode in file.episodes]
        lines.append(
            f"  {facts['episodes']} episodes, {facts['successes']} successful, {facts['rows']} rows "
            f"({min(lengths)} to {max(lengths)} an episode), {facts['intervened_rows']} intervened; "
            f"return {min(returns):.4g} to {max(returns):.4g}"
        )
    else:
        lines.append("  no episode")
    lines += [f"  {key}: {value}" for key, value in header.meta.items()]
    console.print("\n".join(lines), soft_wrap=True, markup=False, highlight=False)
    if not episodes:
        return
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("episode", "seed", "rows", "return", "last reward", "intervened", "success"):
        table.add_column(column, justify="right")
    for number, episode in enumerate(file.episodes):
        table.add_row(
            str(number),
            "" if episode.seed == NO_SEED else str(episode.seed),
            str(episode.num_rows),
            f"{episode.reward.sum():.2f}",
            f"{episode.reward[-1]:.3f}",
            str(int((episode.flags & INTERVENED > 0).sum())),
            "yes" if episode.success else "no",
        )
    console.print(table)
