"""`./real status`, `calibrate` and `teleop` as a user starts them, on virtual arms."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from so101.config import load_config
from so101.robot.calibration import ArmCalibration
from so101.robot.feetech_bus import FeetechBus
from so101.robot.virtual import Fault, KinematicPlant, VirtualBus

CONFIG = load_config()
HOME = np.array([joint.home_rad for joint in CONFIG.robot.joints])
LOWER = np.array([joint.lower_rad for joint in CONFIG.robot.joints])
UPPER = np.array([joint.upper_rad for joint in CONFIG.robot.joints])
PATIENCE_S = 60.0


class Arm:
    """A virtual arm that somebody's hand can move, and its calibration file."""

    def __init__(self, folder, name: str):
        self.plant = KinematicPlant(CONFIG)
        self.bus = VirtualBus(CONFIG, plant=self.plant, pacing=False)
        self.file = folder / f"{name}.json"
        self.bus.calibration.write(self.file)
        self.bus.start()

    def held(self) -> ArmCalibration:
        bus = FeetechBus(self.bus.port, CONFIG.robot.bus)
        bus.open()
        try:
            return ArmCalibration.of_servos(bus, CONFIG.robot)
        finally:
            bus.close()


@pytest.fixture
def arm(tmp_path):
    made = Arm(tmp_path, "arm")
    yield made
    made.bus.close()


def start(*arguments) -> subprocess.Popen:
    return subprocess.Popen(
        [
            sys.executable,
            "-u",
            "-m",
            "services.cli",
            "real",
            *map(str, arguments),
            "--set",
            "robot.bus.reply_timeout_ms=300",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )


def finished(process: subprocess.Popen) -> tuple[int, str]:
    text, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, text


def read_until(process: subprocess.Popen, word: str) -> str:
    text = ""
    while word not in text:
        line = process.stdout.readline()
        assert line, f"it ended without {word!r}: {text}"
        text += line
    return text


def test_status_tells_what_every_servo_says(arm):
    code, text = finished(start("status", "--port", arm.bus.port, "--calibration", arm.file))
    assert code == 0 and text.count("agrees") == 1 and "ON" not in text
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "86.8" in rows["wrist_flex"] and "12.1" in rows["gripper"]


def test_status_of_an_arm_in_disorder(arm):
    arm.bus.faults.add(Fault("silent", ids=(3,)))
    arm.bus.faults.add(Fault("overload", ids=(1,)))
    time.sleep(0.1)
    code, text = finished(start("status", "--port", arm.bus.port))
    assert code == 0
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "no answer" in rows["elbow_flex"] and "overload" in rows["shoulder_pan"]


def test_calibration_by_hand(arm, tmp_path):
    """Somebody moves the joints to the middle, then from end to end: the servos and the file get what was swept."""
    new = tmp_path / "new.json"
    process = start("calibrate", "--port", arm.bus.port, "--calibration", new)
    read_until(process, "press Enter")
    middle = (LOWER + UPPER) / 2
    arm.plant.place(middle)
    time.sleep(0.1)
    process.stdin.write("\n")
    process.stdin.flush()
    read_until(process, "from end to end")
    for share in [*np.linspace(0.5, 0.05, 8), *np.linspace(0.05, 0.95, 16), *np.linspace(0.95, 0.5, 8)]:
        arm.plant.place(LOWER + share * (UPPER - LOWER))
        time.sleep(0.12)
    process.stdin.write("\n")
    code, text = finished(process)
    assert code == 0, text
    found = ArmCalibration.load(new, CONFIG.robot)
    assert found.differences(arm.held()) == []
    ticks_per_rad = np.array([4095 / (2 * np.pi)] * 6)
    ticks_per_rad[5] = (
        arm.bus.calibration.motors["gripper"].range_max - arm.bus.calibration.motors["gripper"].range_min
    ) / (np.radians(110))
    for index, (joint, motor) in enumerate(found.motors.items()):
        if joint == "wrist_roll":
            assert (motor.range_min, motor.range_max) == (0, 4095)  # LeRobot does not sweep it
            continue
        half = 0.45 * (UPPER - LOWER)[index] * ticks_per_rad[index]
        assert (motor.range_min, motor.range_max) == pytest.approx((2047 - half, 2047 + half), abs=3), joint
    assert not arm.bus.state().torque_on.any()


def test_a_calibration_given_up_changes_nothing(arm):
    before, text = arm.held(), arm.file.read_bytes()
    process = start("calibrate", "--port", arm.bus.port, "--calibration", arm.file)
    read_until(process, "press Enter")
    process.stdin.write("\n")
    process.stdin.flush()
    read_until(process, "from end to end")
    process.send_signal(signal.SIGINT)
    code, _ = finished(process)
    assert code == 130
    assert arm.held().motors == before.motors and arm.file.read_bytes() == text


def test_joints_that_were_not_moved_are_named_and_nothing_is_written(arm):
    before = arm.held()
    process = start("calibrate", "--port", arm.bus.port, "--calibration", arm.file)
    process.stdin.write("\n")
    process.stdin.flush()
    read_until(process, "from end to end")
    time.sleep(0.3)
    process.stdin.write("\n")
    code, text = finished(process)
    assert code == 7 and "shoulder_pan moved by 0 ticks only" in text and "Nothing was written" in text
    assert arm.held().motors == before.motors


def test_teleoperation_mirrors_and_returns_home(tmp_path):
    leader, follower = Arm(tmp_path, "leader"), Arm(tmp_path, "follower")
    sets = {
        "deploy.control.start_ease_s": 0.2,
        "robot.leader.calibration": leader.file,
        "robot.bus.calibration": follower.file,
    }
    settings = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    ports = ["--port", follower.bus.port, "--leader-port", leader.bus.port]
    try:
        there = HOME + [0.4, 0.3, -0.3, -0.2, 0.3, 0.4]
        leader.plant.place(there)
        process = start("teleop", *ports, *settings, "--arm")
        read_until(process, "follower following")
        end = time.monotonic() + PATIENCE_S
        while np.abs(follower.bus.state().q - there).max() > 0.05:
            assert time.monotonic() < end, follower.bus.state().q - there
            time.sleep(0.05)
        assert follower.bus.state().torque_on.all() and not leader.bus.state().torque_on.any()
        process.send_signal(signal.SIGTERM)
        code, text = finished(process)
        assert code == 0 and "released at home" in text
        assert np.abs(follower.bus.state().q - HOME).max() < 0.16 and not follower.bus.state().torque_on.any()
    finally:
        leader.bus.close()
        follower.bus.close()


def test_teleoperation_without_arm_moves_nothing(arm, tmp_path):
    process = start(
        "teleop", "--leader-port", arm.bus.port, "--seconds", "0.5", "--set", f"robot.leader.calibration={arm.file}"
    )
    code, text = finished(process)
    assert code == 0 and "dry run" in text and "leader [deg]    -8.6" in text
    assert not arm.bus.state().torque_on.any()


def test_teleoperation_lets_go_of_no_arm_at_the_leaders_port(arm):
    """The follower's port, say, of an arm that a killed driver left with torque: it would fall."""
    bus = FeetechBus(arm.bus.port, CONFIG.robot.bus)
    bus.open()
    for servo in range(1, 7):
        bus.write(servo, "torque_enable", 1)
    bus.close()
    code, text = finished(
        start(
            "teleop", "--leader-port", arm.bus.port, "--seconds", "0.5", "--set", f"robot.leader.calibration={arm.file}"
        )
    )
    assert code == 7 and "is this the follower's port?" in text.replace("\n", " ")
    assert arm.bus.state().torque_on.all()
