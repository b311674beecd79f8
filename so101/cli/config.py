"""`./twin config`."""

from __future__ import annotations

from typing import Annotated

import typer

from so101.cli.options import Settings, with_options
from so101.errors import ConfigError, did_you_mean

EPILOG = "Example: ./twin config skillgen --preset full --set skillgen.nn_k=5"


@with_options(Settings)
def config(
    settings: Settings,
    section: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SECTION]...", help="Sections to show; all without.", show_default=False),
    ] = None,
) -> None:
    """Check the configuration and print it as YAML with presets and overrides applied."""
    import yaml

    values = settings.load().model_dump(mode="json")
    for name in section or []:
        if name not in values:
            known = f"sections: {', '.join(values)}{did_you_mean(name, values)}"
            raise ConfigError(f"unknown section {name!r}; {known}")
    shown = {name: values[name] for name in section} if section else values
    typer.echo(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=120), nl=False)
