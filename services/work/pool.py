"""Worker processes of one service: started, started again when they die, stopped in order."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Sequence
from multiprocessing import connection
from pathlib import Path

from proto.errors import ProtoError
from proto.stopping import StopFlag, stop_on_signals
from services.work.worker import Worker
from so101.config import Config
from so101.errors import So101Error
from so101.pipeline.workers import child_surroundings, end_with_parent

log = logging.getLogger(__name__)

_REFUSED = 3  # exit code of a worker that would only fail again
_POLL_S = 0.5  # how soon a signal is seen
_LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s"


def serve_jobs(config: Config, arguments: list[str], *, service: str, kinds: Sequence[str], about: str | None) -> int:
    """Body of a service whose processes take jobs of `kinds`; returns the exit code."""
    parser = argparse.ArgumentParser(prog=f"./twin serve {service}", description=about)
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="worker processes, a processor each (1)")
    processes = parser.parse_args(arguments).processes
    if processes < 1:
        parser.error(f"--processes is {processes}; at least 1")
    with stop_on_signals() as stop, tempfile.TemporaryDirectory(prefix=f"so101-{service}-") as scratch:
        pool = [_Process(config, kinds, Path(scratch) / str(number)) for number in range(processes)]
        log.info("%s: %d process(es) for broker %s", service, processes, config.deploy.sockets.work.connect)
        try:
            return _watch(pool, stop, config.deploy.work.restart_s)
        finally:
            _stop_all(pool, config.deploy.work.drain_s)


class _Process:
    """One worker process. It ends itself when this process is gone."""

    def __init__(self, config: Config, kinds: Sequence[str], scratch: Path) -> None:
        self._arguments = (config, tuple(kinds), scratch, logging.getLogger().level)
        self._scratch = scratch
        self.start()

    def start(self) -> None:
        """Start it in an emptied scratch folder."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=_work, args=self._arguments, name="so101-worker")
        with child_surroundings():
            self.process.start()


def _watch(pool: list[_Process], stop: StopFlag, restart_s: float) -> int:
    """Start again what dies, until told to stop or refused."""
    while not stop.is_set():
        connection.wait([each.process.sentinel for each in pool], timeout=_POLL_S)
        for each in pool:
            code = each.process.exitcode
            if code is None or stop.is_set():
                continue
            if code == _REFUSED:
                return So101Error.exit_code  # its log says why
            log.warning("worker process %s ended with %s; starting another", each.process.pid, code)
            stop.wait(restart_s)
            each.start()
    return 0


def _stop_all(pool: list[_Process], drain_s: float) -> None:
    for each in pool:
        if each.process.is_alive():
            each.process.terminate()
    for each in pool:
        each.process.join(drain_s + 5.0)
        each.process.kill()
        each.process.join()


def _work(config: Config, kinds: Sequence[str], scratch: Path, log_level: int) -> None:
    """Body of a worker process."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    logging.basicConfig(level=log_level, format=_LOG_FORMAT, datefmt="%H:%M:%S")
    code = 0
    with stop_on_signals((signal.SIGTERM,)) as stop:
        try:
            Worker(config, kinds, scratch, stop).run()
        except (So101Error, ProtoError) as error:
            log.error("%s", error)
            code = _REFUSED
    logging.shutdown()
    os._exit(code)  # drivers of graphics cards like to hang in the usual way out
