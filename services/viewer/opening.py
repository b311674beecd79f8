"""Options of everything that is watched, and the window or page that they choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from so101.cli.family_options import FamilySettings
from so101.config import Config
from so101.families.viewer import Front, Show, run_show


@dataclass(frozen=True)
class ViewSettings(FamilySettings):
    """`FamilySettings` and where a show is seen."""

    page: Annotated[bool, typer.Option("--page", help="Show it in a browser even where a window could be opened.")] = (
        False
    )
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Of the page; 0: any free one.", show_default="deploy.viewer.port"),
    ] = None

    def run(self, show: Show, config: Config, *, speed: float = 1.0, stays: bool = True) -> None:
        """Show it in a window where there is a display, else as a page of this machine, until the person ends it.

        Raises:
            SimulationError, ViewerFault: neither works.
        """
        front = open_front(show, config, page=self.page, port=self.port)
        try:
            run_show(show, front, speed=speed, stays=stays)
        finally:
            front.close()


def open_front(show: Show, config: Config, *, page: bool, port: int | None) -> Front:
    """A window, or a page whose address is printed.

    Raises:
        SimulationError, ViewerFault: it cannot be opened.
    """
    from so101.families.window import HELP, Window, display_present

    if display_present() and not page and port is None:
        typer.echo(HELP)
        return Window(show)
    from services.viewer.page_front import PageFront

    front = PageFront(show, config, port)
    typer.echo(f"open {front.url} in a browser of this machine; Ctrl-C ends it")
    return front
