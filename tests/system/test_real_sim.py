"""`./real --sim --arm` as a user starts it: rig, driver, cameras, policy server and loop are processes, the arm is
behind a pty. Physics runs in real time, so what the arm does depends a little on how busy the machine is: it may try
more than once."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from so101.control.rollout_log import read_log
from so101.datasets.demo import load_demo
from so101.datasets.rollouts import SessionFolder
from so101.datasets.validate import validate_dataset
from so101.datasets.videos import probe_video
from tests.system.real_program import REPOSITORY, RealProgram

TRIES = 3


def episodes_of(dataset: Path) -> list[dict]:
    return [json.loads(line) for line in (dataset / "meta" / "episodes.jsonl").read_text().splitlines()]


def contains(path: Path, words: str) -> bool:
    return path.is_file() and words in path.read_text(errors="replace")


def test_replay_picks_and_places_and_a_signal_in_motion_brings_the_arm_home(tmp_path):
    session = SessionFolder(tmp_path / "runs/real/test")
    arguments = ("--sim", "--policy", "replay", "--arm", "--episodes", str(TRIES + 1), "--name", "test")
    with RealProgram(tmp_path, *arguments) as real:
        for index in range(TRIES):  # until one works
            path = session.episodes / f"demo_{index:06d}.npz"
            real.until(path.is_file)
            if load_demo(path).strict:
                break
        assert load_demo(path).strict, load_demo(path).meta
        real.until(lambda: contains(session.log(index + 1), ",policy,"))
        real.process.send_signal(signal.SIGTERM)  # while the arm moves
        assert real.ends() == 128 + signal.SIGTERM, real.said
    driver_log = (session.services / "driver.log").read_text()
    assert "arm released: home" in driver_log.splitlines()[-1], driver_log
    assert "aborted (stopped)" in real.said and "Traceback" not in real.said

    demo, rows = load_demo(path), read_log(session.log(index))
    sent = [row for row in rows if row.phase in ("policy", "settle") and (row.chunk >= 0 or row.phase == "settle")]
    assert demo.num_frames >= len(sent)
    np.testing.assert_allclose(demo.q_target[-1], sent[-1].target, atol=1e-6)
    for camera in ("ego", "side", "top"):
        assert probe_video(session.run.video(index, camera)).num_frames == demo.num_frames
    assert session.plot(index).is_file()
    record = json.loads((session.root / "session.json").read_text())
    assert record["outcomes"]["success"] == 1 and record["loop"]["ticks"] > len(sent)

    argv = [sys.executable, "-m", "services.cli", "real", "dataset", str(session.root)]
    made = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert validate_dataset(session.run.dataset) == []
    assert [episode["length"] for episode in episodes_of(session.run.dataset)] == [demo.num_frames]
