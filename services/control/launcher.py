"""Processes that work on runs: started detached, found again by whoever comes next.

A process lives as long as its lock file is locked. The control plane takes the lock and hands it to the new process, so
there is no moment in which a second control plane could start another one; the lock ends with the process, however it
ends, and no number of a process is ever mistaken for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.control.progress import finite, plain
from so101.files import write_json

REPOSITORY = Path(__file__).resolve().parents[2]
SIGNALLED = 128  # exit codes above: ended by a signal, that is, by somebody's wish
RUN_VARIABLE = "SO101_RUN_STATE"  # in the environment of a run's processes: their state folder


@dataclass(frozen=True)
class RunState:
    """The control plane's files of one run. The run's own folder is made by the pipeline alone."""

    root: Path

    @property
    def job(self) -> Path:
        """JSON: what the process is to do."""
        return self.root / "job.json"

    @property
    def lock(self) -> Path:
        """Locked while a process works on the run; holds its id."""
        return self.root / "lock"

    @property
    def progress(self) -> Path:
        return self.root / "progress.jsonl"

    @property
    def outcome(self) -> Path:
        """JSON: how the last process ended; absent when it was killed."""
        return self.root / "outcome.json"

    @property
    def log(self) -> Path:
        return self.root / "log.txt"


@dataclass(frozen=True)
class Outcome:
    """How a process ended: `start` says which one. Code 0 is success, 128 + n is signal n."""

    start: int
    code: int
    text: str
    ended_s: float


def read_outcome(state: RunState) -> Outcome | None:
    """None when there is none, or no readable one."""
    try:
        content = json.loads(state.outcome.read_text(encoding="utf-8"))
        return Outcome(
            int(finite(content["start"])),
            int(finite(content["code"])),
            plain(content["text"]),
            finite(content["ended_s"]),
        )
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def write_outcome(state: RunState, outcome: Outcome) -> None:
    write_json(state.outcome, outcome.__dict__)


class Launcher:
    """Starts and signals the processes of runs."""

    def __init__(self) -> None:
        self._children: dict[Path, subprocess.Popen] = {}

    def start(self, state: RunState, job: dict[str, Any]) -> bool:
        """Start the process for `job`; False when one works on it already."""
        state.root.mkdir(parents=True, exist_ok=True)
        with open(state.lock, "a+b") as lock:
            if not _try_lock(lock.fileno()):
                return False
            end_leftovers(state)
            write_json(state.job, job)
            with open(state.log, "ab") as log:
                self._children[state.root] = subprocess.Popen(
                    [sys.executable, "-m", "services.control.runner", str(state.root), str(lock.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(lock.fileno(),),
                    start_new_session=True,  # neither Ctrl-C nor the end of the control plane reaches it
                    env=_environment(state),
                )
            _write_pid(lock.fileno(), self._children[state.root].pid)
        return True

    def pid(self, state: RunState) -> int | None:
        """The process at work, None when there is none."""
        child = self._children.get(state.root)
        if child is not None and child.poll() is not None:
            del self._children[state.root]
        try:
            with open(state.lock, "rb") as lock:
                if _try_lock(lock.fileno()):
                    return None
                return int(lock.read().split()[0])  # written by both sides, the same number
        except (OSError, ValueError, IndexError):
            return None

    def signal(self, state: RunState, number: int) -> None:
        """Send `number` to the process, SIGKILL also to all it started."""
        pid = self.pid(state)
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)


def hold_lock(descriptor: int) -> None:
    """In the new process: keep the lock that was handed over, and hand it to nobody else."""
    os.set_inheritable(descriptor, False)
    _write_pid(descriptor, os.getpid())


def end_leftovers(state: RunState) -> None:
    """End what a process started for the run, but for the caller (Prefect's server). Linux; elsewhere it stays until
    somebody ends it."""
    mark = f"{RUN_VARIABLE}={state.root.resolve()}".encode()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            pid = int(environment.parent.name)
            if pid != os.getpid() and mark in environment.read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)
        except (OSError, ValueError):
            continue


def _environment(state: RunState) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", RUN_VARIABLE: str(state.root.resolve())}


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_pid(descriptor: int, pid: int) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{pid}\n".encode(), 0)
