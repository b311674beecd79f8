"""`./twin deploy-reach` as a user starts it, on a virtual arm; the policy is the scripted one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from services.cli.app import main
from so101.config import load_config
from so101.robot.virtual import Fault, VirtualBus, packets

CONFIG = load_config()
HOME = np.array([joint.home_rad for joint in CONFIG.robot.joints])
PATIENCE_S = 300.0  # of a machine with other things to do
QUICK = (
    "robot.bus.reply_timeout_ms=300",
    "robot.safety.lost_after_s=3.0",
    "robot.safety.return_min_s=0.2",
    "robot.safety.return_speed_rad_s=3.0",
    "robot.safety.arrival_timeout_s=1.5",
    "deploy.reach.start_ease_s=0.3",
)
FAR = ("--arm", "--seconds", "60", "--target", "0.12,-0.2,0.15", "--set", "deploy.reach.start_ease_s=0")


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


def command(bus, folder, *arguments: str) -> list[str]:
    settings = [part for setting in QUICK for part in ("--set", setting)]
    given = ["deploy-reach", "--policy", "scripted", "--port", bus.port, "--calibration", str(folder / "arm.json")]
    return [*given, "--out", str(folder / "out"), *settings, *arguments]


def meanwhile(bus, then) -> threading.Thread:
    """`then` is called, in a thread, when the armed arm has moved away from home."""

    def watch() -> None:
        end = time.monotonic() + PATIENCE_S
        while not (bus.state().torque_on.all() and np.abs(bus.state().q - HOME).max() > 0.6):
            if time.monotonic() > end:
                break  # the test will say what is missing
            time.sleep(0.02)
        then()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def signalled(*numbers: int) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)
        time.sleep(0.3)


def at_home(bus) -> bool:
    state = bus.state()
    return not state.torque_on.any() and np.abs(state.q - HOME).max() < 0.16


def test_a_dry_run_writes_nothing(bus, tmp_path, capsys):
    code, text = main(command(bus, tmp_path, "--seconds", "0.5")), capsys.readouterr().out
    assert code == 0, text
    assert bus.written == [] and not bus.state().torque_on.any()
    assert "dry run: no goal is sent" in text and "would send [deg]" in text and "shoulder_pan: -1" in text
    assert "dry run, target 0.220, 0.000, 0.180 m" in text and "released" not in text
    (run,) = json.loads((tmp_path / "out" / "reach.json").read_text())["runs"]
    assert run["moved"] is False and len(run["q_rad"]) == run["looks"] >= 1
    assert (tmp_path / "out" / "reach.png").stat().st_size > 10_000


def test_with_arm_it_reaches_points_and_is_released_at_home(bus, tmp_path, capsys):
    code = main(command(bus, tmp_path, "--arm", "--seconds", "1", "--targets", "2", "--seed", "3"))
    text = capsys.readouterr().out
    assert code == 0 and "released at home" in text, text
    runs = json.loads((tmp_path / "out" / "reach.json").read_text())["runs"]
    assert len(runs) == 2 and all(run["moved"] and run["ended_by"] is None for run in runs)
    assert any(packet.instruction == packets.SYNC_WRITE for packet in bus.written) and at_home(bus)


def test_ctrl_c_in_motion_goes_home_and_lets_go_and_a_second_one_does_not_interrupt_that(bus, tmp_path, capsys):
    thread = meanwhile(bus, lambda: signalled(signal.SIGINT, signal.SIGINT))
    code = main(command(bus, tmp_path, *FAR, "--set", "robot.safety.return_min_s=1.5"))
    thread.join()
    text = capsys.readouterr().out
    assert code == 130 and "ended early: stopped" in text and "released at home" in text
    assert at_home(bus)


def test_a_process_told_to_end_goes_home_and_lets_go(bus, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "services.cli", *command(bus, tmp_path, *FAR)], stdout=subprocess.PIPE, text=True
    )
    try:
        meanwhile(bus, lambda: process.send_signal(signal.SIGTERM))
        text, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 143 and "released at home" in text
    assert at_home(bus)


def test_an_arm_that_is_blocked_on_its_way_home_keeps_its_torque_and_it_is_said(bus, tmp_path, capsys):
    def block() -> None:
        bus.faults.add(Fault("stuck"))
        signalled(signal.SIGINT)

    thread = meanwhile(bus, block)
    code = main(command(bus, tmp_path, *FAR))
    thread.join()
    told = capsys.readouterr()
    assert code == 8 and "TORQUE LEFT ON, home was not reached" in told.err and "released at home" not in told.out
    assert bus.state().torque_on.all()


def test_a_bus_that_goes_away_leaves_the_torque_on_and_it_is_said(bus, tmp_path, capsys):
    meanwhile(bus, bus.unplug)
    code = main(command(bus, tmp_path, *FAR, "--set", "robot.safety.lost_after_s=0.3"))
    told = capsys.readouterr()
    assert code == 8 and "ended early: " in told.out and "LEFT ON" in told.err
    assert bus.state().torque_on.all()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--target", "0.2,0"], "--target 0.2,0: write it as X,Y,Z in m"),
        (["--target", "0.2,0,nan"], "--target 0.2,0,nan: write it as X,Y,Z in m"),
        (["--target", "220,0,180"], "m from the base, no arm reaches so far; write it in metres"),
        (["--target", "0.2,0,0.1", "--targets", "3"], "--target is one point; leave it out where points are drawn"),
        (["--strength", "1"], "--strength is about the arms of --transfer"),
        (["--transfer", "--arm"], "--transfer makes its own virtual arms; leave out --arm"),
        (["--sim", "--port", "/dev/x"], "--sim makes its own port"),
        (["--sim", "--calibration", "x.json"], "--sim makes its own calibration"),
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
