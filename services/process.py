"""One service as a plain process, found again through its file when the program that started it is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from services.health import HealthCheck
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
    required: bool = True  # False: the others go on when it cannot be started
    restart: bool = True  # False: its end is noted and left
    stop_grace_s: float | None = None  # between SIGTERM and SIGKILL; None: of deploy.yaml


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
            {
                "pid": self.pid,
                "started": started,
                "argv": list(self.spec.argv),
                "restarts": self.restarts,
                "order": time.time_ns(),
            },
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
