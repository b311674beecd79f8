"""A worker: takes jobs from the broker, one at a time, and returns what they made."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from proto.errors import ProtoError, RemoteError, RequestTimeout
from proto.messages import Message
from proto.messages.work import (
    GetPart,
    JoinWork,
    LeaveWork,
    NextJob,
    Order,
    PartRef,
    PutResult,
    TakeJob,
    WorkerBeat,
    unpack,
)
from proto.stopping import StopFlag
from services.wire import make_client
from services.work.errors import WorkError
from services.work.workshop import Workshop
from so101.config import Config
from so101.pipeline.build import build_id
from so101.pipeline.jobs import job_kind

log = logging.getLogger(__name__)


class Worker:
    """Works until `stop` is set, then finishes the job in hand or gives it back.

    A thread of its own tells the broker that the worker is there. When the broker is away the worker waits; when it has
    been replaced the worker joins the new one.

    Args:
        kinds: of jobs it takes.
        scratch: an empty folder of its own.
        abandon: called when `stop` was set deploy.work.drain_s ago and the job still runs; it has been given back.
    """

    def __init__(
        self,
        config: Config,
        kinds: Sequence[str],
        scratch: Path,
        stop: StopFlag,
        abandon: Callable[[], None] = lambda: os._exit(0),
    ) -> None:
        self._config, self._settings, self._stop, self._abandon = config, config.deploy.work, stop, abandon
        self.id = uuid.uuid4().hex
        self._join = JoinWork(
            worker=self.id, kinds=tuple(kinds), host=socket.gethostname()[:200], pid=os.getpid(), build=build_id()
        )
        self._workshop = Workshop(scratch, self._settings.contexts_kept, config.deploy.messages.max_bytes)
        self._client = make_client(config, "work", timeout_s=self._settings.request_timeout_s)
        self._ended = threading.Event()
        self._silent = False
        self.done = 0

    def run(self) -> None:
        """Work until `stop` is set.

        Raises:
            WorkError: the broker refuses this worker.
        """
        for kind in self._join.kinds:
            job_kind(kind).load()  # before there is a job that would wait for it
        beats = threading.Thread(target=self._beat, name="beats", daemon=True)
        beats.start()
        try:
            order = self._take(TakeJob(worker=self.id))
            while not self._stop.is_set():
                if order is None:
                    self._stop.wait(self._settings.idle_poll_s)
                    order = self._take(TakeJob(worker=self.id))
                else:
                    order = self._take(self._do(order))
        finally:
            self._ended.set()
            beats.join()
            with suppress(ProtoError):
                self._client.request(LeaveWork(worker=self.id), timeout_s=min(1.0, self._settings.request_timeout_s))
            self._client.close()
            self._workshop.close()

    def _do(self, order: Order) -> Message:
        """Do a job; what to send then."""
        try:
            result = self._workshop.run(order.kind, order.parts, order.index, order.files, self._fetch)
        except RemoteError as error:  # what the jobs share is gone, and so is who wanted it
            log.info("job %s of %s is not wanted any more: %s", order.index, order.batch, error)
            return TakeJob(worker=self.id)
        self.done += 1
        return PutResult(worker=self.id, batch=order.batch, result=result)

    def _take(self, message: Message) -> Order | None:
        """The order in the answer to `message`."""
        answer = self._ask(message, after_stop=2 if isinstance(message, PutResult) else 0)
        return answer.order if isinstance(answer, NextJob) else None

    def _fetch(self, ref: PartRef) -> bytes:
        content = bytearray()
        while True:
            part = self._ask(GetPart(digest=ref.digest, offset=len(content)))
            if part is None:  # told to stop
                raise RemoteError("stopped", "the worker was told to stop")
            content += unpack(part.content)
            if len(content) >= part.size or not part.content.size:
                return bytes(content)

    def _ask(self, message: Message, after_stop: int = 0) -> Message | None:
        """The answer to `message`, however long the broker is away; None when told to stop meanwhile.

        Args:
            after_stop: tries that are made although told to stop: a finished job is worth some.
        """
        while True:
            if self._stop.is_set():
                if after_stop == 0:
                    return None
                after_stop -= 1
            try:
                answer = self._client.request(message)
            except RequestTimeout as error:
                if not self._silent:
                    log.warning("%s; trying on", error)
                self._silent = True
            except RemoteError as error:
                if error.code == "unknown_worker":
                    self._ask(self._join, after_stop=1)
                elif error.code == "full":
                    self._stop.wait(self._settings.lease_s)
                elif error.code == "unknown_part":
                    raise
                else:
                    raise WorkError(f"the broker at {self._client.endpoint} answers: {error}") from None
            else:
                if self._silent:
                    log.info("%s answers again", self._client.endpoint)
                self._silent = False
                return answer

    def _beat(self) -> None:
        """Tell the broker that this worker is there, until it has ended; also while it finishes its last job."""
        asked_to_stop: float | None = None
        with make_client(self._config, "work", timeout_s=self._settings.request_timeout_s) as client:
            while not self._ended.wait(self._settings.heartbeat_s):
                with suppress(ProtoError):  # the broker is away: the worker finds out itself
                    try:
                        client.request(WorkerBeat(worker=self.id))
                    except RemoteError:
                        client.request(self._join)  # a new broker: it should know who is at work
                if self._stop.is_set():
                    asked_to_stop = asked_to_stop or time.monotonic()
                    if time.monotonic() - asked_to_stop > self._settings.drain_s:
                        log.warning("a job did not end in %g s; giving it back", self._settings.drain_s)
                        with suppress(ProtoError):
                            client.request(LeaveWork(worker=self.id))
                        self._abandon()
                        return
