"""`./twin rl`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from so101.cli.family_options import MOST_SEED, FamilySettings
from so101.cli.options import with_options
from so101.cli.progress import make_reporter
from so101.errors import ConfigError

EPILOG = "Example: ./twin rl so101_tower_lift_brick --role lift --demos demos/lift.demo"


@with_options(FamilySettings)
def rl(
    settings: FamilySettings,
    name: Annotated[str, typer.Argument(metavar="TASK", help="Task of a family; ./twin tasks lists them.")],
    role: Annotated[
        str | None, typer.Option(help="Folder in the models directory.", show_default="name of the task")
    ] = None,
    demos: Annotated[
        str | None, typer.Option(metavar="FILE,...", help=".demo files: half of every batch is theirs (RLPD).")
    ] = None,
    demo_filter: Annotated[
        Literal["all", "success", "intervened"], typer.Option(help="Which rows of the demos.")
    ] = "all",
    steps: Annotated[
        int | None, typer.Option(min=1, help="Of all lanes together.", show_default="training.rl.steps")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=MOST_SEED, help="Of weights and draws.", show_default="training.rl.seed"),
    ] = None,
    init: Annotated[
        str | None, typer.Option(metavar="ROLE", help="Begin with the weights of this role, of the same family.")
    ] = None,
    intervene: Annotated[
        Literal["none", "expert"], typer.Option(help="Who takes over where the policy stalls; its rows become demos.")
    ] = "none",
    eval_only: Annotated[bool, typer.Option("--eval-only", help="Only evaluate the role on held-out seeds.")] = False,
    episodes: Annotated[
        int | None,
        typer.Option(min=1, help="Held-out episodes at the end.", show_default="training.rl.evaluation.final_episodes"),
    ] = None,
    against: Annotated[
        list[str] | None, typer.Option(metavar="ROLE", help="Draw its learning curve too; repeatable.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="That step the physics.", show_default="all CPUs")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget a training of that role that is there.")] = False,
) -> None:
    """Learn a task of a family by SAC, with demos by RLPD. Stopped or killed, the same command goes on."""
    from so101.learning.rl.session import RlJob, evaluate_role, train_rl

    files = tuple(Path(part.strip()) for part in (demos or "").split(",") if part.strip())
    if demos is not None and not files:  # as an empty variable of a shell gives
        raise ConfigError(f"--demos {demos!r} names no file; name .demo files with commas between, or leave it out")
    config = settings.load()
    console = Console()
    own = "training.rl."
    set_ = [assignment.partition("=")[0].strip() for assignment in settings.set_ or []]
    chosen = config.training.rl.for_task(name, [key.removeprefix(own) for key in set_ if key.startswith(own)])
    chosen = chosen.model_copy(update={k: v for k, v in (("steps", steps), ("seed", seed)) if v is not None})
    if episodes is not None:
        chosen = chosen.model_copy(
            update={"evaluation": chosen.evaluation.model_copy(update={"final_episodes": episodes})}
        )
    job = RlJob(
        task=settings.task(name),
        role=name if role is None else role,
        settings=chosen,
        demos=files,
        demo_filter=demo_filter,
        begin_with=init,
        intervene=intervene == "expert",
        fresh=fresh,
        against=tuple(against or ()),
        threads=threads,
    )
    with make_reporter(console) as reporter:
        text = evaluate_role(config, job, reporter) if eval_only else train_rl(config, job, reporter, time.monotonic)
    console.print(text, soft_wrap=True, markup=False, highlight=False)
