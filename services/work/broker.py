"""The broker: hands jobs of runs to workers and results back. A `Ledger` behind a request socket."""

from __future__ import annotations

import threading
import time
from typing import Any

from proto.messages import Message
from proto.messages.common import Ok
from proto.messages.work import (
    BatchState,
    CloseBatch,
    FetchResult,
    GetPart,
    JoinWork,
    LeaveWork,
    NextJob,
    OpenBatch,
    Part,
    PutPart,
    PutResult,
    SubmitJob,
    TakeJob,
    WorkerBeat,
    WorkReport,
    WorkStatus,
    pack,
    unpack,
)
from proto.stopping import StopFlag
from services.wire import make_server
from services.work.ledger import Ledger
from so101.config import Config
from so101.pipeline.build import build_id


class Broker:
    """Serves on its own thread after `start`, or in this one with `serve`. It keeps nothing on disk: after a restart
    runs and workers tell it again what it has to know.

    Raises:
        BindRefused, KeysError, OSError: as `services.wire.make_server`.
    """

    def __init__(self, config: Config) -> None:
        self._piece_bytes = config.deploy.work.part_bytes
        self._ledger = Ledger(config.deploy.work, build_id(), time.monotonic)
        self._lock = threading.Lock()  # status() is asked from other threads
        handlers = {
            OpenBatch: self._ledger.open_batch,
            PutPart: self._put_part,
            SubmitJob: self._submit,
            FetchResult: lambda m: self._ledger.fetch(m.batch, m.taken),
            CloseBatch: lambda m: self._ledger.close_batch(m.batch),
            JoinWork: self._ledger.join,
            TakeJob: lambda m: NextJob(order=self._ledger.take(m.worker)),
            PutResult: self._put_result,
            WorkerBeat: lambda m: self._ledger.beat(m.worker),
            LeaveWork: lambda m: self._ledger.leave(m.worker),
            GetPart: self._get_part,
            WorkStatus: lambda m: self._ledger.report(),
        }
        self._server = make_server(
            config, "work", {kind: self._locked(handler) for kind, handler in handlers.items()}, idle=self._expire
        )

    @property
    def endpoint(self) -> str:
        """Where it is bound."""
        return self._server.endpoint

    def status(self) -> WorkReport:
        """Workers and batches; from any thread."""
        with self._lock:
            return self._ledger.report()

    def serve(self, stop: StopFlag) -> None:
        """Serve until `stop` is set."""
        self._server.serve(stop)

    def start(self) -> Broker:
        self._server.start()
        return self

    def close(self) -> None:
        self._server.close()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _locked(self, handler: Any) -> Any:
        def handle(message: Message) -> Message:
            with self._lock:
                return handler(message) or Ok()

        return handle

    def _expire(self) -> None:
        with self._lock:
            self._ledger.expire()

    def _put_part(self, message: PutPart) -> None:
        self._ledger.state(message.batch)  # it is open, and was heard of
        self._ledger.parts.put(message.digest, message.offset, unpack(message.content))

    def _get_part(self, message: GetPart) -> Part:
        content = self._ledger.parts.get(message.digest)
        piece = memoryview(content)[message.offset : message.offset + self._piece_bytes]
        return Part(size=len(content), content=pack(piece))

    def _submit(self, message: SubmitJob) -> BatchState:
        for file in message.files:
            unpack(file.content)
        return self._ledger.submit(message.batch, message.index, message.files)

    def _put_result(self, message: PutResult) -> NextJob:
        for file in message.result.files:
            unpack(file.content)
        self._ledger.finish(message)
        return NextJob(order=self._ledger.take(message.worker))
