"""`./twin replay`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from services.viewer.opening import ViewSettings
from so101.cli.options import with_options

EPILOG = "Example: ./twin replay demos/lift.demo --episode 3 --out lift_3.mp4"


@with_options(ViewSettings)
def replay(
    settings: ViewSettings,
    file: Annotated[Path, typer.Argument(metavar="FILE.demo", help="A file of episodes.")],
    episode: Annotated[int, typer.Option(min=0, metavar="K", help="Which one, from 0.")] = 0,
    speed: Annotated[float, typer.Option(min=0.01, max=100.0, metavar="X", help="Times as fast as it was.")] = 1.0,
    loop: Annotated[bool, typer.Option("--loop", help="Begin again at its end.")] = False,
    actions: Annotated[
        bool, typer.Option("--actions", help="Execute its actions again instead, and say how far that departs.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.mp4", help="Write a video of all cameras instead of showing it.")
    ] = None,
) -> None:
    """Watch an episode of a .demo file, or write it as a video."""
    from so101.cli.progress import make_reporter
    from so101.datasets.demo_file import read_demo
    from so101.families import FamilyVectorEnv
    from so101.families.replay import ReplayShow, demo_task
    from so101.families.video import write_show

    config = settings.load()
    demo = read_demo(file)
    env = FamilyVectorEnv(demo_task(demo, settings.tasks(), file), 1, autoreset=False)
    show = ReplayShow(env, demo, episode, file, actions=actions, loop=loop and out is None)
    if out is None:
        settings.run(show, config, speed=speed)
        return
    console = Console()
    with make_reporter(console) as reporter:
        frames = write_show(out, show, show.num_frames, config, reporter, speed=speed)
    console.print(f"written: {out} ({frames} frames)", soft_wrap=True, highlight=False, markup=False)
    if actions:
        gap, word, row = show.worst_gap
        console.print(f"departs at most {gap:.3g} from what was recorded" + (f" ({word}, row {row})" if word else ""))
