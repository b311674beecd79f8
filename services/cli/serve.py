"""`./twin serve`: one service in the foreground."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Annotated

import typer

from so101.cli.options import Settings, with_options
from so101.errors import ConfigError, did_you_mean

SERVICES = {
    "broker": "services.work.main",
    "camera": "services.camera.main",
    "control": "services.control.main",
    "driver": "services.driver.main",
    "generator": "services.generator.main",
    "policy": "services.policy.main",
    "renderer": "services.renderer.main",
    "rig": "services.driver.rig",
}

EPILOG = "Example: ./twin serve generator --set deploy.sockets.work.connect=tcp://192.168.0.2:5560"


@with_options(Settings)
def serve(
    settings: Settings,
    context: typer.Context,
    service: Annotated[str, typer.Argument(help=f"One of {', '.join(SERVICES)}.", metavar="SERVICE")],
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run one service until it is stopped (SIGTERM or Ctrl-C).

    Options that are not listed here go to the service: ./twin serve SERVICE -- --help
    """
    if service not in SERVICES:
        known = f"services: {', '.join(SERVICES)}{did_you_mean(service, SERVICES)}"
        raise typer.BadParameter(f"no service is called {service!r}; {known}", param_hint="SERVICE")
    levels = ("debug", "info", "warning", "error")
    if log_level not in levels:
        raise ConfigError(
            f"--log-level {log_level}: must be one of {', '.join(levels)}{did_you_mean(log_level, levels)}"
        )
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S"
    )
    config = settings.load()
    raise typer.Exit(import_module(SERVICES[service]).main(config, context.args))
