"""The process pool: every job once, lazily, errors with their place, nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import count, islice

import pytest

from so101.errors import DataError, SimulationError
from so101.pipeline.workers import SINGLE_THREAD, map_unordered

_OFFSET = 0


def set_offset(value):
    global _OFFSET
    _OFFSET = value


def add_offset(job):
    return job + _OFFSET


def refuse(job):
    raise DataError(f"job {job} is bad")


class Unpicklable(Exception):
    def __init__(self, first, second):
        super().__init__(first)


def raise_unpicklable(job):
    raise Unpicklable(job, job)


def return_lambda(job):
    return lambda: job


def die_on_three(job):
    if job == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def surroundings(job):
    return {name: os.environ.get(name) for name in SINGLE_THREAD}, os.getpid()


def pid_then_sleep(job):
    open(os.path.join(job, str(os.getpid())), "w").close()
    time.sleep(60)


def bad_initializer():
    raise DataError("no initial state")


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_every_job_is_done_once(workers):
    results = list(map_unordered(add_offset, range(20), workers=workers, initializer=set_offset, initargs=(100,)))
    assert sorted(results) == list(range(100, 120))
    set_offset(0)


@pytest.mark.parametrize("workers", [1, 2])
def test_no_jobs_gives_no_results(workers):
    assert list(map_unordered(add_offset, [], workers=workers)) == []


def test_jobs_are_read_lazily():
    taken = []
    jobs = (taken.append(i) or i for i in count())
    results = map_unordered(add_offset, jobs, workers=2)
    assert len(list(islice(results, 10))) == 10
    assert len(taken) <= 12  # ten results and one job in flight a worker
    results.close()


def test_workers_share_the_work_and_have_single_threaded_blas():
    answers = list(map_unordered(surroundings, range(8), workers=2))
    assert all(environment == SINGLE_THREAD for environment, _ in answers)
    pids = {pid for _, pid in answers}
    assert len(pids) == 2 and os.getpid() not in pids


def test_parent_environment_is_restored(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    list(map_unordered(add_offset, range(2), workers=2))
    assert os.environ["OMP_NUM_THREADS"] == "7" and "MKL_NUM_THREADS" not in os.environ


@pytest.mark.parametrize("workers", [1, 2])
def test_error_of_a_job_comes_back_as_it_was(workers):
    with pytest.raises(DataError, match="job 5 is bad") as caught:
        list(map_unordered(refuse, [5], workers=workers))
    if workers > 1:
        assert "in refuse" in str(caught.value.__cause__)  # the worker's traceback


@pytest.mark.parametrize("workers", [1, 2])
def test_error_of_the_initializer_comes_back(workers):
    with pytest.raises(DataError, match="no initial state"):
        list(map_unordered(add_offset, [1], workers=workers, initializer=bad_initializer))


def test_dead_worker_is_named_with_its_job():
    with pytest.raises(SimulationError, match="killed by signal 9 while it worked on 3.*fewer --workers"):
        list(map_unordered(die_on_three, range(6), workers=2))


@pytest.mark.parametrize("function", [raise_unpicklable, return_lambda])
def test_what_cannot_be_sent_back_is_an_error_not_a_hang(function):
    with pytest.raises(SimulationError, match=f"{function.__name__}.*cannot send back"):
        list(map_unordered(function, [1], workers=2))


def _gone(pid, seconds=10):
    for _ in range(int(seconds / 0.05)):
        try:
            if open(f"/proc/{pid}/stat").read().split(") ")[1][0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def _wait_for_files(folder, number, seconds=20):
    for _ in range(int(seconds / 0.05)):
        if len(names := os.listdir(folder)) == number:
            return [int(name) for name in names]
        time.sleep(0.05)
    raise AssertionError(f"workers did not start: {os.listdir(folder)}")


_PARENT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in the background without it
sys.path.insert(0, {tests!r})
from test_workers import map_unordered, pid_then_sleep
if __name__ == "__main__":
    list(map_unordered(pid_then_sleep, [{folder!r}] * 2, workers=2))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_when_the_parent_does(tmp_path, how):
    pids_folder = tmp_path / "pids"
    pids_folder.mkdir()
    script = tmp_path / "parent.py"
    script.write_text(_PARENT.format(tests=os.path.dirname(__file__), folder=str(pids_folder)))
    parent = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True, start_new_session=True)
    pids = _wait_for_files(pids_folder, 2)
    if how == signal.SIGINT:
        os.killpg(parent.pid, how)  # as a terminal does: to everyone in the group
    else:
        parent.kill()
    errors = parent.communicate(timeout=10)[1]
    assert all(_gone(pid) for pid in pids)
    assert errors.count("Traceback") == (1 if how == signal.SIGINT else 0)  # the parent's own, none of a worker's
