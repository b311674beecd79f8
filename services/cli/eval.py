"""`./twin eval`: a policy in closed loop in the twin, on placements nobody trained on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from so101.cli.options import Settings, default_workers, with_options
from so101.cli.progress import make_reporter
from so101.errors import ConfigError

if TYPE_CHECKING:
    from so101.config import Config

EPILOG = "Example: ./twin eval --policy embedded --role policy --set cameras.scale=0.25"

_FOLDER = Path("runs/eval")
_ONE_AT_A_TIME = ("replay", "expert")  # they serve one episode to all who ask


SeedOption = Annotated[
    int | None,
    typer.Option(min=0, help="Of the first placement.", show_default="deploy.evaluation: 1000000, held out"),
]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Worker processes.", show_default="all CPUs")]
FreshOption = Annotated[bool, typer.Option("--fresh", help="First remove the episodes that are in the folder.")]


@with_options(Settings)
def evaluate(
    settings: Settings,
    policy: Annotated[str, typer.Option(metavar="NAME", help="embedded, replay, expert, groot.")] = "embedded",
    role: Annotated[
        str | None,
        typer.Option(help="embedded: folder of the model in models/.", show_default="deploy.server.role"),
    ] = None,
    episodes: Annotated[int | None, typer.Option(min=1, show_default="deploy.evaluation: 200")] = None,
    seed: SeedOption = None,
    workers: WorkersOption = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the files go.", show_default="runs/eval/NAME")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="A policy server that runs already.", show_default="one a worker"),
    ] = None,
    demo: Annotated[Path | None, typer.Option(metavar="FILE", help="replay: a demo, or the folder of a run.")] = None,
    reference: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Demos the metrics compare with: a run, a dataset, a folder.")
    ] = None,
    fresh: FreshOption = False,
) -> None:
    """Try a policy on held-out placements, through the policy server; the same command goes on after a kill."""
    from services.evaluation.run import run_evaluation
    from services.evaluation.worker import Served
    from services.policy.options import check_policy, read_token
    from so101.evaluation.closed_loop.summary import text
    from so101.policies import PolicyOptions

    check_policy(policy)
    if server is not None and not _is_address(server):
        raise ConfigError(f"--server {server}: write it as HOST:PORT, for example 127.0.0.1:5555")
    if role is not None:
        settings = replace(settings, set_=[*(settings.set_ or []), f"deploy.server.role={json.dumps(role)}"])
    config, console = settings.load(), Console()
    seeds = placements(config, policy, seed, episodes or config.deploy.evaluation.episodes)
    workers = workers or default_workers()
    if server is not None and policy in _ONE_AT_A_TIME:
        workers = 1
    served = Served(
        policy,
        PolicyOptions(demo=demo, seed=seeds.start),
        server,
        read_token(config.deploy.client.api_token_file) if server else None,
    )
    name = config.deploy.server.role if policy == "embedded" and server is None else policy
    with make_reporter(console) as reporter:
        done = run_evaluation(
            config, served, out or _FOLDER / name, seeds, reporter, workers=workers, fresh=fresh, reference=reference
        )
    for line in (*text(done.summary), f"{done.folder.figure}, {done.folder.summary}, {done.folder.videos}"):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def placements(config: Config, policy: str, first: int | None, episodes: int) -> range:
    """Seeds from `first` on, from deploy.evaluation.first_seed without; that demos may be among them is said."""
    held_out, demos = config.deploy.evaluation.first_seed, config.skillgen.base_seed
    first = held_out if first is None else first
    seeds = range(first, first + episodes)
    if seeds.stop > demos and first < held_out and policy not in _ONE_AT_A_TIME:  # those have learned nothing
        typer.echo(f"note: demos are attempts with seeds from {demos} on; these may be among them")
    return seeds


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and 0 < int(port) < 65536
