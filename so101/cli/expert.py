"""`./twin expert`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from so101.cli.family_options import MOST_SEED, FamilySettings
from so101.cli.options import with_options
from so101.cli.progress import make_reporter

if TYPE_CHECKING:
    import numpy as np

    from so101.families import FamilyVectorEnv
    from so101.families.expert_run import ExpertReport

EPILOG = "Example: ./twin expert so101_tower_lift_brick --episodes 50 --seed 10000 --out demos/lift.demo"


@with_options(FamilySettings)
def expert(
    settings: FamilySettings,
    task: Annotated[str, typer.Argument(metavar="TASK", help="Task of a family; ./twin tasks lists them.")],
    episodes: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    seed: Annotated[
        int, typer.Option(min=0, max=MOST_SEED, help="Of the first episode's start; each later one adds 1.")
    ] = 0,
    out: Annotated[Path | None, typer.Option(metavar="FILE.demo", help="Keep the successful episodes here.")] = None,
    keep_failures: Annotated[bool, typer.Option("--keep-failures", help="Keep the failed ones too.")] = False,
    noise: Annotated[
        float, typer.Option(min=0, help="Sigma of Gaussian noise on actions while the jaw is open, of [-1, 1].")
    ] = 0.0,
    flat_noise: Annotated[
        bool, typer.Option("--flat-noise", help="Do not let the noise fade while the hand comes down.")
    ] = False,
    close_steps: Annotated[
        int | None, typer.Option(min=1, help="Steps in which the jaw is closed.", show_default="the family's")
    ] = None,
    z_grasp: Annotated[
        float | None,
        typer.Option(min=-0.1, max=0.1, help="Hand over the object's centre, m.", show_default="the family's"),
    ] = None,
    jaw_open: Annotated[
        float | None,
        typer.Option(min=-0.2, max=1.8, metavar="RAD", help="Jaw while it comes down.", show_default="the family's"),
    ] = None,
    feedback: Annotated[
        bool, typer.Option("--feedback", help="Command from where the joints are, not from the last command.")
    ] = False,
    policy: Annotated[
        str | None, typer.Option(metavar="ROLE", help="This policy drives first; what the expert does is INTERVENED.")
    ] = None,
    handover_mm: Annotated[
        float | None,
        typer.Option(min=0, help="Hand to object where the policy gives way.", show_default="the family's"),
    ] = None,
    policy_steps: Annotated[
        int | None, typer.Option(min=1, help="After these it gives way anyway.", show_default="the family's")
    ] = None,
    lanes: Annotated[int | None, typer.Option(min=1, help="Episodes at a time.", show_default="the family's")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Threads that step the physics.", show_default="all CPUs")
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures here.")] = None,
) -> None:
    """Do a task by waypoints and inverse kinematics: how often it works, and demos for learning."""
    from so101.datasets.demo_file import DemoWriter
    from so101.datasets.demo_states import header_of
    from so101.families import FamilyVectorEnv
    from so101.families.expert import ExpertOptions, settings_of
    from so101.families.expert_run import ExpertRun, with_changes
    from so101.files import check_writable, write_json

    for path in filter(None, (out, json)):
        check_writable(path)
    config, found = settings.load(), settings.task(task)
    declared, control = found.family.declaration.expert, found.family.declaration.control
    wanted = lanes or (declared.lanes if declared else 1)
    horizon = round(declared.horizon_s / control.control_dt) if declared and declared.horizon_s else None
    env = FamilyVectorEnv(found, min(wanted, episodes), horizon=horizon, autoreset=False, threads=workers)
    changed = with_changes(
        settings_of(env), control_dt=env.control_dt, close_steps=close_steps, z_grasp_m=z_grasp, jaw_open_rad=jaw_open
    )
    act = None
    if policy is not None:
        from so101.learning.rl.session import role_folder

        act = _policy(role_folder(config, policy), env)
    options = ExpertOptions(noise=noise, flat_noise=flat_noise, feedback=feedback)
    run = ExpertRun(
        env, options, policy=act, settings=changed, seed=seed, policy_steps=policy_steps,
        handover_m=handover_mm / 1e3 if handover_mm is not None else None,
    )  # fmt: skip
    about = {"made_by": "./twin expert", "options": {"noise": noise, "flat_noise": flat_noise, "feedback": feedback}}
    writer = DemoWriter(out, header_of(env, about)) if out is not None else None
    console = Console()
    with make_reporter(console) as reporter:
        report = run.run(
            episodes, seed, keep=writer.append if writer else None, keep_failures=keep_failures, reporter=reporter
        )
    console.print(_table(report))
    if writer is not None:
        console.print(f"{out}: {writer.num_episodes} episodes", soft_wrap=True, markup=False, highlight=False)
    if json is not None:
        write_json(json, report.to_json())


def _policy(folder: Path, env: FamilyVectorEnv) -> Callable[[np.ndarray], np.ndarray]:
    from so101.errors import ConfigError
    from so101.learning.rl.checkpoint import load_policy

    policy = load_policy(folder)
    if list(policy.observation_names) != list(env.observation_names):
        raise ConfigError(
            f"{folder}: trained for {policy.task} ({len(policy.observation_names)} words); {env.task.name} shows "
            f"{len(env.observation_names)} others: name a policy of its family"
        )
    return policy.act


def _table(report: ExpertReport) -> Table:
    figures = report.to_json()
    low, high = figures["wilson_95"]
    table = Table(title=f"{report.task}: scripted expert", title_justify="left", box=SIMPLE_HEAD, show_header=False)
    held = report.hold_steps * report.control_dt
    table.add_row("success", f"{report.successes} of {len(report.episodes)}, {figures['rate']:.1%}")
    table.add_row("Wilson 95 %", f"{low:.1%} to {high:.1%}")
    table.add_row("seeds", f"{figures['seeds'][0]} to {figures['seeds'][1]}")
    table.add_row("a success", f"goal held for {report.hold_steps} steps, {held:.2f} s")
    if figures["median_steps_of_success"] is not None:
        steps = figures["median_steps_of_success"]
        table.add_row("its length", f"median {steps:.0f} steps, {steps * report.control_dt:.1f} s")
    table.add_row("grasped again", f"{figures['second_tries']} episodes")
    table.add_row("failures by last stage", ", ".join(f"{n} {stage}" for stage, n in report.failures.items()) or "none")
    table.add_row("speed", f"{report.episodes_per_minute:.0f} episodes/min")
    return table
