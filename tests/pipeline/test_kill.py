"""kill -9, Ctrl-C and kill, on whole processes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from so101.pipeline.run_folder import RunFolder

from . import stub_stages
from .stub_stages import tree_digest

SMALL = ("skillgen.target_demos=8", "skillgen.max_attempts=60", "skillgen.generation_guarantee=true")


def _command(folder, *more):
    options = [word for override in SMALL for word in ("--set", override)]
    return [sys.executable, stub_stages.__file__, "run", "--run", str(folder), "--workers", "2", *options, *more]


def _start(folder, sleep_s="0.02", **options):
    environment = {**os.environ, "STUB_SLEEP_S": sleep_s}
    return subprocess.Popen(
        _command(folder), env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **options
    )


def _wait_for(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not get that far"
        time.sleep(0.005)


def test_kill_9_then_resume_gives_the_same_bytes(tmp_path):
    run, killed = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "killed")
    assert subprocess.run(_command(run.root)).returncode == 0
    dice = random.Random(1)
    steps = [killed.generated, killed.smoothed, killed.verified, killed.videos]
    for step in steps:
        process = _start(killed.root)
        _wait_for(lambda step=step, process=process: step.exists() or process.poll() is not None)
        time.sleep(dice.uniform(0, 0.1))
        process.kill()
        process.communicate()
    finished = subprocess.run(_command(killed.root), capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    for name in ("dataset", "verified", "videos"):
        assert tree_digest(killed.root / name) == tree_digest(run.root / name)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stop_signals_end_all_processes_and_say_how_to_go_on(tmp_path, number):
    folder = tmp_path / "run"
    process = _start(folder, sleep_s="0.3", start_new_session=True)
    _wait_for(lambda: list(Path(folder).glob("generated/demo_*")))
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    errors = process.communicate(timeout=20)[1]
    assert process.returncode == 128 + number
    assert errors.strip() == "stopped; the same command resumes"
    _wait_for(lambda: not _alive_in_group(process.pid), seconds=10)


def _alive_in_group(group):
    """Process ids of a group, without the dead that nobody has collected yet."""
    alive = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group = stat.read_text().rpartition(") ")[2].split()[:3]
        except OSError:  # it ended while we looked
            continue
        if int(process_group) == group and state != "Z":
            alive.append(int(stat.parent.name))
    return alive


@pytest.mark.parametrize("stage_gives_same_bytes", [True, False])
def test_the_kill_benchmark_tells_equal_from_different(tmp_path, stage_gives_same_bytes):
    script = Path(__file__).resolve().parents[2] / "benchmarks/kill_resume.py"
    figures = tmp_path / "figures.json"
    environment = {**os.environ, "STUB_SLEEP_S": "0.02", "STUB_RANDOM": "" if stage_gives_same_bytes else "1"}
    command = [sys.executable, str(script), "--kills", "1", "--demos", "2", "--json", str(figures)]
    twin = f"{sys.executable} {stub_stages.__file__}"
    subprocess.run(
        [*command, "--twin", twin, "--set", "skillgen.max_attempts=20"], env=environment, capture_output=True
    )
    result = json.loads(figures.read_text())
    assert result["kills"] == 1 and result["files_compared"] >= 3
    assert result["identical"] == stage_gives_same_bytes
