"""Real processes."""

import os
import signal
import subprocess
import sys
import time

import pytest

from services.control.launcher import RUN_VARIABLE, Launcher, RunState, end_leftovers, read_outcome
from services.control.progress import ProgressReader


@pytest.fixture
def state(tmp_path):
    return RunState(tmp_path / "state" / "one")


def job(tmp_path, **values):
    settings = {"preset": None, "task": None, "demos": 1, "workers": 1, "overrides": [], "seeds": None}
    prefect = {"prefect": False, "prefect_home": str(tmp_path / "prefect"), "prefect_start_s": 1}
    more = {"id": "one", "folder": str(tmp_path / "runs" / "one"), "start": 1, "progress_interval_s": 0.0}
    return {**settings, **prefect, **more, **values}


def wait_for(condition, what):
    end = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.05)
    return value


def test_there_is_one_process_a_run_whoever_asks(state, tmp_path):
    first, second = Launcher(), Launcher()  # of two control planes
    assert first.pid(state) is None
    assert first.start(state, job(tmp_path, overrides=["no.such=1"]))
    assert not first.start(state, job(tmp_path))
    assert not second.start(state, job(tmp_path))
    pid = second.pid(state)
    assert pid == first.pid(state) and os.getsid(pid) == pid  # a session of its own
    wait_for(lambda: second.pid(state) is None, "it ends by itself")
    assert first.pid(state) is None
    outcome = read_outcome(state)
    assert (outcome.start, outcome.code) == (1, 2)
    assert "unknown section 'no'" in outcome.text and "unknown section 'no'" in state.log.read_text()
    reader = ProgressReader(state.progress)
    reader.read()
    assert reader.progress.start == 1


def test_a_killed_process_leaves_no_outcome_and_frees_the_run(state, tmp_path):
    launcher = Launcher()
    launcher.start(state, job(tmp_path))
    launcher.signal(state, signal.SIGKILL)
    wait_for(lambda: launcher.pid(state) is None, "it is gone")
    assert read_outcome(state) is None
    assert Launcher().start(state, job(tmp_path, overrides=["no.such=1"], start=2))
    wait_for(lambda: launcher.pid(state) is None, "it ends by itself")
    assert read_outcome(state).start == 2


def test_sigterm_ends_it_with_a_word(state, tmp_path):
    launcher = Launcher()
    launcher.start(state, job(tmp_path))
    wait_for(lambda: "seeds" in state.progress.read_text() if state.progress.exists() else False, "it works")
    launcher.signal(state, signal.SIGTERM)
    wait_for(lambda: launcher.pid(state) is None, "it ends")
    assert read_outcome(state).code == 128 + signal.SIGTERM


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="leftovers are found through /proc")
def test_what_a_killed_process_left_behind_is_ended(state):
    mark = {**os.environ, RUN_VARIABLE: str(state.root.resolve())}
    ours = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=mark)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={**mark, RUN_VARIABLE: "/x"})
    try:
        wait_for(lambda: RUN_VARIABLE.encode() in open(f"/proc/{ours.pid}/environ", "rb").read(), "exec has happened")
        end_leftovers(state)
        assert ours.wait(10) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_without_any_file_there_is_no_process(state):
    assert Launcher().pid(state) is None
    Launcher().signal(state, signal.SIGTERM)  # nobody is hit
    state.root.mkdir(parents=True)
    state.lock.write_text(f"{os.getpid()}\n")  # a number without a lock means nothing
    assert Launcher().pid(state) is None
