"""Real worker processes, real attempts: kill -9 and a replaced broker leave the files of an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proto.errors import RequestTimeout
from proto.messages.work import WorkStatus
from services.wire import make_client
from services.work import register
from services.work.broker import Broker
from so101.config import load_config
from so101.datasets.demo import list_demos
from so101.datasets.seeds_hdf5 import write_seeds
from so101.kinematics import ArmKinematics
from so101.pipeline.progress import SilentReporter
from so101.pipeline.run_folder import RunFolder
from so101.skillgen.generate import generate

REPOSITORY = Path(__file__).resolve().parents[3]
ATTEMPTS = 12


def settings(endpoint: str, *more: str) -> list[str]:
    return [
        "task.name=vial_to_rack",
        f"skillgen.max_attempts={ATTEMPTS}",
        "skillgen.generation_guarantee=false",
        f"deploy.sockets.work={{bind: '{endpoint}', connect: '{endpoint}'}}",
        "deploy.work.heartbeat_s=0.3",
        "deploy.work.lease_s=3",
        "deploy.work.request_timeout_s=1",
        "deploy.work.restart_s=0.1",
        *more,
    ]


def start_generator(endpoint: str, log: Path, *arguments: str) -> subprocess.Popen:
    overrides = [part for value in settings(endpoint) for part in ("--set", value)]
    command = [sys.executable, "-m", "services.cli", "serve", "generator", *overrides, *arguments]
    return subprocess.Popen(command, stdout=open(log, "ab"), stderr=subprocess.STDOUT, cwd=REPOSITORY)


def contents(run: RunFolder) -> dict[str, bytes]:
    return {f"{p.parent.name}/{p.name}": p.read_bytes() for p in [*list_demos(run.generated), *list_demos(run.failed)]}


def new_run(path: Path, config, seeds) -> RunFolder:
    run = RunFolder(path)
    path.mkdir()
    write_seeds(run.seeds, seeds, config, ArmKinematics(config).fk)
    return run


def wait_for_workers(config, number: int, seconds: float = 120.0) -> list:
    end = time.monotonic() + seconds
    with make_client(config, "work") as client:
        while time.monotonic() < end:
            try:
                workers = client.request(WorkStatus()).workers
            except RequestTimeout:
                workers = ()
            if len(workers) >= number:
                return list(workers)
            time.sleep(0.1)
    raise AssertionError(f"{number} workers did not join")


class Disturb(SilentReporter):
    """Does one thing after each of some attempts."""

    def __init__(self, deeds: dict[int, object]) -> None:
        self._deeds, self._count = deeds, 0

    def advance(self, count=1, note=""):
        self._count += count
        deed = self._deeds.pop(self._count, None)
        if deed is not None:
            deed()


@pytest.fixture(scope="module")
def whole(tmp_path_factory, vial_config, vial_seeds) -> dict[str, bytes]:
    run = new_run(tmp_path_factory.mktemp("whole") / "run", vial_config, vial_seeds)
    generate(load_config(overrides=settings("ipc://unused")), run, SilentReporter(), 1)
    return contents(run)


def test_killed_workers_and_a_replaced_broker_leave_the_same_files(whole, tmp_path, vial_config, vial_seeds):
    register()
    endpoint = f"ipc://{tmp_path}/work"
    config = load_config(overrides=settings(endpoint, "deploy.work.executor=network"))
    run = new_run(tmp_path / "run", vial_config, vial_seeds)
    broker = Broker(config).start()
    pool = start_generator(endpoint, tmp_path / "log", "--processes", "2")
    try:
        workers = wait_for_workers(config, 2)

        def replace_broker():
            nonlocal broker
            broker.close()
            deadline = time.monotonic() + 10
            while True:  # ZeroMQ gives the address back some time after the socket was closed
                try:
                    broker = Broker(config).start()
                    return
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)

        deeds = {3: lambda: os.kill(workers[0].pid, signal.SIGKILL), 7: replace_broker}
        result = generate(config, run, Disturb(deeds), 1)
        assert result.summary["attempts"] == ATTEMPTS and deeds == {}
        assert contents(run) == whole
        assert workers[0].pid not in {worker.pid for worker in wait_for_workers(config, 2)}  # another was started
        pool.terminate()
        assert pool.wait(60) == 0
        assert broker.status().workers == ()  # they left in order
    finally:
        pool.kill()
        pool.wait()
        broker.close()


def test_the_processes_end_with_their_service(tmp_path):
    endpoint = f"ipc://{tmp_path}/work"
    config = load_config(overrides=settings(endpoint))
    with Broker(config):
        pool = start_generator(endpoint, tmp_path / "log")
        (worker,) = wait_for_workers(config, 1)
        pool.kill()
        pool.wait()
        for _ in range(2400):
            if not Path(f"/proc/{worker.pid}").exists():
                break
            time.sleep(0.05)
        assert not Path(f"/proc/{worker.pid}").exists()
