"""What the API tells of a run, put together from the store's row, the lock, and the files on disk."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.control import models
from services.control.launcher import SIGNALLED, Outcome, RunState
from services.control.progress import ProgressReader, RunProgress, plain
from services.control.store import StoredRun
from so101.errors import RunFolderError
from so101.evaluation.outcomes import OutcomeReader, Outcomes, Share
from so101.pipeline.record import SOURCE_KEY, read_record
from so101.pipeline.run_folder import RunFolder
from so101.pipeline.stages import STAGES


@dataclass
class _Cache:
    """What is known of one run, good as long as the folders are what they were."""

    outcomes: OutcomeReader
    stamp: tuple[Any, ...] = ()
    shown: models.Outcomes | None = None
    progress: ProgressReader | None = None
    record_stamp: int = -1
    settings: dict[str, Any] = field(default_factory=dict)


class RunViews:
    """Views of the runs below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._caches: dict[str, _Cache] = {}

    def forget(self, run_id: str) -> None:
        self._caches.pop(run_id, None)

    def of_folder(self, run_id: str) -> models.Run:
        """A run of the command line."""
        run, cache = self._cache(run_id)
        settings = cache.settings
        locked = is_locked(run)
        return models.Run(
            id=run_id,
            state="running" if locked else "idle",
            owner="command line",
            task=settings.get("task.name"),
            preset=None,
            seeds=settings.get(SOURCE_KEY),
            demos=settings.get("skillgen.target_demos"),
            overrides=[],
            created_s=None,
            began_s=None,
            ended_s=None,
            stages=[],
            messages=[],
            error="",
            crashes=0,
            actions=[] if locked else ["delete"],
            outcomes=self._outcomes(run, cache),
        )

    def of_stored(self, stored: StoredRun, state: RunState, alive: bool, outcome: Outcome | None) -> models.Run:
        """A run that was started here; `outcome` is that of its last process."""
        run, cache = self._cache(stored.id)
        if cache.progress is None:
            cache.progress = ProgressReader(state.progress)
        cache.progress.read()
        progress, request = cache.progress.progress, stored.request
        now = _state(stored, alive, outcome)
        return models.Run(
            id=stored.id,
            state=now,
            owner="control",
            task=cache.settings.get("task.name") or request["task"],
            preset=request["preset"],
            seeds=request["seeds"],
            demos=cache.settings.get("skillgen.target_demos") or request["demos"],
            overrides=request["overrides"],
            created_s=stored.created_s,
            began_s=progress.began_s,
            ended_s=outcome.ended_s if outcome else None,
            stages=_stages(progress, alive, now == "finished"),
            messages=list(progress.messages),
            error=outcome.text if outcome and now == "failed" else "",
            crashes=stored.crashes,
            actions=_ACTIONS[now],
            outcomes=self._outcomes(run, cache),
        )

    def _cache(self, run_id: str) -> tuple[RunFolder, _Cache]:
        run = RunFolder(self._folder / run_id)
        cache = self._caches.get(run_id)
        if cache is None:
            cache = self._caches[run_id] = _Cache(OutcomeReader(run))
        stamp = _modified(run.record)
        if stamp != cache.record_stamp:
            try:
                cache.settings = _readable((read_record(run) or {}).get("settings", {}))
            except (RunFolderError, OSError):
                cache.settings = {}
            cache.outcomes = OutcomeReader(run, cache.settings.get("skillgen.keep", "strict"))
            cache.record_stamp, cache.stamp = stamp, ()
        return run, cache

    def _outcomes(self, run: RunFolder, cache: _Cache) -> models.Outcomes:
        stamp = tuple(map(_modified, (run.generated, run.failed, run.verified, run.rejected)))
        if cache.shown is None or stamp != cache.stamp:
            cache.shown, cache.stamp = _shown(cache.outcomes.read()), stamp
        return cache.shown


def _readable(settings: dict[str, Any]) -> dict[str, Any]:
    """Those we show, as far as they are what they should be: a damaged run must not hide the others."""
    kinds = {"task.name": str, SOURCE_KEY: str, "skillgen.target_demos": int, "skillgen.keep": str}
    known = {key: settings[key] for key, kind in kinds.items() if type(settings.get(key)) is kind}
    return {key: plain(value) if isinstance(value, str) else value for key, value in known.items()}


def is_locked(run: RunFolder) -> bool:
    """Whether a command works in the run folder."""
    try:
        with open(run.lock, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _state(stored: StoredRun, alive: bool, outcome: Outcome | None) -> models.RunState:
    if alive:
        return "stopping" if stored.wanted == "stop" else "running"
    if stored.queued_s is not None:
        return "queued"
    if outcome is None:  # killed: taken up again in the next step, unless it was to stop
        return "stopped" if stored.wanted == "stop" else "queued"
    if outcome.code == 0:
        return "finished"
    return "stopped" if outcome.code > SIGNALLED and not _gave_up(stored, outcome) else "failed"


def _gave_up(stored: StoredRun, outcome: Outcome) -> bool:
    """Nobody asked it to stop, its process was killed again and again."""
    return stored.wanted == "run" and outcome.code == SIGNALLED + 9


_ACTIONS: dict[str, list] = {
    "queued": ["stop"],
    "running": ["stop"],
    "stopping": [],
    "stopped": ["resume", "delete"],
    "failed": ["resume", "delete"],
    "finished": ["delete"],
}


def _stages(progress: RunProgress, alive: bool, finished: bool) -> list[models.Stage]:
    names = list(STAGES)
    current = names.index(progress.current) if progress.current in names else -1
    views = []
    for place, name in enumerate(names):
        stage = progress.stages.get(name)
        if stage is None:
            state = "done" if finished else "waiting"
            views.append(
                models.Stage(name=name, state=state, done=0, total=0, unit="", rate_per_s=None, eta_s=None, note="")
            )
            continue
        running = alive and place == current
        views.append(
            models.Stage(
                name=name,
                state="running" if running else "done" if finished or place < current else "waiting",
                done=stage.done,
                total=stage.total,
                unit=stage.unit,
                rate_per_s=stage.rate_per_s,
                eta_s=stage.eta_s if running else None,
                note=stage.note,
            )
        )
    return views


def _shown(outcomes: Outcomes) -> models.Outcomes:
    return models.Outcomes(
        succeeded=_share(outcomes.succeeded),
        verified=_share(outcomes.verified),
        causes=[models.Cause(cause=cause, share=_share(share)) for cause, share in outcomes.causes],
        replay_causes=[models.Cause(cause=cause, share=_share(share)) for cause, share in outcomes.replay_causes],
    )


def _share(share: Share) -> models.Share:
    low, high = share.interval
    return models.Share(count=share.count, of=share.of, low=low, high=high)


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
