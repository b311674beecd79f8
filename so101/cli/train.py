"""`./twin train`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from so101.cli.options import Settings, default_workers, with_options
from so101.cli.progress import make_reporter

EPILOG = "Example: ./twin train --run runs/default"


@with_options(Settings)
def train(
    settings: Settings,
    run: Annotated[Path, typer.Option(metavar="FOLDER", help="Run whose dataset is learned from.")] = Path(
        "runs/default"
    ),
    dataset: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A LeRobot v2.1 dataset instead of that of the run.")
    ] = None,
    policy: Annotated[
        Literal["embedded", "groot"], typer.Option(help="Our own policy, or a fine-tune of GR00T N1.6.")
    ] = "embedded",
    role: Annotated[
        str | None, typer.Option(help="Folder in the models directory.", show_default="deploy.server.role")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Learn from the first so many episodes.", show_default="all")
    ] = None,
    begin_with: Annotated[
        str | None,
        typer.Option("--from", metavar="ROLE", help="Begin with the weights of this role, as for a few real demos."),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget a training of that role that is there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="groot: show command and files, start nothing.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="CPUs to use.", show_default="all")] = None,
) -> None:
    """Train a policy on a dataset. Stopped or killed, the same command goes on."""
    config = settings.load()
    console = Console()
    folder = dataset or run / "dataset"

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False, highlight=False)

    if policy == "groot":
        from so101.errors import ConfigError
        from so101.learning.groot import train_groot

        given = {"--role": role, "--episodes": episodes, "--from": begin_with, "--fresh": fresh, "--workers": workers}
        if ours := [name for name, value in given.items() if value]:
            raise ConfigError(
                f"{', '.join(ours)}: of the embedded policy only; what GR00T trains is set in training.groot and by "
                "--dataset or --run"
            )
        train_groot(config, folder, dry_run=dry_run, say=say)
        return
    from so101.learning.session import train_embedded

    role = config.deploy.server.role if role is None else role

    with make_reporter(console) as reporter:
        summary = train_embedded(
            config, folder, role, episodes=episodes, begin_with=begin_with, fresh=fresh,
            workers=workers or default_workers(), reporter=reporter, clock=time.monotonic,
        )  # fmt: skip
    say(summary)
