"""`./real`: a policy on the arm, and what the arm needs besides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from services.cli import calibrate, cameras, real_dataset, record, status, teleop
from so101.cli.app import main as run_program
from so101.cli.options import Settings, with_options
from so101.errors import ConfigError, did_you_mean

SERVED = ("replay", "expert", "embedded", "groot")  # policies ./real can start a server of
EPILOG = "Example: ./real --sim --policy replay --arm      (the same without --sim moves the real arm)"

app = typer.Typer(
    name="real",
    epilog=EPILOG,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
@with_options(Settings)
def rollouts(
    settings: Settings,
    context: typer.Context,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"{', '.join(SERVED)}: a server is started unless one answers; remote: that of deploy.client.",
            show_default="deploy.server.policy",
        ),
    ] = None,
    arm: Annotated[bool, typer.Option("--arm", help="Move the arm. Without it: a dry run, nothing is sent.")] = False,
    sim: Annotated[bool, typer.Option("--sim", help="A simulated arm on a virtual servo bus.")] = False,
    pseudo_real: Annotated[
        int | None, typer.Option(metavar="SEED", help="With --sim: an arm that differs from the twin.")
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Rollouts.")] = 1,
    seconds: Annotated[
        float | None, typer.Option(min=0.1, help="A rollout is stopped after this.", show_default="deploy.control")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the first placement (expert, and --sim).")] = 0,
    demo: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="replay: a demo, or the folder of a run: its newest verified."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Folder of the session.", show_default="the time")] = None,
) -> None:
    """Run a policy on the arm, 30 times a second, and keep every rollout as an episode."""
    if context.invoked_subcommand is not None:
        return
    from services.cli.up import settings_arguments
    from services.real.parts import Setting
    from services.real.session import Wishes, run_session
    from so101.control.demos import chosen_demo, make_demo
    from so101.errors import DataError

    if seconds is not None:
        settings = replace(settings, set_=[*(settings.set_ or []), f"deploy.control.max_episode_s={seconds}"])
    config = settings.load()
    chosen = policy or config.deploy.server.policy
    if chosen not in (*SERVED, "remote"):
        known = (*SERVED, "remote")
        raise ConfigError(
            f"--policy {chosen}: no such policy; policies: {', '.join(known)}{did_you_mean(chosen, known)}"
        )
    if pseudo_real is not None and not sim:
        raise ConfigError("--pseudo-real is about a simulated arm: add --sim, or leave it out")
    path = found = None
    if chosen == "replay":
        sessions = Path(config.deploy.control.sessions)
        try:
            path, found = chosen_demo(config, demo, sessions)
        except DataError:
            if demo is not None:
                raise
            typer.echo("no demo to replay: the scripted operator makes one (some seconds)")
            path, found = chosen_demo(config, make_demo(config, sessions), sessions)
        typer.echo(f"replaying {path}")
        if found.task != config.task.name:
            settings = replace(settings, task=found.task)
            config = settings.load()
    if not arm:
        typer.echo("dry run: nothing is sent to the arm (--arm moves it)")
    server = None if chosen == "remote" else ["--policy", chosen]
    if chosen == "replay":
        server += ["--demo", str(path)]
    if chosen == "expert":
        server += ["--seed", str(seed)]
    setting = Setting(arm, sim, pseudo_real, server, settings_arguments(settings))
    wishes = Wishes(setting, chosen, episodes=episodes, seed=seed, demo=found, demo_path=path, name=name)
    outcomes = run_session(config, wishes, say=typer.echo)
    ended = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.counts.items()))
    typer.echo(f"{ended or 'no rollout'}; {outcomes.folder.root}")
    raise typer.Exit(outcomes.exit_code)


for _name, _function, _module in (
    ("status", status.status, status),
    ("cameras", cameras.cameras, cameras),
    ("calibrate", calibrate.calibrate, calibrate),
    ("teleop", teleop.teleop, teleop),
    ("record", record.record, record),
    ("dataset", real_dataset.dataset, real_dataset),
):
    app.command(_name, epilog=_module.EPILOG)(_function)


def main(arguments: list[str]) -> int:
    """Run the command line; returns the exit code."""
    return run_program(arguments, program=app, prog_name="./real")
