"""Services as plain processes: started in order, looked after, stopped in reverse order.

The state folder holds `NAME.json` (process id, start time, command) and `NAME.log` for each service. The start time
makes a process id unmistakable: a stranger that got the number of a dead service is never taken for it, nor stopped.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from services.health import HealthCheck
from so101.config.deploy import SupervisorConfig
from so101.errors import So101Error
from so101.files import write_json


class SupervisorError(So101Error):
    """A service did not start, or another supervisor has the state folder."""


@dataclass(frozen=True)
class Spec:
    """One process."""

    name: str  # also of its files in the state folder
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)  # over this process's own
    health: HealthCheck | None = None  # None: well while it runs
    restart: bool = True  # False: its end is noted and left
    stop_grace_s: float | None = None  # between SIGTERM and SIGKILL; None: of deploy.yaml


@dataclass(frozen=True)
class Status:
    """One row of `Supervisor.status`."""

    name: str
    pid: int | None  # None: not running
    problem: str | None  # None: well
    restarts: int
    log: Path


def start_mark(pid: int) -> str | None:
    """When process `pid` started, as the system tells it; None when there is no such process (or a zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
        told = subprocess.run(
            ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True
        ).stdout.strip()
        return None if not told or told.startswith("Z") else told.split(maxsplit=1)[1]
    except ProcessLookupError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return None if fields[0] in "ZX" else f"{boot} {fields[19]}"


class Process:
    """One spec and the process that runs it, found again through its file when another supervisor started it."""

    def __init__(self, spec: Spec, state_dir: Path):
        self.spec = spec
        self.state_file = state_dir / f"{spec.name}.json"
        self.log = state_dir / f"{spec.name}.log"
        self.child: subprocess.Popen | None = None
        self.restarts = 0
        self.started_s = 0.0  # monotonic
        self.retry_at_s: float | None = None  # monotonic; None: no restart is due
        self.backoff_s = 0.0  # of the last restart
        self.pid = self._recorded_pid()

    def _recorded_pid(self) -> int | None:
        try:
            state = json.loads(self.state_file.read_text())
            pid = state["pid"] if start_mark(state["pid"]) == str(state["started"]) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if pid is not None:
            self.restarts = state.get("restarts", 0)
        return pid

    def running(self) -> bool:
        """Whether it is alive; reaps it when it is not."""
        if self.child is not None:
            return self.child.poll() is None
        self.pid = self.pid and self._recorded_pid()
        return self.pid is not None

    def exit_text(self) -> str:
        """How it ended."""
        code = None if self.child is None else self.child.poll()
        if code is None:
            return "not running"
        return f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def start(self, max_log_bytes: int) -> None:
        """Start it, its output appended to the log (the old log is set aside when it is long)."""
        if self.log.exists() and self.log.stat().st_size > max_log_bytes:
            os.replace(self.log, self.log.with_suffix(".log.1"))
        try:
            with open(self.log, "ab") as log:
                self.child = subprocess.Popen(
                    list(self.spec.argv),
                    env={**os.environ, **self.spec.env},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C in the terminal reaches the supervisor alone; it stops us in order
                )
        except OSError as error:
            raise SupervisorError(
                f"{self.spec.name} could not be started: {self.spec.argv[0]}: {error.strerror}"
            ) from None
        self.pid, self.started_s, self.retry_at_s = self.child.pid, time.monotonic(), None
        started = start_mark(self.pid)
        write_json(
            self.state_file,
            {"pid": self.pid, "started": started, "argv": list(self.spec.argv), "restarts": self.restarts},
        )

    def signal(self, number: int) -> None:
        """Send `number` to it and the processes it made."""
        if not self.running():
            return
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def stop(self, grace_s: float, poll_s: float) -> bool:
        """SIGTERM, then SIGKILL after `grace_s`; True when it ended by itself in time."""
        self.signal(signal.SIGTERM)
        end = time.monotonic() + grace_s
        while self.running() and time.monotonic() < end:
            time.sleep(poll_s)
        in_time = not self.running()
        self.signal(signal.SIGKILL)
        while self.running():
            time.sleep(poll_s)
        self.state_file.unlink(missing_ok=True)
        return in_time


class Supervisor:
    """Runs `specs`, in their order. One supervisor a state folder; errors are `SupervisorError`.

    Args:
        specs: the services; names must differ.
        state_dir: made when absent.
        settings: `config.deploy.supervisor`.
        say: takes one line of progress.
    """

    def __init__(
        self,
        specs: Iterable[Spec],
        state_dir: Path | str,
        settings: SupervisorConfig,
        say: Callable[[str], None] = print,
    ):
        self.state_dir = Path(state_dir)
        self.state_dir.mkdir(parents=True, exist_ok=True)
        self.settings = settings
        self.say = say
        self.processes = [Process(spec, self.state_dir) for spec in specs]
        self._lock = None

    def start(self, stop: threading.Event | None = None) -> None:
        """Start what does not run yet, one after the other, each once the one before is well. All are stopped again
        when one ends or is not well in time, or `stop` is set meanwhile."""
        self._take_folder()
        try:
            for process in self.processes:
                if not process.running():
                    process.start(self.settings.max_log_bytes)
                self._wait_well(process, stop)
                if stop is not None and stop.is_set():
                    raise SupervisorError("stopped before all services were up")
        except BaseException:
            self.stop()
            raise

    def watch(self, stop: threading.Event) -> None:
        """Until `stop` is set: restart what ends, later and later when it goes on ending."""
        while not stop.wait(self.settings.poll_s):
            self.look()

    def look(self) -> list[str]:
        """One round of `watch`; the names of services that ended for good. For callers with a loop of their own."""
        ended = []
        for process in self.processes:
            if process.running():
                continue
            if not process.spec.restart:
                ended.append(process.spec.name)
            elif process.retry_at_s is None:
                wait_s = self._backoff_s(process)
                process.retry_at_s = time.monotonic() + wait_s
                self.say(
                    f"{process.spec.name} {process.exit_text()}; starting it again in {wait_s:g} s ({process.log})"
                )
            elif time.monotonic() >= process.retry_at_s:
                process.restarts += 1
                process.start(self.settings.max_log_bytes)
        return ended

    def status(self) -> list[Status]:
        """How each service is now; asks each for its health."""
        rows = []
        for process in self.processes:
            running = process.running()
            problem = self._problem(process) if running else process.exit_text()
            rows.append(
                Status(process.spec.name, process.pid if running else None, problem, process.restarts, process.log)
            )
        return rows

    def stop(self) -> None:
        """Stop all in reverse order: SIGTERM, then SIGKILL after the grace. Also those that another supervisor left."""
        for process in reversed(self.processes):
            if process.running():
                grace_s = process.spec.stop_grace_s
                grace_s = self.settings.stop_grace_s if grace_s is None else grace_s
                if process.stop(grace_s, self.settings.poll_s):
                    self.say(f"{process.spec.name} stopped")
                else:
                    self.say(f"{process.spec.name} did not stop within {grace_s:g} s and was killed ({process.log})")
            process.state_file.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take_folder(self) -> None:
        if self._lock is not None:
            return
        lock = open(self.state_dir / "lock", "a")  # noqa: SIM115  held until stop
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise SupervisorError(
                f"services of {self.state_dir} are being run by another command; stop that first"
            ) from None
        self._lock = lock

    def _backoff_s(self, process: Process) -> float:
        settings = self.settings
        again = process.backoff_s > 0 and time.monotonic() - process.started_s < settings.restart_reset_s
        process.backoff_s = min(2 * process.backoff_s, settings.restart_max_s) if again else settings.restart_first_s
        return process.backoff_s

    def _problem(self, process: Process) -> str | None:
        return None if process.spec.health is None else process.spec.health.problem(self.settings.check_timeout_s)

    def _wait_well(self, process: Process, stop: threading.Event | None) -> None:
        name, began = process.spec.name, time.monotonic()
        problem: str | None = "not looked at yet"
        while problem is not None and not (stop is not None and stop.is_set()):
            if not process.running():
                raise SupervisorError(f"{name} {process.exit_text()}\n{_tail(process.log)}")
            if time.monotonic() - began > self.settings.start_timeout_s:
                raise SupervisorError(
                    f"{name} was not well after {self.settings.start_timeout_s:g} s "
                    f"(deploy.supervisor.start_timeout_s): {problem}\n{_tail(process.log)}"
                )
            problem = self._problem(process)
            if problem is not None:
                time.sleep(self.settings.poll_s)
        if problem is None:
            self.say(f"{name} is up (process {process.pid})")


def _tail(log: Path, lines: int = 12) -> str:
    text = log.read_bytes()[-8192:].decode(errors="replace").splitlines()[-lines:] if log.exists() else []
    return "\n".join([f"the end of {log}:", *("  " + line for line in text)]) if text else f"({log} is empty)"
