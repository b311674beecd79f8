"""`./twin serve broker`: the broker as a process of its own, where the control plane does not hold it."""

from __future__ import annotations

import argparse
import logging

from proto.stopping import stop_on_signals
from services.work.broker import Broker
from so101.config import Config

log = logging.getLogger(__name__)


def main(config: Config, arguments: list[str]) -> int:
    argparse.ArgumentParser(prog="./twin serve broker", description=__doc__).parse_args(arguments)
    with stop_on_signals() as stop:
        broker = Broker(config)
        log.info("broker on %s", broker.endpoint)
        broker.serve(stop)
    return 0
