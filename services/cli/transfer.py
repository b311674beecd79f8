"""`./twin transfer`: policies on pseudo-real rigs, over the servo protocol."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from services.cli.eval import FreshOption, SeedOption, WorkersOption, placements
from so101.cli.options import Settings, default_workers, with_options
from so101.cli.progress import make_reporter
from so101.errors import ConfigError

EPILOG = "Example: ./twin transfer --role plain --role cotrained --episodes 100 --set cameras.scale=0.25"


@with_options(Settings)
def transfer(
    settings: Settings,
    policy: Annotated[str, typer.Option(metavar="NAME", help="embedded, expert, groot.")] = "embedded",
    role: Annotated[
        list[str] | None,
        typer.Option(help="embedded: folder of the model in models/; repeatable.", show_default="deploy.server.role"),
    ] = None,
    strength: Annotated[
        list[float] | None,
        typer.Option(
            min=0.0, max=10.0, help="How far off the rigs are; repeatable.", show_default="deploy.transfer: 0.5, 1, 2"
        ),
    ] = None,
    rigs: Annotated[int | None, typer.Option(min=1, show_default="deploy.transfer: 10", help="Taken in turn.")] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Of a policy and strength.", show_default="deploy.transfer: 50")
    ] = None,
    seed: SeedOption = None,
    workers: WorkersOption = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the files go.", show_default="runs/transfer/NAME")
    ] = None,
    fresh: FreshOption = False,
) -> None:
    """Try policies on arms that are not quite the twin; success against how far off they are. Can be continued."""
    from services.evaluation.transfer import Candidate, lines, run_transfer
    from services.evaluation.worker import Served
    from services.policy.options import check_policy
    from so101.policies import PolicyOptions

    check_policy(policy)
    if policy == "replay":
        raise ConfigError("--policy replay: a demo fits its own placement only; policies: embedded, expert, groot")
    if role and policy != "embedded":
        raise ConfigError(f"--role is about embedded policies; --policy {policy} has none")
    given = [f"deploy.transfer.rigs={rigs}"] if rigs is not None else []
    settings = replace(settings, set_=[*(settings.set_ or []), *given])
    config = settings.load()
    seeds = placements(config, policy, seed, episodes or config.deploy.transfer.episodes)
    served = Served(policy, PolicyOptions(seed=seeds.start))
    if policy == "embedded":
        roles = dict.fromkeys(role or [config.deploy.server.role])
        candidates = [
            Candidate(
                name, replace(settings, set_=[*settings.set_, f"deploy.server.role={json.dumps(name)}"]).load(), served
            )
            for name in roles
        ]
    else:
        candidates = [Candidate(policy, config, served)]
    root = out or Path("runs/transfer") / "-".join(candidate.name for candidate in candidates)
    console = Console()
    with make_reporter(console) as reporter:
        points = run_transfer(
            candidates,
            list(dict.fromkeys(strength or config.deploy.transfer.strengths)),
            seeds,
            root,
            reporter,
            workers=workers or default_workers(),
            fresh=fresh,
        )
    for line in (
        *lines(points),
        f"{root / 'transfer.png'}, transfer.csv, transfer.json; one folder a line beside them",
    ):
        console.print(line, soft_wrap=True, markup=False, highlight=False)
