"""A broker and workers on threads, jobs without physics, everything on ephemeral ports."""

from __future__ import annotations

import contextlib
import threading

import pytest

from proto.stopping import StopFlag
from services.work.broker import Broker
from services.work.worker import Worker
from so101.config import load_config
from so101.pipeline.jobs import JOB_KINDS

from . import toy

FAST = (
    "deploy.work.executor=network",
    "deploy.work.heartbeat_s=0.1",
    "deploy.work.lease_s=1.5",
    "deploy.work.idle_poll_s=0.02",
    "deploy.work.request_timeout_s=0.5",
    "deploy.work.part_bytes=4096",
)


class Site:
    """One broker's address and who works there."""

    def __init__(self, tmp_path) -> None:
        self._tmp, self._number = tmp_path, 0
        endpoint = f"ipc://{tmp_path}/work"
        self.config = self.with_settings(f"deploy.sockets.work={{bind: '{endpoint}', connect: '{endpoint}'}}")
        self.stack = contextlib.ExitStack()

    def with_settings(self, *overrides):
        if not hasattr(self, "config"):
            return load_config(overrides=[*FAST, *overrides])
        endpoint = self.config.deploy.sockets.work.bind
        place = f"deploy.sockets.work={{bind: '{endpoint}', connect: '{endpoint}'}}"
        return load_config(overrides=[*FAST, place, *overrides])

    def broker(self, *overrides: str) -> Broker:
        return self.stack.enter_context(Broker(self.with_settings(*overrides)))

    def worker(self, kinds=("toy",), config=None, **options) -> tuple[Worker, StopFlag, threading.Thread]:
        self._number += 1
        scratch = self._tmp / f"scratch_{self._number}"
        scratch.mkdir()
        stop = StopFlag()
        worker = Worker(config or self.config, kinds, scratch, stop, **options)
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        self.stack.callback(thread.join, 120)
        self.stack.callback(stop.set)
        return worker, stop, thread


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setitem(JOB_KINDS, "toy", toy.KIND)
    toy.release.clear()
    toy.began.clear()
    toy.closed.clear()
    site = Site(tmp_path)
    with site.stack:
        yield site
        toy.release.set()
