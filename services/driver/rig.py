"""The rig process of `./real --sim`: the virtual servo bus on the twin, its state for twin cameras, and a channel to
reset it, to break it and to ask it whether the task is done."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import time
from typing import Any

import numpy as np

from proto.messages.common import Ok
from proto.messages.rig import STATE_TOPIC, RigFault, RigMend, RigReset, RigState, RigTruth, RigVerdict
from proto.stopping import stop_on_signals
from services.wire import make_publisher, make_server
from so101.config import Config
from so101.errors import SimulationError
from so101.robot.virtual import Fault, VirtualBus
from so101.robot.virtual.pseudo_real import NOMINAL, draw_rig
from so101.robot.virtual.twin_plant import TwinPlant

log = logging.getLogger(__name__)


class Rig:
    """What the messages of `proto.messages.rig` do to a bus with a twin behind."""

    def __init__(self, bus: VirtualBus, plant: TwinPlant) -> None:
        self.bus, self.plant = bus, plant
        self.handlers = {
            RigReset: self._reset,
            RigTruth: self._verdict,
            RigFault: self._break,
            RigMend: self._mend,
        }

    def state(self) -> RigState:
        truth = self.plant.truth()
        return RigState(
            stamp_s=time.time(),
            q_rad=tuple(truth.q.tolist()),
            objects={name: tuple(pose.tolist()) for name, pose in truth.objects.items()},
            randomisation_json=json.dumps(self.plant.randomisation),
            looks_json=json.dumps(self.plant.rig.looks),
            port=os.path.realpath(self.bus.port),
        )

    def _reset(self, message: RigReset) -> RigState:
        objects = message.objects and {name: np.array(pose) for name, pose in message.objects.items()}
        q = None if message.q_rad is None else np.array(message.q_rad)
        randomisation = _mapping(message.randomisation_json)
        self.plant.reset(objects, seed=message.seed, q=q, randomisation=randomisation)
        return self.state()

    def _verdict(self, message: RigTruth) -> RigVerdict:
        verdict = self.plant.verdict()
        return RigVerdict(strict=verdict.strict, geometric=verdict.geometric, figures=verdict.figures())

    def _break(self, message: RigFault) -> Ok:
        fields = {name: getattr(message, name) for name in message.__struct_fields__}
        self.bus.faults.add(Fault(**{**fields, "ids": tuple(message.ids)}))
        log.warning("fault: %s", message)
        return Ok()

    def _mend(self, message: RigMend) -> Ok:
        self.bus.faults.clear()
        self.bus.replug()
        if message.power_cycle:
            self.bus.power_cycle()
        return Ok()


def _mapping(text: str) -> dict[str, Any]:
    """A JSON object without the nan and infinity that Python's reader would take."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        content = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise SimulationError(f"randomisation_json cannot be read: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("physics", {}), dict):
        raise SimulationError('randomisation_json must be like {"physics": {...}}, as a demo keeps it')
    return content


def main(config: Config, arguments: list[str]) -> int:
    """Run the rig until it is stopped."""
    options = _parse(arguments)
    with contextlib.suppress(PermissionError):
        os.nice(config.robot.virtual.nice)
    draw = NOMINAL if options.pseudo_real is None else draw_rig(config, options.pseudo_real)
    plant = TwinPlant(config, draw)
    plant.reset(seed=options.seed)
    bus = VirtualBus(
        config,
        plant=plant,
        calibration=options.calibration,
        seed=options.fault_seed,
        link=options.port_link,
        reply_delay_s=draw.reply_delay_s,
    )
    rig, period_s = Rig(bus, plant), 1.0 / config.cameras.fps_hz
    with (
        stop_on_signals() as stop,
        bus,
        make_publisher(config, "rig_state") as publisher,
        make_server(config, "rig", rig.handlers),
    ):
        log.info("%s rig on %s", "nominal" if draw is NOMINAL else f"pseudo-real ({options.pseudo_real})", bus.port)
        begun = time.monotonic()
        while not stop.wait(period_s - (time.monotonic() - begun) % period_s):
            bus.check()
            publisher.send(STATE_TOPIC, rig.state())
    if bus.counts.behind_s:
        log.warning("physics could not follow the clock and gave up %.2f s", bus.counts.behind_s)
    return stop.exit_code


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./twin serve rig", description=__doc__)
    parser.add_argument(
        "--port-link", metavar="PATH", help="where the serial port appears (default: a temporary folder)"
    )
    parser.add_argument("--calibration", metavar="FILE", help="LeRobot calibration that the servos get")
    parser.add_argument(
        "--pseudo-real", type=int, metavar="SEED", help="a rig that differs from the twin, drawn with SEED"
    )
    parser.add_argument("--seed", type=int, help="draws where the objects stand (default: as in task.yaml)")
    parser.add_argument("--fault-seed", type=int, default=0, help="of faults with a probability")
    return parser.parse_args(arguments)
