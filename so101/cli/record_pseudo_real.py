"""`./twin record-pseudo-real`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from so101.cli.options import Settings, default_workers, with_options
from so101.cli.progress import make_reporter
from so101.cli.stage import print_result

EPILOG = "Example: ./twin record-pseudo-real --episodes 20 --set cameras.scale=0.25"


@with_options(Settings)
def record_pseudo_real(
    settings: Settings,
    episodes: Annotated[int, typer.Option(min=1, help="Demos wanted.")] = 20,
    plans: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="Replay the verified demos of this run.", show_default="the scripted operator"
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Of the first placement.", show_default="deploy.transfer.demos: 20000"),
    ] = None,
    strength: Annotated[
        float | None,
        typer.Option(min=0.0, max=10.0, help="How far off the rigs are.", show_default="deploy.transfer.demos: 1"),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the files go.")] = Path("runs/pseudo_real"),
    fresh: Annotated[bool, typer.Option("--fresh", help="First remove the attempts that are in the folder.")] = False,
) -> None:
    """Record demos on arms that are not quite the twin, as a stand-in for real ones; `./twin merge` takes them."""
    from so101.evaluation.pseudo_real_demos import record_pseudo_real as record

    given = [f"deploy.transfer.demos.first_seed={seed}"] if seed is not None else []
    given += [f"deploy.transfer.demos.strength={strength}"] if strength is not None else []
    config = replace(settings, set_=[*(settings.set_ or []), *given]).load()
    console = Console()
    with make_reporter(console) as reporter:
        result = record(config, out, episodes, reporter, plans=plans, workers=default_workers(), fresh=fresh)
    print_result(console, result)
    console.print(f"dataset: {out / 'dataset'}", soft_wrap=True, highlight=False, markup=False)
