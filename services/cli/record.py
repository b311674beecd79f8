"""`./real record`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from so101.cli.options import Settings, default_workers, with_options
from so101.cli.progress import make_reporter
from so101.cli.stage import print_result
from so101.errors import ConfigError

EPILOG = "Example: ./real record --arm --episodes 20 --name monday      (again: goes on where it ended)"


@with_options(Settings)
def record(
    settings: Settings,
    arm: Annotated[bool, typer.Option("--arm", help="Move the follower; nothing is recorded without.")] = False,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes in the session, those already there included.")] = 10,
    name: Annotated[str | None, typer.Option(help="Folder of the session.", show_default="the time")] = None,
    leader_port: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="Serial port of the leader arm.", show_default="robot.leader.port"),
    ] = None,
    sim: Annotated[bool, typer.Option("--sim", help="The follower is a simulated arm.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="With --sim: of the first placement.")] = 0,
) -> None:
    """Record episodes with the leader arm; the result is a LeRobot dataset (`./twin run --seeds` reads it).

    Keys: space begins an episode, and pauses it; s ends and keeps it; f throws it away; q ends.
    """
    from services.cli.up import settings_arguments
    from services.real.parts import Setting
    from services.real.recording import KEPT, RecordWishes, run_recording
    from so101.datasets.demo import list_demos
    from so101.datasets.rollouts import export_dataset

    if not arm:
        raise ConfigError("record moves the follower arm: say --arm. ./real teleop tries it without recording")
    setting = Setting(arm=True, sim=sim, service_settings=settings_arguments(settings))
    config = settings.load()
    wishes = RecordWishes(setting, episodes, seed=seed, leader_port=leader_port, name=name)
    folder, exit_code = run_recording(config, wishes, say=typer.echo)
    if list_demos(folder.episodes):
        console = Console()
        with make_reporter(console) as reporter:
            print_result(console, export_dataset(config, folder, reporter, outcomes=KEPT, workers=default_workers()))
        console.print(f"dataset: {folder.run.dataset}", soft_wrap=True, highlight=False, markup=False)
    raise typer.Exit(exit_code)
