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
    names = tuple(parser.parse_args(arguments).camera) or config.cameras.names
    settings = config.cameras.capture
    with stop_on_signals() as stop, contextlib.ExitStack() as stack:
        publisher = stack.enter_context(make_publisher(config, "cameras", high_water=settings.high_water))
        shown = any(config.cameras.source(name).kind == "twin" for name in names if name in config.cameras.names)
        feed = stack.enter_context(RigFeed(config)) if shown else None
        cameras = stack.enter_context(CameraSet(make_cameras(config, names, feed), settings))
        publish(cameras, publisher, stop, settings.status_s)
        return stop.exit_code


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
