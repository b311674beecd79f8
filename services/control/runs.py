"""Runs: asked for, queued, started, watched, stopped, thrown away.

The store says what is wanted; a lock says whether a process is at work; files say what it did. Nothing else is
remembered, so a control plane that was killed goes on as if nothing had happened.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.control import models
from services.control.errors import Conflict, NotFound
from services.control.launcher import SIGNALLED, Launcher, Outcome, RunState, end_leftovers, read_outcome, write_outcome
from services.control.requests import check_name, check_settings, find_recording
from services.control.store import RunStore, StoredRun
from services.control.view import RunViews
from so101.config.control_plane import ControlPlaneConfig
from so101.pipeline.run_folder import RunFolder

log = logging.getLogger(__name__)

TRASH = ".trash"


class Runs:
    """All runs below the runs folder, for any thread.

    Args:
        executor: says which executor a run that starts now shall use; None leaves it to deploy.yaml.
        more_overrides: settings that every process gets besides those of its request.
    """

    def __init__(
        self,
        settings: ControlPlaneConfig,
        launcher: Launcher | None = None,
        *,
        executor: Callable[[], str | None] = lambda: None,
        more_overrides: Callable[[], list[str]] = lambda: [],
    ) -> None:
        self.settings = settings
        self.folder = Path(settings.runs.folder)
        self._state_dir = Path(settings.state_dir)
        self._store = RunStore(self._state_dir / "runs.sqlite3")
        self._launcher = launcher or Launcher()
        self._executor, self._more_overrides = executor, more_overrides
        self._views = RunViews(self.folder)
        self._lock = threading.RLock()

    def start(self, request: dict[str, Any]) -> models.Run:
        """Queue a new run.

        Raises:
            ConfigError, Invalid: a setting is wrong.
            Conflict: the name is taken, or too many wait.
        """
        check_settings(request)
        if request["seeds"] is not None:
            source = find_recording(request["seeds"], self.settings.runs.recordings)
            request = {**request, "seeds": str(source)}
        with self._lock:
            waiting = sum(stored.queued_s is not None for stored in self._store.all())
            if waiting >= self.settings.runs.max_queued:
                raise Conflict(f"{waiting} runs wait already (deploy.control_plane.runs.max_queued); stop some first")
            run_id = check_name(request["name"]) if request["name"] is not None else self._new_name(request)
            if os.path.lexists(self.folder / run_id):
                raise Conflict(
                    f"{self.folder / run_id} exists already; resume that run, delete it, or choose another name"
                )
            try:
                self._store.add(run_id, {**request, "name": run_id}, time.time())
            except sqlite3.IntegrityError:
                raise Conflict(f"there is a run {run_id!r} already; choose another name") from None
            self.step()
            return self.get(run_id)

    def resume(self, run_id: str) -> models.Run:
        """Queue a stopped or failed run; it goes on where it stopped.

        Raises:
            NotFound, Conflict.
        """
        with self._lock:
            self._require(run_id, "resume")
            self._store.queue(run_id, time.time())
            self.step()
            return self.get(run_id)

    def stop(self, run_id: str) -> models.Run:
        """Ask a run to stop; what is finished stays. A queued one leaves the queue.

        Raises:
            NotFound, Conflict.
        """
        with self._lock:
            self._require(run_id, "stop")
            self._store.mark_stopping(run_id, time.time())
            self._launcher.signal(self._state(run_id), signal.SIGTERM)
            return self.get(run_id)

    def delete(self, run_id: str) -> Path:
        """Move the folder of a run to the trash (in the runs folder) and forget the run; returns where it is now.

        Raises:
            NotFound, Conflict: it is at work.
        """
        with self._lock:
            self._require(run_id, "delete")
            trash = self.folder / TRASH
            trash.mkdir(parents=True, exist_ok=True)
            target = trash / f"{run_id}-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 1000:03d}"
            if (self.folder / run_id).is_dir():
                os.rename(self.folder / run_id, target)
            if self._store.get(run_id) is not None:
                self._store.remove(run_id)
                shutil.rmtree(self._state(run_id).root, ignore_errors=True)
            self._views.forget(run_id)
            return target

    def get(self, run_id: str) -> models.Run:
        """One run.

        Raises:
            NotFound.
        """
        with self._lock:
            stored = self._store.get(run_id)
            self._require_known(run_id, stored)
            return self._view(run_id, stored)

    def list(self) -> list[models.Run]:
        """All runs: those at work, those that wait, the others newest first, then those of the command line."""
        with self._lock:
            stored = {run.id: run for run in self._store.all()}
            names = [*stored, *(name for name in self._folders() if name not in stored)]
            views = [self._view(name, stored.get(name)) for name in names]
        return sorted(views, key=lambda run: _RANK.get(run.state, len(_RANK)))

    def folder_of(self, run_id: str) -> RunFolder:
        """The folder of a run that exists.

        Raises:
            NotFound.
        """
        with self._lock:
            self._require_known(run_id, self._store.get(run_id))
        return RunFolder(self.folder / run_id)

    def log_of(self, run_id: str) -> Path:
        """The log of a run that exists; absent for runs of the command line."""
        self.folder_of(run_id)
        return self._state(run_id).log

    def step(self) -> None:
        """Start what waits and may start, start again what died, end what does not stop."""
        with self._lock:
            free = self.settings.runs.max_concurrent
            waiting = []
            for stored in self._store.all():
                state = self._state(stored.id)
                if self._launcher.pid(state) is not None:
                    free -= 1
                    self._press(stored, state)
                elif stored.queued_s is not None:
                    waiting.append(stored)
                elif stored.wanted == "run" and self._outcome(stored, state) is None:
                    self._take_up(stored, state)  # killed, or this program was between two steps
            for stored in waiting[: max(free, 0)]:
                self._launch(stored)

    def counts(self) -> tuple[int, int]:
        """Runs at work, and runs that wait."""
        with self._lock:
            rows = self._store.all()
            running = sum(self._launcher.pid(self._state(row.id)) is not None for row in rows)
        return running, sum(row.queued_s is not None for row in rows)

    def pause(self) -> None:
        """Stop what is at work, to go on when the control plane starts again. Waits for it, at most `stop_grace_s`."""
        with self._lock:
            states = [self._state(run.id) for run in self._store.all()]
            working = [state for state in states if self._launcher.pid(state) is not None]
            for state in working:
                self._store.queue_again(state.root.name, time.time(), crashed=False)
                self._launcher.signal(state, signal.SIGTERM)
            end = time.monotonic() + self.settings.runs.stop_grace_s
            while working and time.monotonic() < end:
                time.sleep(0.05)
                working = [state for state in working if self._launcher.pid(state) is not None]
            for state in working:
                self._launcher.signal(state, signal.SIGKILL)

    def close(self) -> None:
        """Close the store. Runs go on."""
        with self._lock:
            self._store.close()

    def _press(self, stored: StoredRun, state: RunState) -> None:
        if stored.stop_s is not None and time.time() - stored.stop_s > self.settings.runs.stop_grace_s:
            log.warning("%s did not stop within %g s: killed", stored.id, self.settings.runs.stop_grace_s)
            self._launcher.signal(state, signal.SIGKILL)

    def _take_up(self, stored: StoredRun, state: RunState) -> None:
        if stored.crashes < self.settings.runs.max_crashes:
            log.warning("%s: its process died; it goes on", stored.id)
            self._store.queue_again(stored.id, time.time())
            return
        text = f"its process died {stored.crashes + 1} times; the end of the log may say why. Resuming tries again"
        end_leftovers(state)
        write_outcome(state, Outcome(stored.starts, SIGNALLED + signal.SIGKILL, text, time.time()))

    def _launch(self, stored: StoredRun) -> None:
        runs, request = self.settings.runs, stored.request
        executor = self._executor()
        chosen = [f"deploy.work.executor={executor}"] if executor is not None else []
        job = {
            **request,
            "id": stored.id,
            "overrides": [*self._more_overrides(), *chosen, *request["overrides"]],
            "folder": str((self.folder / stored.id).resolve()),
            "start": self._store.mark_started(stored.id),
            "prefect": runs.prefect,
            "prefect_home": str((self._state_dir / "prefect").resolve()),
            "prefect_start_s": runs.prefect_start_s,
            "progress_interval_s": runs.progress_interval_s,
        }
        log.info("%s starts, executor %s", stored.id, executor or "as in deploy.yaml")
        self._launcher.start(self._state(stored.id), job)

    def _state(self, run_id: str) -> RunState:
        return RunState(self._state_dir.resolve() / "runs" / run_id)

    def _outcome(self, stored: StoredRun, state: RunState) -> Outcome | None:
        """How the last process ended; None when it did not say."""
        outcome = read_outcome(state)
        return outcome if outcome is not None and outcome.start == stored.starts else None

    def _view(self, run_id: str, stored: StoredRun | None) -> models.Run:
        if stored is None:
            return self._views.of_folder(run_id)
        state = self._state(run_id)
        alive = self._launcher.pid(state) is not None  # before the outcome: it is written while the lock is held
        return self._views.of_stored(stored, state, alive, None if alive else self._outcome(stored, state))

    def _folders(self) -> list[str]:
        """Run folders by name, newest first; no links, they may lead anywhere."""
        try:
            entries = [e for e in os.scandir(self.folder) if e.is_dir(follow_symlinks=False) and e.name[0] != "."]
        except OSError:
            return []
        ours = [e for e in entries if RunFolder(Path(e.path)).record.is_file()]
        return [e.name for e in sorted(ours, key=lambda e: e.stat().st_mtime, reverse=True)]

    def _require_known(self, run_id: str, stored: StoredRun | None) -> None:
        if stored is None and run_id not in self._folders():  # never a path: only what is listed is opened
            raise NotFound(f"there is no run {run_id[:80]!r} in {self.folder}")

    def _require(self, run_id: str, action: str) -> None:
        run = self.get(run_id)
        if action in run.actions:
            return
        if run.owner == "command line" and action != "delete":
            raise Conflict(
                f"{run_id} is a run of the command line; {action} it there (./twin run --run {self.folder / run_id})"
            )
        raise Conflict(f"{run_id} is {run.state}; it can be {_PARTICIPLES[action]} when it is {_WHEN[action]}")

    def _new_name(self, request: dict[str, Any]) -> str:
        task = request["task"] or request["preset"] or "run"
        base = "".join(c if c.isalnum() and c.isascii() else "_" for c in task)[:40].strip("_") or "run"
        name = f"{base}-{time.strftime('%Y%m%d-%H%M%S')}"
        taken = {*self._folders(), *(stored.id for stored in self._store.all())}
        return next(n for n in (name, *(f"{name}-{i}" for i in range(2, len(taken) + 3))) if n not in taken)


_RANK = {"running": 0, "stopping": 0, "queued": 1}
_PARTICIPLES = {"stop": "stopped", "resume": "resumed", "delete": "deleted"}
_WHEN = {"stop": "queued or running", "resume": "stopped or failed", "delete": "neither queued nor running"}
