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

from so101.cli.signals import Stopped, stoppable
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
    steps = [killed.generated, killed.verified]
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


def test_a_stop_that_a_library_turns_into_its_own_error_is_still_a_stop():
    """A compiled module that a signal meets while it loads raises ImportError."""
    with pytest.raises(Stopped) as caught, stoppable():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Stopped:
            raise ImportError("initialization failed") from None
    assert caught.value.exit_code == 143
    with pytest.raises(ImportError), stoppable():  # without a signal an error is an error
        raise ImportError


_FAKE_TWIN = """
while [ "$1" != --run ]; do shift; done
mkdir -p "$2/dataset"
for stage in seeds generate filter smooth verify render dataset report; do echo "$stage: 1 demos"; sleep 0.05; done
echo {content} >"$2/dataset/info.json"
"""


@pytest.mark.parametrize(("content", "identical"), [("same", True), ("$RANDOM$RANDOM$RANDOM", False)])
def test_the_kill_benchmark_tells_equal_from_different(tmp_path, content, identical):
    benchmark = Path(__file__).resolve().parents[2] / "benchmarks/kill_resume.py"
    script, figures = tmp_path / "fake_twin", tmp_path / "figures.json"
    script.write_text(_FAKE_TWIN.format(content=content))
    options = ["--kills", "9", "--twin", f"bash {script}", "--json", str(figures)]
    ended = subprocess.run([sys.executable, str(benchmark), *options], capture_output=True, text=True)
    result = json.loads(figures.read_text())
    assert (result["kills"], result["identical"]) == (9, identical), ended.stdout
    assert len({moment["stage"] for moment in result["moments"]}) > 4, ended.stdout  # all over the run
    assert ended.returncode == (0 if identical else 1)
