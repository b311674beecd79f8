"""Services as plain processes: started in order, looked after, stopped in reverse order.

The state folder holds `NAME.json` (process id, start time, command) and `NAME.log` for each service. The start time
makes a process id unmistakable: a stranger that got the number of a dead service is never taken for it, nor stopped.
"""

from __future__ import annotations

import fcntl
import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from services.process import Process, Spec, SupervisorError
from so101.config.deploy import SupervisorConfig

__all__ = ["Process", "Spec", "Status", "Supervisor", "SupervisorError", "left_behind"]


@dataclass(frozen=True)
class Status:
    """One row of `Supervisor.status`."""

    name: str
    pid: int | None  # None: not running
    problem: str | None  # None: well
    restarts: int
    log: Path


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
        when a required one ends or is not well in time, or `stop` is set meanwhile."""
        self._take_folder()
        try:
            for process in self.processes:
                if process.running() and process.child is not None:
                    continue  # ours, and looked after
                if not process.running():
                    process.start(self.settings.max_log_bytes)
                try:
                    self._wait_well(process, stop)
                except SupervisorError as error:
                    if process.spec.required:
                        raise
                    self.say(f"{error}\ngoing on without {process.spec.name}; it is started again from time to time")
                if stop is not None and stop.is_set():
                    raise SupervisorError("stopped before all services were up")
        except BaseException:
            self.stop()
            raise

    def change(self, specs: Iterable[Spec], stop: threading.Event | None = None) -> None:
        """Run `specs` from now on: stop what is not among them, start what is new, leave the others alone."""
        wanted = {spec.name: spec for spec in specs}
        kept = {process.spec.name: process for process in self.processes if process.spec.name in wanted}
        for process in reversed(self.processes):
            if process.spec.name not in kept:
                self._stop_one(process)
        self.processes = [kept.get(name) or Process(spec, self.state_dir) for name, spec in wanted.items()]
        self.start(stop)

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
        """Stop all in reverse order: SIGTERM, then SIGKILL after the grace. Also those that a dead supervisor left,
        never those of one that lives."""
        self._take_folder()
        for process in reversed(self.processes):
            self._stop_one(process)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _stop_one(self, process: Process) -> None:
        if process.running():
            grace_s = process.spec.stop_grace_s
            grace_s = self.settings.stop_grace_s if grace_s is None else grace_s
            if process.stop(grace_s, self.settings.poll_s):
                self.say(f"{process.spec.name} stopped")
            else:
                self.say(f"{process.spec.name} did not stop within {grace_s:g} s and was killed ({process.log})")
        process.state_file.unlink(missing_ok=True)

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


def left_behind(state_dir: Path | str) -> list[Spec]:
    """What the files in `state_dir` name, oldest first: for stopping it without knowing how it was started."""
    found = []
    for path in Path(state_dir).glob("*.json"):
        try:
            state = json.loads(path.read_text())
            found.append((state["order"], Spec(path.stem, tuple(state["argv"]))))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not ours
    return [spec for _, spec in sorted(found, key=lambda pair: pair[0])]


def _tail(log: Path, lines: int = 12) -> str:
    text = log.read_bytes()[-8192:].decode(errors="replace").splitlines()[-lines:] if log.exists() else []
    return "\n".join([f"the end of {log}:", *("  " + line for line in text)]) if text else f"({log} is empty)"
