"""`./twin serve camera`: frames out, each under the name of its camera, and how every camera is doing."""

from __future__ import annotations

import argparse
import contextlib
import time

from proto.messages.camera import STATUS_TOPIC, CameraFrame
from proto.sockets import Publisher
from proto.stopping import StopFlag, stop_on_signals
from services.camera.client import message_of_state
from services.camera.rig_feed import RigFeed
from services.wire import make_publisher
from so101.cameras import CameraSet, make_cameras
from so101.config import Config

_POLL_S = 0.1  # how soon a stop flag is seen when no frame comes


def main(config: Config, arguments: list[str]) -> int:
    """Publish the cameras named with --camera, all of cameras.yaml when none is, until stopped."""
    parser = argparse.ArgumentParser(prog="./twin serve camera", description="Frames of the cameras of cameras.yaml.")
    parser.add_argument("--camera", action="append", default=[], metavar="NAME", help="only this one; may be repeated")
    names, settings = tuple(parser.parse_args(arguments).camera), config.cameras.capture
    with stop_on_signals() as stop, contextlib.ExitStack() as stack:
        publisher = stack.enter_context(make_publisher(config, "cameras", high_water=settings.high_water))
        cameras = stack.enter_context(unstarted(config, names, stack))
        publish(cameras, publisher, stop, settings.status_s)
        return stop.exit_code


def unstarted(config: Config, names: tuple[str, ...], stack: contextlib.ExitStack) -> CameraSet:
    """Cameras `names`, all of cameras.yaml when none is named, to be started; twin cameras look at the rig.

    Raises:
        CameraError: no camera has such a name.
    """
    names = names or config.cameras.names
    twins = any(name in config.cameras.names and config.cameras.source(name).kind == "twin" for name in names)
    feed = stack.enter_context(RigFeed(config)) if twins else None
    return CameraSet(make_cameras(config, names, feed), config.cameras.capture)


def publish(cameras: CameraSet, publisher: Publisher, stop: StopFlag, status_s: float) -> None:
    """Send every new frame and, every `status_s`, the state of every camera, until `stop`."""
    told_s = -status_s
    while not stop.is_set():
        for frame in cameras.take(_POLL_S):
            publisher.send(frame.camera, CameraFrame(**frame._asdict()))
        if time.monotonic() - told_s >= status_s:
            told_s = time.monotonic()
            for state in cameras.states():
                publisher.send(STATUS_TOPIC + state.camera, message_of_state(state))
