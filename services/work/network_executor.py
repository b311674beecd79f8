"""Executor `network`: jobs go to the broker, whoever has joined it does them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress

from proto.errors import ProtoError, RemoteError, RequestTimeout
from proto.messages import Message
from proto.messages.common import Ok
from proto.messages.work import BatchState, CloseBatch, FetchResult, OpenBatch, PutPart, SubmitJob, pack
from services.wire import make_client
from services.work.errors import WorkError
from services.work.results import keep_result
from services.work.workshop import read_inputs, shared_of
from so101.config import Config
from so101.pipeline.build import build_id
from so101.pipeline.executors import Finished, Say
from so101.pipeline.jobs import Job, JobContext

_TELL_AFTER_S = 3.0  # of waiting; workers and broker may just be starting


class NetworkExecutor:
    """Gives jobs to the broker at deploy.sockets.work and puts what comes back into the run folder.

    Broker and workers may come, go and come again while it runs: what it has not received it asks for again.
    """

    def __init__(self, config: Config, workers: int) -> None:
        self._config = config

    def map_unordered(self, context: JobContext, jobs: Iterable[Job], say: Say) -> Iterator[Finished]:
        """As `so101.pipeline.executors.Executor`.

        Raises:
            WorkError: the broker refuses this program, or nobody was there for deploy.work.patience_s.
        """
        batch = _Batch(self._config, context, say)
        try:
            yield from batch.results(iter(jobs))
        finally:
            batch.close()


class _Batch:
    """The jobs of one call, and the talk with the broker about them."""

    def __init__(self, config: Config, context: JobContext, say: Say) -> None:
        self._settings, self._max_bytes = config.deploy.work, config.deploy.messages.max_bytes
        self._endpoint = config.deploy.sockets.work.connect
        self._context, self._say = context, say
        self._client = make_client(config, "work", timeout_s=self._settings.request_timeout_s)
        self._shared = shared_of(context)
        self._id = uuid.uuid4().hex
        self._open: dict[int, Job] = {}  # submitted, not received
        self._waiting_since: float | None = None
        self._told = False

    def results(self, jobs: Iterator[Job]) -> Iterator[Finished]:
        """Submit, fetch, until all of `jobs` are received. Every answer lists the jobs that the broker has: those
        missing there are submitted again, whatever became of them."""
        first = next(jobs, None)
        if first is None:
            return
        fresh = [first]
        state = self._begin()
        taken: tuple[int, ...] = ()
        while True:
            for job in [job for index, job in self._open.items() if index not in state.open]:
                state = self._submit(job)
            while len(self._open) < self._settings.jobs_per_worker * max(1, state.workers):
                job = fresh.pop() if fresh else next(jobs, None)
                if job is None:
                    break
                self._open[job.index] = job
                state = self._submit(job)
            if not self._open:
                return
            state = self._ask(FetchResult(batch=self._id, taken=taken))
            taken = ()
            if state.result is None:
                self._wait(state)
                continue
            self._waiting_since = None
            taken = (state.result.index,)
            if self._open.pop(state.result.index, None) is not None:  # else it came twice
                yield keep_result(self._context, state.result)

    def close(self) -> None:
        """Tell the broker that nothing more is wanted."""
        with suppress(ProtoError):
            self._client.request(CloseBatch(batch=self._id), timeout_s=min(1.0, self._settings.request_timeout_s))
        self._client.close()

    def _submit(self, job: Job) -> BatchState:
        files = read_inputs(self._context, job, self._max_bytes)
        return self._ask(SubmitJob(batch=self._id, index=job.index, files=files))

    def _begin(self) -> BatchState:
        """Open the batch, or open it again, and bring what all jobs share."""
        request = OpenBatch(
            batch=self._id,
            run=self._context.folder.resolve().name[-200:],
            kind=self._context.kind,
            parts=self._shared.refs,
            build=build_id(),
        )
        state = self._ask(request)
        while state.missing:
            self._put(state.missing[0])
            state = self._ask(request)
        return state

    def _put(self, digest: str) -> None:
        content, step = self._shared.contents[digest], self._settings.part_bytes
        for offset in range(0, max(len(content), 1), step):
            piece = pack(content[offset : offset + step])
            try:
                answer = self._ask(PutPart(batch=self._id, digest=digest, offset=offset, content=piece))
            except RemoteError:  # a piece got lost on the way: the caller looks what is missing
                return
            if not isinstance(answer, Ok):  # the batch had to be opened again
                return

    def _ask(self, message: Message) -> Message:
        """The answer to `message`; the state of the batch when it had to be opened again."""
        while True:
            try:
                return self._client.request(message)
            except RequestTimeout as error:
                self._bear(f"the broker at {self._endpoint} does not answer; waiting (`./twin up` starts one)", error)
            except RemoteError as error:
                if error.code == "unknown_batch":
                    return self._begin()
                if error.code == "full":
                    self._bear(f"the broker has no room: {error}; waiting", error)
                    time.sleep(self._settings.idle_poll_s)
                elif error.code in ("unknown_part", "wrong_offset", "wrong_digest"):
                    raise
                else:
                    raise WorkError(f"the broker at {self._endpoint} answers: {error}") from None

    def _wait(self, state: BatchState) -> None:
        if state.workers:
            self._waiting_since, self._told = None, False
        else:
            service = "renderer" if self._context.kind == "render" else "generator"
            text = f"no worker for {self._context.kind} jobs is there; waiting (`./twin serve {service}` starts one)"
            self._bear(text, None)
        time.sleep(self._settings.result_poll_s)

    def _bear(self, text: str, error: Exception | None) -> None:
        """Go on waiting, saying once for what; not for ever."""
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        waited = now - self._waiting_since
        if waited > self._settings.patience_s:
            raise WorkError(f"{text}. Given up after {waited:.0f} s (deploy.work.patience_s); the same command resumes")
        if waited > _TELL_AFTER_S and not self._told:
            self._told = True
            self._say(text)
