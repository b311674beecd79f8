"""`./twin view`."""

from __future__ import annotations

from typing import Annotated

import typer

from services.viewer.opening import ViewSettings
from so101.cli.family_options import MOST_SEED
from so101.cli.options import with_options

EPILOG = "Example: ./twin view so101_tower_cube_in_bowl --seed 7      (sliders move the joints; --page for a browser)"


@with_options(ViewSettings)
def view(
    settings: ViewSettings,
    task: Annotated[str, typer.Argument(metavar="TASK", help="As ./twin tasks lists them.")],
    seed: Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Of the first start.")] = 0,
) -> None:
    """Look at a task and move the arm by sliders: in a window, or as a page of this machine where there is none."""
    from so101.families import FamilyVectorEnv
    from so101.families.drivers import Hold
    from so101.families.shows import DrivenShow

    config = settings.load()
    env = FamilyVectorEnv(settings.task(task), 1, autoreset=False)
    show = DrivenShow(env, Hold(env), seed, title=task, horizon=False)
    settings.run(show, config)
