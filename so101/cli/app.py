"""The command table and the program's ends: results, errors without traceback, stop signals."""

from __future__ import annotations

import os
import sys
import traceback

import typer

from so101.cli import (
    compare,
    config,
    dataset,
    demo,
    expert,
    filter,
    generate,
    grasp_check,
    identify,
    merge,
    metrics,
    preview,
    probe,
    record_pseudo_real,
    render,
    report,
    rl,
    run,
    seeds,
    smooth,
    sources,
    tasks,
    test,
    train,
    verify,
    workspace,
)
from so101.cli.signals import Stopped, stoppable
from so101.errors import So101Error

PROG_NAME = "./twin"
_GO_ON = ("train", "rl", "eval", "transfer", "record-pseudo-real")  # what is done is not done again

_PANELS = {
    "Pipeline": [("run", run.run, run)],
    "Stages, in order": [
        ("seeds", seeds.seeds, seeds),
        ("generate", generate.generate, generate),
        ("filter", filter.filter, filter),
        ("smooth", smooth.smooth, smooth),
        ("verify", verify.verify, verify),
        ("render", render.render, render),
        ("dataset", dataset.dataset, dataset),
        ("report", report.report, report),
    ],
    "Learning": [
        ("merge", merge.merge, merge),
        ("sources", sources.sources, sources),
        ("train", train.train, train),
        ("rl", rl.rl, rl),
        ("metrics", metrics.metrics, metrics),
        ("compare", compare.compare, compare),
    ],
    "Task families": [
        ("tasks", tasks.tasks, tasks),
        ("preview", preview.preview, preview),
        ("probe", probe.probe, probe),
        ("expert", expert.expert, expert),
    ],
    "Tools": [
        ("config", config.config, config),
        ("grasp-check", grasp_check.grasp_check, grasp_check),
        ("identify", identify.identify, identify),
        ("record-pseudo-real", record_pseudo_real.record_pseudo_real, record_pseudo_real),
        ("workspace", workspace.workspace, workspace),
    ],
}


def make_app() -> typer.Typer:
    """The command table; others may add to theirs."""
    program = typer.Typer(
        name="twin",
        help="From a handful of SO-101 demonstrations to a LeRobot dataset of hundreds, through a simulated twin.",
        epilog="Example: ./twin run      (all stages, small preset, results in runs/default)",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for panel, commands in _PANELS.items():
        for name, function, module in commands:
            program.command(name, rich_help_panel=panel, epilog=module.EPILOG)(function)
    program.add_typer(demo.app, name="demo", rich_help_panel="Task families", epilog=demo.EPILOG)
    program.command(
        "test",
        rich_help_panel="Tools",
        epilog=test.EPILOG,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(test.test)
    return program


app = make_app()


def main(arguments: list[str] | None = None, *, program: typer.Typer | None = None, prog_name: str = PROG_NAME) -> int:
    """Run the command line of `program`; returns the exit code. Errors of the user, the data or the disk end without
    traceback. What cannot be resumed is not said to be."""
    from so101.pipeline.workers import SINGLE_THREAD
    from so101.rendering.gl import set_aside

    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    for name, value in SINGLE_THREAD.items():  # before numpy loads: the same arithmetic as in the workers
        os.environ.setdefault(name, value)
    # Threads that wait for each other sleep: on cores that others use too, a step of a training on two of them takes a
    # fifth of the time it takes when they spin [measured].
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    set_aside()
    try:
        with stoppable():
            (program or app)(args=arguments, prog_name=prog_name)
    except SystemExit as end:  # how typer ends, also after usage errors
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Stopped as stop:
        stages = {stage for panel in ("Pipeline", "Stages, in order") for stage, *_ in _PANELS[panel]}
        resumes = prog_name == PROG_NAME and (stages | set(_GO_ON)) & set(arguments[:1])
        _say(debug, "stopped; the same command resumes" if resumes else "stopped")
        return stop.exit_code
    except So101Error as error:
        _say(debug, f"error: {error}")
        return error.exit_code
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _say(debug, f"error: {where}{error.strerror or error}; --debug shows where in the program")
        return So101Error.exit_code
    return 0


def _say(debug: bool, text: str) -> None:
    if debug:
        traceback.print_exc()
    print(text, file=sys.stderr)
