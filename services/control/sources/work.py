"""The broker and its workers."""

from __future__ import annotations

import msgspec

from proto.errors import ProtoError
from proto.messages.work import WorkStatus
from services.control.models import Service
from services.control.sources.common import absent, patience_s
from services.wire import make_client
from services.work.broker import Broker
from so101.config import Config


class WorkSource:
    """The broker, in this process or elsewhere: its workers and what they work on.

    Attributes:
        endpoint: where runs of this machine find it.
    """

    def __init__(self, config: Config, *, embed: bool) -> None:
        self.embedded = embed
        self._broker = Broker(config).start() if embed else None
        self._client = None if embed else make_client(config, "work", timeout_s=patience_s(config))
        bound = self._broker.endpoint if embed else config.deploy.sockets.work.connect
        self.endpoint = bound.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")

    def look(self) -> Service:
        """Workers and batches; for one thread."""
        try:
            report = self._broker.status() if self._broker else self._client.request(WorkStatus())
        except (ProtoError, OSError) as error:
            return absent(f"no broker at {self.endpoint} ({error}); `./twin serve broker` starts one")
        values = msgspec.to_builtins(report)
        for worker in values["workers"]:
            for clock in ("rate_per_min", "joined_s", "silent_s"):  # else every look would be news
                worker[clock] = round(worker[clock])
        return Service(running=True, problem="", values=values)

    def has_workers(self) -> bool:
        """Whether a worker is connected to the broker of this process."""
        return self._broker is not None and bool(self._broker.status().workers)

    def close(self) -> None:
        (self._broker or self._client).close()
