"""`./twin policy-view`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.viewer.opening import ViewSettings
from so101.cli.family_options import MOST_SEED
from so101.cli.options import with_options
from so101.errors import ConfigError

EPILOG = "Example: ./twin policy-view expert --task so101_tower_lift_brick"


@with_options(ViewSettings)
def policy_view(
    settings: ViewSettings,
    role: Annotated[
        str, typer.Argument(metavar="ROLE", help="A policy of ./twin rl by its role, or expert, random, hold.")
    ],
    task: Annotated[
        str | None, typer.Option(metavar="TASK", help="What it is to do.", show_default="what it was trained for")
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="With the roles.", show_default="deploy.server.models_dir"),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Of the first episode; the next ones follow.")
    ] = 1_000_000,
    marks: Annotated[bool, typer.Option("--marks/--no-marks", help="Lines from the hand to subject and goal.")] = True,
) -> None:
    """Watch a policy drive: distances to the object and the goal, success, and how many episodes ended well."""
    from so101.families import FamilyVectorEnv
    from so101.families.drivers import make_driver, policy_task
    from so101.families.shows import DrivenShow

    config = settings.load()
    folder = models or Path(config.deploy.server.models_dir)
    name = task or policy_task(role, folder)
    if name is None:
        raise ConfigError(f"{role} drives any task: name one by --task, ./twin tasks lists them")
    env = FamilyVectorEnv(settings.task(name), 1, autoreset=False)
    driver = make_driver(role, env, folder)
    settings.run(DrivenShow(env, driver, seed, title=f"{role}: {name}", horizon=True, marks=marks), config)
