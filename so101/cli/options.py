"""Options that many subcommands share."""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from so101.config import Config
    from so101.pipeline.run_folder import RunFolder

SETTINGS_PANEL = "Settings"


def default_workers() -> int:
    """The CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Settings:
    """Where the configuration comes from and what overrides it."""

    configs: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the eleven YAML files.", rich_help_panel=SETTINGS_PANEL, show_default="configs/"
        ),
    ] = None
    preset: Annotated[
        str | None,
        typer.Option(help="A preset of skillgen.yaml, for example full.", rich_help_panel=SETTINGS_PANEL),
    ] = None
    rig: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Servos of one real arm, over robot.yaml; ./twin identify writes it.",
            rich_help_panel=SETTINGS_PANEL,
        ),
    ] = None
    task: Annotated[
        str | None,
        typer.Option(
            help="A task of task.yaml; short for --set task.name=TASK. Without it: that of the run folder or of the "
            "recording, else of task.yaml.",
            rich_help_panel=SETTINGS_PANEL,
        ),
    ] = None
    demos: Annotated[
        int | None,
        typer.Option(
            help="Verified demos wanted; short for --set skillgen.target_demos=N, with room for attempts that fail.",
            rich_help_panel=SETTINGS_PANEL,
        ),
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="Override one value; repeatable, later ones win. Value in YAML.",
            rich_help_panel=SETTINGS_PANEL,
        ),
    ] = None
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=SETTINGS_PANEL)
    ] = False

    def load(self) -> Config:
        """The validated configuration.

        Raises:
            ConfigError: all faults.
        """
        from so101.config import load_config

        overrides = [f"task.name={self.task}"] if self.task is not None else []
        overrides += [f"skillgen.target_demos={self.demos}"] if self.demos is not None else []
        overrides += self.set_ or []
        config = load_config(self.configs, preset=self.preset, rig=self.rig, overrides=overrides)
        skillgen = config.skillgen
        if self.demos is None or not skillgen.generation_guarantee or self.sets("skillgen.max_attempts"):
            return config
        enough = math.ceil(skillgen.target_demos * skillgen.attempts_per_demo)
        if enough <= skillgen.max_attempts:
            return config
        overrides.append(f"skillgen.max_attempts={enough}")
        return load_config(self.configs, preset=self.preset, rig=self.rig, overrides=overrides)

    def sets(self, key: str) -> bool:
        """Whether a --set gives `key`."""
        return any(assignment.partition("=")[0].strip() == key for assignment in self.set_ or [])


@dataclass(frozen=True)
class Common(Settings):
    """`Settings` and what every stage takes."""

    run: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the run.")] = Path("runs/default")
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes.", show_default="all CPUs")] = None
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="First remove what this command and later stages made in the folder."),
    ] = False

    def load_for_run(self, console: Console, *, source: Path | None, makes_seeds: bool) -> Config:
        """The configuration; its task is that of the recording or of the run folder when no option names one.

        Raises:
            ConfigError, DataError, RunFolderError: as `load` and `so101.pipeline.task_choice.choose_task`.
        """
        from so101.pipeline.task_choice import choose_task

        config = self.load()
        if self.task is not None or self.sets("task.name"):
            return config
        task, why = choose_task(config, self.run_folder, source=source, makes_seeds=makes_seeds, fresh=self.fresh)
        if why:
            console.print(why, soft_wrap=True, markup=False, highlight=False)
        return config if task == config.task.name else replace(self, task=task).load()

    @property
    def run_folder(self) -> RunFolder:
        from so101.pipeline.run_folder import RunFolder

        return RunFolder(self.run)

    @property
    def worker_count(self) -> int:
        return self.workers or default_workers()


def with_options(group: type[Settings]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make ``function(group_instance, *own_options)`` a command that takes the fields of `group` as options too."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        hints = inspect.get_annotations(group, eval_str=True) | {
            name: hint
            for base in group.__mro__[:-1]
            for name, hint in inspect.get_annotations(base, eval_str=True).items()
        }
        shared = [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
            for f in fields(group)
        ]

        @functools.wraps(function)
        def command(**values: Any) -> Any:
            chosen = group(**{f.name: values.pop(f.name) for f in fields(group)})
            return function(chosen, **values)

        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + shared
        command.__signature__ = inspect.Signature(parameters)
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate
