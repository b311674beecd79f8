"""`./twin keys`: CURVE keys for the sockets between machines or containers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from so101.cli.options import Settings, with_options

EPILOG = "Example: ./twin keys      (then set deploy.security.curve: true on every machine, with the same folder)"


@with_options(Settings)
def keys(
    settings: Settings,
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="Where to; deploy.security.keys_dir when not given.")
    ] = None,
) -> None:
    """Make CURVE keys: one pair for services, one for their users.

    Only holders of the client pair are let in, and they only talk to holders of the server pair. Keep the folder
    secret; copy it to every machine that takes part.
    """
    from proto.security import make_keys

    folder = folder or Path(settings.load().deploy.security.keys_dir)
    make_keys(folder)
    Console().print(f"keys: {folder.resolve()}", soft_wrap=True, highlight=False, markup=False)
