"""`./twin deploy-reach` as a user starts it, on a virtual arm; the policy is the scripted one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from services.cli.app import main
from so101.config import load_config
from so101.robot.virtual import Fault, VirtualBus, packets

CONFIG = load_config()
HOME = np.array([joint.home_rad for joint in CONFIG.robot.joints])
PATIENCE_S = 90.0
QUICK = (
    "robot.bus.reply_timeout_ms=300",
    "robot.safety.lost_after_s=3.0",
    "robot.safety.return_min_s=0.2",
    "robot.safety.return_speed_rad_s=3.0",
    "robot.safety.arrival_timeout_s=1.5",
    "deploy.reach.start_ease_s=0.3",
)


@pytest.fixture
def bus(tmp_path):
    """A virtual arm that notes what is written to it."""
    made = VirtualBus(CONFIG, pacing=False)
    made.calibration.write(tmp_path / "arm.json")
    made.written = []
    hear = made._arm.hear

    def heard(packet, baud):
        if packet.instruction in (packets.WRITE, packets.SYNC_WRITE, packets.REG_WRITE):
            made.written.append(packet)
        return hear(packet, baud)

    made._arm.hear = heard
    with made:
        yield made


def start(bus, folder, *arguments: str) -> subprocess.Popen:
    settings = [part for setting in QUICK for part in ("--set", setting)]
    command = [sys.executable, "-u", "-m", "services.cli", "deploy-reach", "--policy", "scripted", "--port", bus.port]
    command += ["--calibration", str(folder / "arm.json"), "--out", str(folder / "out"), *settings, *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "COLUMNS": "200"}
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


def test_a_dry_run_writes_nothing(bus, tmp_path):
    code, text = finished(start(bus, tmp_path, "--seconds", "0.5"))
    assert code == 0, text
    assert bus.written == [] and not bus.state().torque_on.any()
    assert "dry run: no goal is sent" in text and "would send [deg]" in text and "shoulder_pan: -1" in text
    assert "dry run, target 0.220, 0.000, 0.180 m" in text and "released" not in text
    (run,) = json.loads((tmp_path / "out" / "reach.json").read_text())["runs"]
    assert run["moved"] is False and len(run["q_rad"]) == run["looks"] > 5
    assert (tmp_path / "out" / "reach.png").stat().st_size > 10_000


def test_with_arm_it_reaches_points_and_is_released_at_home(bus, tmp_path):
    code, text = finished(start(bus, tmp_path, "--arm", "--seconds", "2", "--targets", "2", "--seed", "3"))
    assert code == 0 and "released at home" in text, text
    runs = json.loads((tmp_path / "out" / "reach.json").read_text())["runs"]
    assert len(runs) == 2 and all(run["moved"] and run["ended_by"] is None for run in runs)
    assert min(run["final_mm"] for run in runs) < 20.0, text
    state = bus.state()
    assert not state.torque_on.any() and np.abs(state.q - HOME).max() < 0.16


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_end_in_motion_it_goes_home_and_lets_go(bus, tmp_path, number):
    process = start(bus, tmp_path, "--arm", "--seconds", "60", "--target", "0.15,-0.15,0.15")
    read_until(process, "goal [deg]")
    assert bus.state().torque_on.all()
    process.send_signal(number)
    code, text = finished(process)
    assert code == 128 + number and "ended early: stopped" in text and "released at home" in text
    state = bus.state()
    assert not state.torque_on.any() and np.abs(state.q - HOME).max() < 0.16


def test_a_second_ctrl_c_does_not_interrupt_the_way_home(bus, tmp_path):
    process = start(bus, tmp_path, "--arm", "--seconds", "60", "--set", "robot.safety.return_min_s=1.5")
    read_until(process, "goal [deg]")
    process.send_signal(signal.SIGINT)
    read_until(process, "going home")
    process.send_signal(signal.SIGINT)
    code, text = finished(process)
    assert code == 130 and "released at home" in text and not bus.state().torque_on.any()


def test_an_arm_that_is_blocked_on_its_way_home_keeps_its_torque_and_it_is_said(bus, tmp_path):
    process = start(bus, tmp_path, "--arm", "--seconds", "60", "--target", "0.12,-0.2,0.15")
    read_until(process, "goal [deg]")
    end = time.monotonic() + PATIENCE_S
    while np.abs(bus.state().q - HOME).max() < 0.6:
        assert time.monotonic() < end
        time.sleep(0.02)
    bus.faults.add(Fault("stuck"))
    process.send_signal(signal.SIGINT)
    code, text = finished(process)
    assert code == 8 and "TORQUE LEFT ON, home was not reached" in text and "released at home" not in text
    assert bus.state().torque_on.all()


def test_a_bus_that_goes_away_leaves_the_torque_on_and_it_is_said(bus, tmp_path):
    process = start(bus, tmp_path, "--arm", "--seconds", "60", "--set", "robot.safety.lost_after_s=0.3")
    read_until(process, "goal [deg]")
    bus.unplug()
    code, text = finished(process)
    assert code == 8 and "ended early: " in text and "LEFT ON" in text
    assert bus.state().torque_on.all()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--target", "0.2,0"], "--target 0.2,0: write it as X,Y,Z in m"),
        (["--target", "0.2,0,nan"], "--target 0.2,0,nan: write it as X,Y,Z in m"),
        (["--target", "0.2,0,0.1", "--targets", "3"], "--target is one point; leave it out where points are drawn"),
        (["--strength", "1"], "--strength is about the arms of --transfer"),
        (["--transfer", "--arm"], "--transfer makes its own virtual arms; leave out --arm"),
        (["--sim", "--port", "/dev/x"], "--sim makes its own port"),
        (["--policy", "scripded"], "--policy scripded: no such policy; policies: learned, scripted; did you mean"),
        (["--role", "nobody"], "nobody"),
        (["--policy", "scripted", "--set", "deploy.reach.task=so101_lift_brick"], "its goal is above, not at_point"),
        (["--set", "deploy.reach.task=so101_reech"], "unknown task 'so101_reech'"),
        (["--policy", "scripted", "--port", "/dev/nothing-here"], "/dev/nothing-here: cannot be opened"),
    ],
)
def test_a_wrong_option_is_told(arguments, told, capsys, tmp_path):
    code = main(["deploy-reach", *arguments, "--out", str(tmp_path / "out")])
    assert code != 0 and told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_help_has_an_example(capsys):
    assert main(["deploy-reach", "--help"]) == 0
    assert "./twin deploy-reach --sim --arm" in capsys.readouterr().out
