"""`./real status`: what every servo says, whatever state the arm is in. Writes nothing to the servos."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Column, Table

from so101.cli.options import Settings, with_options

if TYPE_CHECKING:
    from so101.config import Config
    from so101.robot.survey import JointReport

EPILOG = "Example: ./real status --watch      (the arm may be moved by hand meanwhile)"
_REFRESH_S = 0.2
_PLAIN = {"box": None, "pad_edge": False}  # whole names of joints in 80 columns


@with_options(Settings)
def status(
    settings: Settings,
    port: Annotated[
        str | None, typer.Option(help="Serial port.", show_default="robot.bus.port, or robot.leader.port")
    ] = None,
    leader: Annotated[bool, typer.Option("--leader", help="The leader arm.")] = False,
    calibration: Annotated[str | None, typer.Option(metavar="FILE", help="LeRobot file to compare with.")] = None,
    service: Annotated[bool, typer.Option("--service", help="Ask the driver service that has the port.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until Ctrl-C.")] = False,
) -> None:
    """Show joints, temperature, voltage, load, faults and calibration of the arm."""
    config = settings.load()
    console = Console()
    if service:
        from services.driver.client import RemoteRobot

        with RemoteRobot(config, name="status") as robot:
            _show(console, lambda: service_table(config, robot), watch)
        return
    from so101.robot import find_port
    from so101.robot.feetech_bus import FeetechBus
    from so101.robot.survey import Survey

    own = config.robot.leader if leader else config.robot.bus
    key = "robot.leader.port" if leader else "robot.bus.port"
    bus = FeetechBus(find_port(port or own.port, key), config.robot.bus)
    bus.open()
    try:
        survey = Survey(bus, config.robot, calibration or own.calibration)
        _show(console, lambda: survey_table(bus.port, survey.look()), watch)
    finally:
        bus.close()


def survey_table(port: str, reports: list[JointReport]) -> Table:
    """The servos of one look. What is true of the calibration of all of them is said once."""
    said = {report.calibration or "-" for report in reports}
    alike = len(said) == 1
    columns = ["id", "torque", "ticks", "rad", "deg", "C", "V", "load %", "faults", *["calibration"] * (not alike)]
    title = f"{port}; calibration: {said.pop()}" if alike else port
    table = Table(Column("joint", no_wrap=True), *columns, title=title, **_PLAIN)
    for report in reports:
        numbers = ["-"] * 7
        if report.ticks is not None:
            angle = ["-", "-"] if report.q_rad is None else [f"{report.q_rad:.3f}", f"{math.degrees(report.q_rad):.1f}"]
            numbers = [
                "ON" if report.torque else "off",
                str(report.ticks),
                *angle,
                str(report.temperature_c),
                f"{report.voltage_v:.1f}",
                f"{report.load_pct:.1f}",
            ]
        last = [", ".join(report.errors) or "none", *[report.calibration or "-"] * (not alike)]
        table.add_row(report.joint, str(report.servo), *numbers, *last)
    return table


def service_table(config: Config, robot) -> Table:
    """What the driver service says."""
    from so101.robot.tables import error_texts

    state = robot.driver_state
    allowed = "may arm" if state.may_arm else "may not arm: start it with --arm"
    commander = f"commanded by {state.commander}" if state.commander else "commanded by nobody"
    title = f"{state.mode}: {state.reason}\n{allowed}, {commander}"
    table = Table(
        Column("joint", no_wrap=True),
        "rad",
        "deg",
        "goal rad",
        "rad/s",
        "C",
        "V",
        "load %",
        "faults",
        title=title,
        **_PLAIN,
    )
    for index, joint in enumerate(config.robot.joint_names):
        table.add_row(
            joint,
            f"{state.q_rad[index]:.3f}",
            f"{math.degrees(state.q_rad[index]):.1f}",
            f"{state.goal_rad[index]:.3f}",
            f"{state.qd_rad_s[index]:.2f}",
            f"{state.temperature_c[index]:.0f}",
            f"{state.voltage_v[index]:.1f}",
            f"{state.load_pct[index]:.1f}",
            ", ".join(error_texts(state.error_bits[index])) or "none",
        )
    return table


def _show(console: Console, make, watch: bool) -> None:
    if not watch:
        console.print(make())
        return
    with Live(make(), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(_REFRESH_S)
            live.update(make(), refresh=True)
