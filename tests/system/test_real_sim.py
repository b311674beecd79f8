"""`./real --sim --arm` as a user starts it: rig, driver, cameras, policy server and loop are processes, the arm is
behind a pty. Physics runs in real time, so what the arm does depends a little on how busy the machine is: it may try
more than once."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from so101.control.rollout_log import read_log
from so101.datasets.demo import load_demo
from so101.datasets.rollouts import SessionFolder
from so101.datasets.validate import validate_dataset
from so101.datasets.videos import probe_video

REPOSITORY = Path(__file__).parents[2]
TRIES = 3


def own_sockets(folder: Path) -> list[str]:
    """Options with which nothing meets the services of others on this machine."""
    settings = ["deploy.control.start_ease_s=1.0"]
    for name in ("driver", "driver_state", "cameras", "rig_state", "rig"):
        settings += [f"deploy.sockets.{name}.{end}=ipc://{folder}/{name}" for end in ("bind", "connect")]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings += [f"deploy.server.port={port}", f"deploy.client.port={port}"]
    return [word for setting in settings for word in ("--set", setting)]


@pytest.fixture
def real(tmp_path):
    """Starts ./real in a folder of its own; ends what is left of it."""
    started = []

    def start(*arguments: str) -> subprocess.Popen:
        argv = [sys.executable, "-m", "services.cli", "real", *own_sockets(tmp_path), *arguments]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "MUJOCO_GL": os.environ.get("MUJOCO_GL", "egl")}
        process = subprocess.Popen(
            argv, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(60)


def said(path: Path, words: str, process: subprocess.Popen) -> None:
    """Wait until `words` are in the file."""
    while not (path.is_file() and words in path.read_text(errors="replace")):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.1)


def episodes_of(dataset: Path) -> list[dict]:
    return [json.loads(line) for line in (dataset / "meta" / "episodes.jsonl").read_text().splitlines()]


def test_replay_picks_and_places_and_a_signal_in_motion_brings_the_arm_home(real, tmp_path):
    session = SessionFolder(tmp_path / "runs/real/test")
    process = real("--sim", "--policy", "replay", "--arm", "--episodes", str(TRIES + 1), "--name", "test")
    driver_log = session.services / "driver.log"
    demo_of = session.episodes / "demo_{:06d}.npz"
    # Rollouts, until one works.
    for index in range(TRIES):
        path = Path(str(demo_of).format(index))
        while not path.is_file():
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.2)
        if load_demo(path).strict:
            break
    assert load_demo(path).strict, load_demo(path).meta

    # The next one is ended from outside once the arm moves.
    said(session.log(index + 1), ",policy,", process)
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 128 + signal.SIGTERM, output
    assert "arm released: home" in driver_log.read_text().splitlines()[-1], driver_log.read_text()
    assert "stopped" in output and "Traceback" not in output

    # What was kept.
    demo, rows = load_demo(path), read_log(session.log(index))
    recorded = [row for row in rows if row.phase in ("policy", "settle") and (row.chunk >= 0 or row.phase == "settle")]
    assert demo.num_frames >= len(recorded)
    np.testing.assert_allclose(demo.q_target[-1], recorded[-1].target, atol=1e-6)
    for camera in ("ego", "side", "top"):
        assert probe_video(session.run.video(index, camera)).num_frames == demo.num_frames
    assert session.plot(index).is_file()
    record = json.loads((session.root / "session.json").read_text())
    assert record["outcomes"]["success"] == 1 and record["loop"]["ticks"] > len(recorded)

    # As a dataset.
    made = subprocess.run(
        [sys.executable, "-m", "services.cli", "real", "dataset", str(session.root)],
        cwd=REPOSITORY, capture_output=True, text=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert validate_dataset(session.run.dataset) == []
    assert [episode["length"] for episode in episodes_of(session.run.dataset)] == [demo.num_frames]
