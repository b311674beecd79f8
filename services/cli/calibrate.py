"""`./real calibrate`: LeRobot's calibration, by hand."""

from __future__ import annotations

import select
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from so101.cli.options import Settings, with_options
from so101.robot.base import CalibrationError

if TYPE_CHECKING:
    from so101.robot.calibrating import HandCalibration

EPILOG = "Example: ./real calibrate --leader --port /dev/ttyACM1"
_REFRESH_S = 0.05


@with_options(Settings)
def calibrate(
    settings: Settings,
    port: Annotated[
        str | None, typer.Option(help="Serial port.", show_default="robot.bus.port, or robot.leader.port")
    ] = None,
    leader: Annotated[bool, typer.Option("--leader", help="The leader arm.")] = False,
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write.", show_default="that of robot.yaml")
    ] = None,
    write_file: Annotated[
        bool, typer.Option("--write-file-to-servos", help="Do not calibrate: give the servos the numbers of the file.")
    ] = False,
) -> None:
    """Find every joint's middle and range by hand, and keep them in the servos and in LeRobot's file format.

    No motor is energised. Nothing is written before the end: Ctrl-C leaves everything as it was.
    """
    from so101.robot import find_port
    from so101.robot.calibrating import HandCalibration
    from so101.robot.calibration import ArmCalibration
    from so101.robot.feetech_bus import FeetechBus

    config = settings.load()
    own = config.robot.leader if leader else config.robot.bus
    path = calibration or Path(own.calibration)
    console = Console(highlight=False, soft_wrap=True)
    bus = FeetechBus(find_port(port or own.port, "robot.leader.port" if leader else "robot.bus.port"), config.robot.bus)
    bus.open()
    try:
        if write_file:
            ArmCalibration.load(path, config.robot).write_to_servos(bus)
            console.print(f"the servos at {bus.port} hold the numbers of {path}", markup=False)
            return
        found = _by_hand(HandCalibration(config, bus), console)
        found.write_to_servos(bus)
        backup = found.write(path)
        console.print(f"calibrated: {path} and the servos at {bus.port}", markup=False)
        if backup is not None:
            console.print(f"the former file is now {backup}", markup=False)
    finally:
        bus.close()


def _by_hand(calibration: HandCalibration, console: Console):
    energised = calibration.energised()
    if energised:
        _wait(console, f"Torque is on ({', '.join(energised)}). HOLD THE ARM, it is released when you press Enter.")
        calibration.release()
    _wait(console, "Move every joint to the middle of its range, the jaw half open. Then press Enter.")
    calibration.set_middle()
    console.print(
        f"Move every joint but {calibration.unswept} from end to end, one by one. Press Enter when all are done."
    )
    with Live(console=console, auto_refresh=False) as live:
        while not _entered():
            live.update(_table(calibration.look()), refresh=True)
    return calibration.result()


def _wait(console: Console, text: str) -> None:
    console.print(text, markup=False)
    if not sys.stdin.readline():
        raise CalibrationError("calibrate needs somebody at the keyboard; run it in a terminal")


def _entered() -> bool:
    """Whether Enter was pressed, after a short wait."""
    ready, _, _ = select.select([sys.stdin], [], [], _REFRESH_S)
    if ready:
        sys.stdin.readline()
    return bool(ready)


def _table(ranges: dict[str, tuple[int, int, int]]) -> Table:
    table = Table("joint", "lowest", "now", "highest", "span")
    for joint, (lowest, now, highest) in ranges.items():
        table.add_row(joint, str(lowest), str(now), str(highest), str(highest - lowest))
    return table
