"""The driver service: owns the servo bus. ``./twin serve driver``"""

from __future__ import annotations

import argparse
import logging
import signal

from proto.stopping import stop_on_signals
from services.driver.service import run
from so101.config import Config
from so101.robot import make_driver

log = logging.getLogger(__name__)


def main(config: Config, arguments: list[str]) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP; returns the exit code.

    Raises:
        RobotError: the arm was not found, or its torque was left on (`TorqueLeftOn`, exit code 8).
    """
    parser = argparse.ArgumentParser(prog="./twin serve driver", description="Owns the arm's servo bus.")
    parser.add_argument("--arm", action="store_true", help="let clients energise and move the arm")
    parser.add_argument("--port", help="serial device; robot.yaml: bus.port without it")
    parser.add_argument("--calibration", help="LeRobot file; robot.yaml: bus.calibration without it")
    options = parser.parse_args(arguments)
    driver = make_driver(config, arm=options.arm, port=options.port, calibration=options.calibration)
    if not options.arm:
        log.info("without --arm the arm is only looked at")
    with stop_on_signals((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)) as stop:
        run(config, driver, stop)
        return stop.exit_code
