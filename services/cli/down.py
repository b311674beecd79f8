"""`./twin down` stops what `./twin up` started, `./twin ps` shows it, `./twin health` asks single services."""

from __future__ import annotations

import os
import signal
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from services.cli.up import folder_of, running_pid
from so101.cli.options import Settings, with_options

EPILOG = "Example: ./twin down"
PS_EPILOG = "Example: ./twin ps"
HEALTH_EPILOG = "Example: ./twin health control policy"

_POLL_S = 0.1


@with_options(Settings)
def down(settings: Settings) -> None:
    """Stop the services of ./twin up in reverse order, also those a killed ./twin up left behind."""
    from services.process import start_mark
    from services.supervisor import Supervisor, left_behind

    config = settings.load()
    state_dir = folder_of(config)
    pid = running_pid(state_dir)
    if pid is not None:
        with open(state_dir / "supervisor/up.log", "a+") as log:  # at its end; absent when up runs in a terminal
            os.kill(pid, signal.SIGTERM)
            while start_mark(pid) is not None:
                time.sleep(_POLL_S)
                typer.echo(log.read(), nl=False)
    specs = left_behind(state_dir)
    Supervisor(specs, state_dir, config.deploy.supervisor, say=typer.echo).stop()
    if pid is None and not specs:
        typer.echo("nothing is up")


@with_options(Settings)
def ps(settings: Settings) -> None:
    """Show the services of ./twin up and how they are."""
    from dataclasses import replace

    from services.lineup import health_check
    from services.supervisor import Supervisor, left_behind

    config = settings.load()
    state_dir = folder_of(config)
    specs = [replace(spec, health=health_check(config, spec.name)) for spec in left_behind(state_dir)]
    if not specs:
        typer.echo("nothing is up; ./twin up starts all services")
        return
    table = Table("service", "process", "state", "restarts", "log", box=None, pad_edge=False)
    for row in Supervisor(specs, state_dir, config.deploy.supervisor).status():
        table.add_row(row.name, str(row.pid or "-"), row.problem or "up", str(row.restarts), os.path.relpath(row.log))
    Console(soft_wrap=True).print(table, markup=False, highlight=False)
    if running_pid(state_dir) is None:
        typer.echo("nobody looks after them (./twin up was killed); ./twin down stops them")


@with_options(Settings)
def health(
    settings: Settings,
    services: Annotated[list[str], typer.Argument(metavar="SERVICE...", help="Which to ask.")],
) -> None:
    """Ask services how they are; exit code 1 when one is not well. The containers' health checks call this."""
    from services.lineup import health_check

    config = settings.load()
    checks = {name: health_check(config, name) for name in services}
    problems = {name: check.problem(config.deploy.supervisor.check_timeout_s) for name, check in checks.items()}
    for name, problem in problems.items():
        typer.echo(f"{name}: {problem or 'up'}")
    raise typer.Exit(any(problems.values()))
