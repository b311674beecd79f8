"""Options of the subcommands around task families."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from so101.cli.options import SETTINGS_PANEL

if TYPE_CHECKING:
    from so101.config import Config
    from so101.families import FamilyTask


MOST_SEED = 2**31 - 1  # what numpy, torch and the 64 bit word of a .demo all take, with room for later episodes


@dataclass(frozen=True)
class FamilySettings:
    """Where families and the other settings come from. For `so101.cli.options.with_options`."""

    configs: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the YAML files and the folder families.",
            rich_help_panel=SETTINGS_PANEL,
            show_default="configs/",
        ),
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="Override one value of the eleven files; repeatable, later ones win. Value in YAML.",
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

        return load_config(self.configs, overrides=self.set_ or [])

    def tasks(self) -> dict[str, FamilyTask]:
        """All tasks by full name.

        Raises:
            ConfigError: a file is not valid.
        """
        from so101.families import load_tasks

        return load_tasks(self.configs, self.load())

    def task(self, name: str) -> FamilyTask:
        """A task by its full name.

        Raises:
            ConfigError: there is none of that name, or a file is not valid.
        """
        from so101.families.declaration import task_of

        return task_of(self.tasks(), name)
