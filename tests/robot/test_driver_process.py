"""The driver as a process of its own on the virtual bus: how it ends, and what the arm does then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from services.driver.client import RemoteRobot
from so101.config import load_config
from so101.robot.base import NotArmed, RobotError
from so101.robot.virtual import VirtualBus

SETTINGS = (
    "robot.safety.return_min_s=0.2",
    "robot.safety.return_speed_rad_s=3.0",
    "robot.safety.arrival_timeout_s=0.8",
    "robot.safety.lost_after_s=3.0",  # and replies may take long: of a bus on a machine with other things to do
    "robot.bus.reply_timeout_ms=300",
    "robot.bus.retries=3",
    "robot.virtual.pacing=false",
)
PATIENCE_S = 60.0  # of a slow machine


class Driver:
    """`./twin serve driver` on a bus of this process."""

    def __init__(self, folder: Path) -> None:
        sockets = [
            f"deploy.sockets.{name}.{end}=ipc://{folder}/{name}"
            for name in ("driver", "driver_state")
            for end in ("bind", "connect")
        ]
        self.settings = [*sockets, *SETTINGS]
        self.config = load_config(overrides=self.settings)
        self.home = np.array([joint.home_rad for joint in self.config.robot.joints])
        self.away = self.home + [1.2, 0, 0, 0, 0, 0]
        self.folder = folder
        self.bus = VirtualBus(self.config)
        self.bus.calibration.write(folder / "arm.json")
        self.process: subprocess.Popen | None = None

    def start(self, *arguments: str) -> RemoteRobot:
        command = [sys.executable, "-m", "services.cli", "serve", "driver"]
        command += [part for setting in self.settings for part in ("--set", setting)]
        command += ["--", "--port", self.bus.port, "--calibration", str(self.folder / "arm.json"), *arguments]
        self.process = subprocess.Popen(command, stderr=open(self.folder / "log", "ab"), cwd=Path(__file__).parents[2])
        robot = RemoteRobot(self.config, name="test")
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                robot.connect()
                return robot
            except (RobotError, OSError):
                assert self.process.poll() is None and time.monotonic() < end, self.log

    def command_until(self, robot: RemoteRobot, condition) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, self.log
            robot.command(self.away)
            time.sleep(0.015)

    def send(self, number: int) -> int:
        """Signal the process; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()


@contextmanager
def _driver(folder: Path):
    driver = Driver(folder)
    with driver.bus:
        try:
            yield driver
        finally:
            if driver.process and driver.process.poll() is None:
                driver.process.kill()
                driver.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_in_motion_the_driver_takes_the_arm_home_and_lets_go(tmp_path, number):
    with _driver(tmp_path) as driver:
        robot = driver.start("--arm")
        robot.arm()
        driver.command_until(robot, lambda: driver.bus.state().q[0] > driver.home[0] + 0.4)
        code = driver.send(number)
        state = driver.bus.state()
        assert code == 128 + number, driver.log
        assert np.abs(state.q - driver.home).max() < 0.16 and not state.torque_on.any(), driver.log


def test_killed_in_motion_the_servos_hold_and_the_next_driver_brings_the_arm_home(tmp_path):
    with _driver(tmp_path) as driver:
        robot = driver.start("--arm")
        robot.arm()
        driver.command_until(robot, lambda: driver.bus.state().q[0] > driver.home[0] + 0.4)
        driver.send(signal.SIGKILL)
        time.sleep(0.5)
        held = driver.bus.state()
        assert held.torque_on.all() and held.speed == pytest.approx(np.zeros(6), abs=1e-3)
        robot = driver.start("--arm")
        assert robot.read().mode == "stopped" and "torque was on" in robot.read().reason
        assert driver.bus.state().q == pytest.approx(held.q, abs=5e-3)  # finding an arm moves nothing
        robot.disarm()
        state = driver.bus.state()
        assert np.abs(state.q - driver.home).max() < 0.16 and not state.torque_on.any()
        assert driver.send(signal.SIGTERM) == 128 + signal.SIGTERM


def test_ended_without_a_bus_the_driver_says_that_torque_is_on_and_its_exit_code_too(tmp_path):
    with _driver(tmp_path) as driver:
        robot = driver.start("--arm")
        robot.arm()
        driver.command_until(robot, lambda: driver.bus.state().q[0] > driver.home[0] + 0.4)
        driver.bus.unplug()
        assert driver.send(signal.SIGTERM) == 8
        assert "LEFT ON" in driver.log and driver.bus.state().torque_on.all()


def test_without_arm_nothing_is_ever_written_to_the_servos(tmp_path):
    with _driver(tmp_path) as driver:
        before = {name: servo.memory.read(0, 50) for name, servo in driver.bus.servos.items()}
        robot = driver.start()
        with pytest.raises(NotArmed, match="--arm"):
            robot.arm()
        with pytest.raises(NotArmed, match="--arm"):
            robot.command(driver.away)
        assert driver.send(signal.SIGTERM) == 128 + signal.SIGTERM
        assert {name: servo.memory.read(0, 50) for name, servo in driver.bus.servos.items()} == before
        assert os.path.lexists(driver.bus.port)
