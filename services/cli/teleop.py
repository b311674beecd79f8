"""`./real teleop`: the follower goes where the leader arm in your hand is."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import Annotated

import numpy as np
import typer

from so101.cli.options import Settings, with_options

EPILOG = "Example: ./real teleop --arm --leader-port /dev/ttyACM1 --port /dev/ttyACM0"
_SAY_S = 1.0


@with_options(Settings)
def teleop(
    settings: Settings,
    arm: Annotated[bool, typer.Option("--arm", help="Move the follower. Without it: look at the leader only.")] = False,
    port: Annotated[
        str | None, typer.Option(help="Serial port of the follower.", show_default="robot.bus.port")
    ] = None,
    leader_port: Annotated[
        str | None, typer.Option(help="Serial port of the leader.", show_default="robot.leader.port")
    ] = None,
    service: Annotated[bool, typer.Option("--service", help="Move the follower of the driver service.")] = False,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="End after this.", show_default="Ctrl-C")] = None,
) -> None:
    """Move the follower with the leader arm. It comes to the leader first, and returns home at the end."""
    from proto.stopping import stop_on_signals
    from services.driver.client import RemoteRobot
    from so101.control.pacing import Grid, MonotonicClock
    from so101.robot import make_driver, make_leader
    from so101.robot.teleoperation import Mirror

    config = settings.load()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with stop_on_signals(signals) as stop, contextlib.ExitStack() as stack:
        leader = make_leader(config, leader_port)
        stack.callback(leader.close)
        leader.connect()
        follower = None
        if arm:
            follower = RemoteRobot(config, name="teleop") if service else make_driver(config, arm=True, port=port)
            stack.enter_context(follower)
            follower.arm()
        else:
            typer.echo("dry run: the follower is not moved (--arm moves it)")
        mirror = Mirror(leader, follower, config.deploy.control.start_ease_s, time.monotonic())
        grid, said_s = Grid(config.robot.leader.rate_hz, MonotonicClock()), float("-inf")
        began_s = time.monotonic()
        while not stop.is_set() and (seconds is None or time.monotonic() - began_s < seconds):
            grid.wait()
            now = time.monotonic()
            mirrored = mirror.step(now)
            if now - said_s >= _SAY_S:
                said_s = now
                typer.echo(_line(mirrored.leader, follower, mirror.unanswered))
    typer.echo("released at home" if arm else "done")


def _line(leader: np.ndarray, follower, unanswered: int) -> str:
    degrees = " ".join(f"{value:7.1f}" for value in np.degrees(leader))
    lost = f", {unanswered} looks at the leader failed" if unanswered else ""
    if follower is None:
        return f"leader [deg] {degrees}{lost}"
    state = follower.read()
    off = np.degrees(np.abs(state.q_rad - leader).max())
    return f"leader [deg] {degrees}; follower {state.mode}, {off:.1f} deg away{lost}"
