"""`./real cameras`: what every camera gives, and a picture of each."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from so101.cli.options import Settings, with_options

if TYPE_CHECKING:
    import numpy as np

    from services.camera.client import RemoteCameras
    from so101.cameras import CameraSet, CameraState, Frame

EPILOG = (
    "Example: ./real cameras --save pictures      (which camera is which; ./real cameras --list: what is plugged in)"
)


@with_options(Settings)
def cameras(
    settings: Settings,
    camera: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this one; may be repeated.")] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to look.")] = 2.0,
    save: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write one PNG of each camera here.")] = None,
    service: Annotated[bool, typer.Option("--service", help="Ask the camera service that has the cameras.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List USB cameras with their modes, and RealSenses.")] = False,
) -> None:
    """Show kind, mode, rate and lost frames of the cameras of cameras.yaml."""
    from services.camera.client import RemoteCameras
    from services.camera.main import unstarted

    console = Console()
    if list_:
        console.print(_plugged_in(), soft_wrap=True, highlight=False, markup=False)
        return
    config, names = settings.load(), tuple(camera or ())
    with contextlib.ExitStack() as stack:
        looked_at = RemoteCameras(config, names) if service else unstarted(config, names, stack)
        frames = _look(stack.enter_context(looked_at), seconds, config.deploy.messages.timeout_s)
        console.print(state_table(looked_at.states()))
        for frame in frames.values() if save is not None else ():
            path = save / f"{frame.camera}.png"
            write_png(path, frame.image)
            console.print(str(path), soft_wrap=True, highlight=False, markup=False)


def state_table(states: list[CameraState]) -> Table:
    """One row a camera."""
    table = Table("camera", "kind", "mode", "state", "Hz", "frames", "dropped", "failures", "last fault")
    for state in states:
        counts = (state.captured, state.dropped, state.failures)
        told = (state.camera, state.kind, state.mode, state.state, f"{state.fps_hz:.1f}", *map(str, counts))
        table.add_row(*told, state.error or "none")
    return table


def write_png(path: Path, image: np.ndarray) -> None:
    """(height, width, 3) uint8 RGB as a PNG file."""
    from PIL import Image

    from so101.files import write_atomic

    write_atomic(path, lambda file: Image.fromarray(image).save(file, "PNG"))


def _look(cameras: CameraSet | RemoteCameras, seconds: float, timeout_s: float) -> dict[str, Frame]:
    """Frames of `seconds`, the last of each camera. The first may take until `timeout_s`."""
    cameras.latest(timeout_s)
    time.sleep(seconds)
    return cameras.latest(timeout_s)


def _plugged_in() -> str:
    from so101.cameras import CameraError
    from so101.cameras.realsense import connected_devices, describe
    from so101.cameras.v4l2_modes import list_devices, list_modes

    lines = []
    for path, name in list_devices().items():
        lines += [f"{path}  {name}", *(f"    {mode}" for mode in list_modes(path))]
    try:
        lines += [f"RealSense {describe(device)}" for device in connected_devices()]
    except CameraError as error:
        lines.append(str(error))
    return "\n".join(lines) or "no camera is plugged in"
