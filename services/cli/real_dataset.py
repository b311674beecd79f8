"""`./real dataset`: rollouts and recordings as a LeRobot dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from so101.cli.options import Settings, default_workers, with_options
from so101.cli.progress import make_reporter
from so101.cli.stage import print_result
from so101.errors import ConfigError, DataError, did_you_mean

EPILOG = "Example: ./real dataset runs/real/monday --outcome success --outcome unknown"


@with_options(Settings)
def dataset(
    settings: Settings,
    session: Annotated[Path, typer.Argument(metavar="SESSION", help="Folder of a session.")],
    outcome: Annotated[
        list[str] | None,
        typer.Option(
            help="Episodes that ended so: success, failure, aborted, unknown; repeatable.", show_default="success"
        ),
    ] = None,
) -> None:
    """Write the episodes of a session to SESSION/dataset, as LeRobot v2.1 (`./twin run --seeds` reads it)."""
    from so101.datasets.rollouts import OUTCOMES, SessionFolder, export_dataset

    for name in outcome or ():
        if name not in OUTCOMES:
            raise ConfigError(f"--outcome {name}: must be one of {', '.join(OUTCOMES)}{did_you_mean(name, OUTCOMES)}")
    console, folder = Console(), SessionFolder(session)
    if not session.is_dir():
        there = ", ".join(str(path.parent) for path in sorted(session.parent.glob("*/episodes"))[-5:])
        raise DataError(f"{session}: there is no such session; the newest in {session.parent}: {there or 'none'}")
    with make_reporter(console) as reporter:
        result = export_dataset(
            settings.load(), folder, reporter, outcomes=outcome or ("success",), workers=default_workers()
        )
    print_result(console, result)
    console.print(f"dataset: {folder.run.dataset}", soft_wrap=True, highlight=False, markup=False)
