"""Who has which job: workers, batches and leases. No socket and no clock of its own."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from proto.errors import RemoteError
from proto.messages.work import (
    BatchReport,
    BatchState,
    File,
    JobError,
    JoinWork,
    OpenBatch,
    Order,
    PutResult,
    Result,
    WorkerReport,
    WorkReport,
)
from services.work.parts import PartStore
from so101.config.work import WorkConfig

log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Job:
    batch: _Batch
    index: int
    files: tuple[File, ...]
    holders: set[str] = field(default_factory=set)  # workers that ever had it: their result is taken, however late
    lost: int = 0  # workers that vanished with it
    leased_s: float = 0.0

    @property
    def size(self) -> int:
        return sum(file.content.nbytes for file in self.files)

    def __str__(self) -> str:
        return f"{self.batch.opened.kind} {self.index} of {self.batch.opened.run}"


@dataclass(eq=False)
class _Batch:
    opened: OpenBatch
    seen_s: float
    jobs: dict[int, _Job] = field(default_factory=dict)  # queued and running
    queue: deque[_Job] = field(default_factory=deque)
    results: dict[int, Result] = field(default_factory=dict)  # not taken yet
    done: int = 0
    lost: int = 0


@dataclass(eq=False)
class _Worker:
    joined: JoinWork
    since_s: float
    seen_s: float
    job: _Job | None = None
    done: int = 0


class Ledger:
    """All that the broker knows. Methods raise `RemoteError` with the code that the peer is told.

    Args:
        clock: monotonic, s.
    """

    def __init__(self, settings: WorkConfig, build: str, clock: Callable[[], float]) -> None:
        self._settings, self._build, self._clock = settings, build, clock
        self._workers: dict[str, _Worker] = {}
        self._batches: dict[str, _Batch] = {}
        self._turn: deque[str] = deque()  # batches; the first is served next
        self._held = 0  # bytes of files of open jobs
        self._late = 0
        self.parts = PartStore()

    # --- runs

    def open_batch(self, message: OpenBatch) -> BatchState:
        """Begin a batch; to open one again changes nothing."""
        self._check_build(message.build, f"run {message.run}")
        if message.batch in self._batches:
            return self.state(message.batch)
        if len(self._batches) >= self._settings.max_batches:
            raise RemoteError("full", f"{len(self._batches)} batches are open; deploy.work.max_batches allows no more")
        new = sum(ref.size for ref in message.parts)
        if self.parts.declared_bytes + self._held + new > self._settings.max_held_bytes:
            raise RemoteError("full", self._full_text(f"the {new} bytes that batch {message.batch} shares"))
        self.parts.declare(message.batch, message.parts)
        self._batches[message.batch] = _Batch(message, self._clock())
        self._turn.append(message.batch)
        log.info("%s opens %s jobs", message.run, message.kind)
        return self.state(message.batch)

    def submit(self, batch_id: str, index: int, files: tuple[File, ...]) -> BatchState:
        """Queue a job, unless it is there."""
        batch = self._heard_of(batch_id)
        if index not in batch.jobs and index not in batch.results:
            job = _Job(batch, index, files)
            if len(batch.jobs) >= self._settings.max_workers * self._settings.jobs_per_worker:
                raise RemoteError("full", f"{len(batch.jobs)} jobs of batch {batch_id} are open; fetch results first")
            if self.parts.declared_bytes + self._held + job.size > self._settings.max_held_bytes:
                raise RemoteError("full", self._full_text(f"the {job.size} bytes of job {index}"))
            self._held += job.size
            batch.jobs[index] = job
            batch.queue.append(job)
        return self.state(batch_id)

    def fetch(self, batch_id: str, taken: tuple[int, ...]) -> BatchState:
        """Forget results that were taken; the state with the next one."""
        batch = self._heard_of(batch_id)
        for index in taken:
            batch.results.pop(index, None)
        return self.state(batch_id, next(iter(batch.results.values()), None))

    def state(self, batch_id: str, result: Result | None = None) -> BatchState:
        """How a batch stands."""
        batch = self._heard_of(batch_id)
        return BatchState(
            missing=self.parts.missing(batch.opened.parts),
            open=(*batch.jobs, *batch.results),
            workers=sum(batch.opened.kind in worker.joined.kinds for worker in self._workers.values()),
            result=result,
        )

    def close_batch(self, batch_id: str) -> None:
        """Drop a batch, its jobs and what only it shares; what workers still do for it will be late."""
        batch = self._batches.pop(batch_id, None)
        if batch is None:
            return
        self._turn.remove(batch_id)
        for job in list(batch.jobs.values()):
            self._forget(job)
        self.parts.release(batch_id)

    # --- workers

    def join(self, message: JoinWork) -> None:
        """A worker is there; to join again keeps its job."""
        self._check_build(message.build, f"worker {message.worker} on {message.host}")
        if message.worker in self._workers:
            self.beat(message.worker)
            return
        if len(self._workers) >= self._settings.max_workers:
            raise RemoteError("full", f"{len(self._workers)} workers are here; deploy.work.max_workers allows no more")
        now = self._clock()
        self._workers[message.worker] = _Worker(message, now, now)
        log.info("worker %s joins: %s on %s", message.worker, "+".join(message.kinds), message.host)

    def beat(self, worker_id: str) -> None:
        """A worker was heard of."""
        self._worker(worker_id).seen_s = self._clock()

    def take(self, worker_id: str) -> Order | None:
        """The next job for a worker; the one it has when it has one (the answer to its last request was lost). Batches
        take turns, so that no run waits for another."""
        worker = self._worker(worker_id)
        worker.seen_s = self._clock()
        if worker.job is None:
            for _ in range(len(self._turn)):
                batch = self._batches[self._turn[0]]
                self._turn.rotate(-1)
                ready = batch.queue and batch.opened.kind in worker.joined.kinds
                if ready and not self.parts.missing(batch.opened.parts):
                    worker.job = batch.queue.popleft()
                    worker.job.holders.add(worker_id)
                    worker.job.leased_s = self._clock()
                    break
        job = worker.job
        if job is None:
            return None
        opened = job.batch.opened
        return Order(batch=opened.batch, kind=opened.kind, parts=opened.parts, index=job.index, files=job.files)

    def finish(self, message: PutResult) -> None:
        """Take a result, unless nobody waits for it or this worker was never given the job."""
        worker = self._worker(message.worker)
        worker.seen_s = self._clock()
        batch = self._batches.get(message.batch)
        job = batch.jobs.get(message.result.index) if batch else None
        if job is None or message.worker not in job.holders:
            self._late += 1
            log.debug("worker %s: result %s of %s ignored", message.worker, message.result.index, message.batch)
            return
        worker.done += 1
        batch.done += 1
        self._forget(job)
        batch.results[job.index] = message.result

    def leave(self, worker_id: str) -> None:
        """A worker ends in order; its job waits for another."""
        worker = self._workers.pop(worker_id, None)
        if worker is not None:
            log.info("worker %s leaves after %d jobs", worker_id, worker.done)
            if worker.job is not None:
                worker.job.batch.queue.appendleft(worker.job)

    # --- time

    def expire(self) -> None:
        """Give up who was silent for too long."""
        now, settings = self._clock(), self._settings
        for batch_id, batch in list(self._batches.items()):
            if now - batch.seen_s > settings.lease_s:
                log.warning("run %s is gone; its %d open jobs are dropped", batch.opened.run, len(batch.jobs))
                self.close_batch(batch_id)
        for worker_id, worker in list(self._workers.items()):
            silent, busy = now - worker.seen_s, now - worker.job.leased_s if worker.job else 0.0
            if silent > settings.lease_s:
                self._lose(worker_id, f"was silent for {silent:.1f} s")
            elif busy > settings.job_limit_s:
                self._lose(worker_id, f"spent {busy:.0f} s on {worker.job} (deploy.work.job_limit_s)")

    def _lose(self, worker_id: str, why: str) -> None:
        worker = self._workers.pop(worker_id)
        log.warning("worker %s on %s %s; it is given up", worker_id, worker.joined.host, why)
        job = worker.job
        if job is None:
            return
        job.lost += 1
        job.batch.lost += 1
        if job.lost < self._settings.max_lost_workers:
            job.batch.queue.append(job)  # behind the others: if it is to blame, they are done first
            return
        self._forget(job)
        text = (
            f"{job.lost} workers vanished while they worked on {job} (deploy.work.max_lost_workers); the last one "
            f"({worker.joined.host}, process {worker.joined.pid}) {why}. Finished work is kept. Look at the logs and "
            "the memory of the workers; with --set deploy.work.executor=local --workers 1 the job runs in the process "
            "of the command and shows where it fails"
        )
        job.batch.results[job.index] = Result(job.index, "{}", (), JobError("SimulationError", text, ""))

    # --- everybody

    def report(self) -> WorkReport:
        """Who works on what."""
        now = self._clock()
        workers = tuple(
            WorkerReport(
                worker=name,
                host=worker.joined.host,
                pid=worker.joined.pid,
                kinds=worker.joined.kinds,
                state="busy" if worker.job else "idle",
                job=str(worker.job or ""),
                done=worker.done,
                rate_per_min=60 * worker.done / max(now - worker.since_s, 1.0),
                joined_s=max(0.0, now - worker.since_s),
                silent_s=max(0.0, now - worker.seen_s),
            )
            for name, worker in self._workers.items()
        )
        batches = tuple(
            BatchReport(
                batch=name,
                run=batch.opened.run,
                kind=batch.opened.kind,
                queued=len(batch.queue),
                running=len(batch.jobs) - len(batch.queue),
                done=batch.done,
                lost=batch.lost,
            )
            for name, batch in self._batches.items()
        )
        return WorkReport(workers=workers, batches=batches, late=self._late)

    def _check_build(self, build: str, who: str) -> None:
        if build == self._build:
            return
        ours, theirs = set(self._build.split("; ")), set(build.split("; "))
        raise RemoteError(
            "refused",
            f"{who} runs another program than the broker, so its files would differ. There: "
            f"{'; '.join(sorted(theirs - ours)) or 'less'}; here: {'; '.join(sorted(ours - theirs)) or 'less'}. "
            "Install the same release on both and start them again",
        )

    def _heard_of(self, batch_id: str) -> _Batch:
        try:
            batch = self._batches[batch_id]
        except KeyError:
            raise RemoteError("unknown_batch", f"no batch {batch_id} is open; open it (again)") from None
        batch.seen_s = self._clock()
        return batch

    def _worker(self, worker_id: str) -> _Worker:
        try:
            return self._workers[worker_id]
        except KeyError:
            raise RemoteError("unknown_worker", f"no worker {worker_id} is here; join (again)") from None

    def _forget(self, job: _Job) -> None:
        """`job` is over: nobody has it and nobody waits for it."""
        del job.batch.jobs[job.index]
        self._held -= job.size
        if job in job.batch.queue:
            job.batch.queue.remove(job)
        for worker in self._workers.values():
            if worker.job is job:
                worker.job = None

    def _full_text(self, what: str) -> str:
        limit = self._settings.max_held_bytes
        return f"no room for {what}: deploy.work.max_held_bytes is {limit}; wait until other jobs are done"
