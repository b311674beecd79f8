"""Executor `ray`: the same jobs as tasks of a Ray cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any

from proto.messages.work import File, JobError, PartRef, Result, pack, unpack
from services.work.errors import WorkError
from services.work.results import keep_result
from services.work.workshop import Shared, Workshop, read_inputs, shared_of
from so101.config import Config
from so101.pipeline.build import build_id
from so101.pipeline.executors import Finished, Say
from so101.pipeline.jobs import Job, JobContext
from so101.pipeline.workers import SINGLE_THREAD

_FOREVER_S = 1.0  # one wait for results; Ctrl-C is seen in between


class RayExecutor:
    """Runs jobs on the cluster at deploy.work.ray.address. Nodes may join and leave while it runs: Ray gives the jobs
    of a node that died to others.

    Raises:
        WorkError: Ray is not installed, or the cluster cannot be reached.
    """

    def __init__(self, config: Config, workers: int) -> None:
        self._config, self._workers = config, workers
        self._ray = _connect(config, workers)

    def map_unordered(self, context: JobContext, jobs: Iterable[Job], say: Say) -> Iterator[Finished]:
        """As `so101.pipeline.executors.Executor`.

        Raises:
            WorkError: a node runs another program, or its processes die again and again.
        """
        ray, settings, limit = self._ray, self._config.deploy.work, self._config.deploy.messages.max_bytes
        shared = shared_of(context)
        contents = ray.put(shared.contents)
        task = ray.remote(
            num_cpus=settings.ray.cpus_per_job, max_retries=settings.max_lost_workers - 1, retry_exceptions=False
        )(_run)
        jobs, pending = iter(jobs), {}
        try:
            while True:
                while len(pending) < self._in_flight():
                    job = next(jobs, None)
                    if job is None:
                        break
                    files = [(file.name, bytes(unpack(file.content))) for file in read_inputs(context, job, limit)]
                    refs = [(ref.name, ref.digest, ref.size) for ref in shared.refs]
                    arguments = (build_id(), context.kind, refs, contents, job.index, files)
                    pending[task.remote(*arguments, settings.contexts_kept, limit)] = job.index
                if not pending:
                    return
                ready, _ = ray.wait(list(pending), num_returns=1, timeout=_FOREVER_S)
                for reference in ready:
                    index = pending.pop(reference)
                    yield keep_result(context, self._received(reference, context.kind, index))
        finally:
            for reference in pending:
                ray.cancel(reference, force=False)

    def _in_flight(self) -> int:
        cpus = self._ray.cluster_resources().get("CPU", 0)
        places = max(1, int(cpus / self._config.deploy.work.ray.cpus_per_job))
        return self._config.deploy.work.jobs_per_worker * places

    def _received(self, reference: Any, kind: str, index: int) -> Result:
        try:
            summary, files, error = self._ray.get(reference)
        except self._ray.exceptions.RayError as failure:
            raise WorkError(
                f"Ray lost {kind} {index}: {failure}. Finished work is kept; the same command resumes. With --set "
                "deploy.work.executor=local --workers 1 the job runs in the process of the command"
            ) from None
        if error is not None:
            error = JobError(*error)
        return Result(index, summary, tuple(File(name, pack(content)) for name, content in files), error)


def _connect(config: Config, workers: int) -> Any:
    """The ray module, connected; a cluster of this machine is started when no address is set."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    try:
        import ray
    except ImportError:
        raise WorkError("deploy.work.executor is ray, which is not installed: pip install -e .[ray]") from None
    logging.getLogger("ray").setLevel(logging.ERROR)
    if ray.is_initialized():
        return ray
    address = config.deploy.work.ray.address
    here = {} if address else {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(
            address=address or "local",
            logging_level=logging.ERROR,
            log_to_driver=False,
            configure_logging=False,
            runtime_env={"env_vars": {**SINGLE_THREAD, "RAY_USAGE_STATS_ENABLED": "0"}},
            **here,
        )
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise WorkError(
            f"no Ray cluster at deploy.work.ray.address {address!r} ({error}); start one with `ray start --head "
            "--disable-usage-stats`, or set null for one of this machine alone"
        ) from None
    return ray


_workshop: Workshop | None = None  # of a process of Ray


def _run(
    build: str,
    kind: str,
    refs: list[tuple[str, str, int]],
    contents: dict[str, bytes],
    index: int,
    files: list[tuple[str, bytes]],
    kept: int,
    max_bytes: int,
) -> tuple[str, list[tuple[str, bytes]], tuple[str, str, str] | None]:
    """A task: one job. Returns its summary, files, and error."""
    global _workshop
    if build != build_id():
        text = f"a node of the Ray cluster runs another program: {build_id()}; the run has {build}"
        return "{}", [], ("SimulationError", text, "")
    if _workshop is None:
        _workshop = Workshop(None, kept, max_bytes)
    shared = Shared(tuple(PartRef(*ref) for ref in refs), contents)
    given = [File(name, pack(content)) for name, content in files]
    result = _workshop.run(kind, shared.refs, index, given, lambda ref: shared.contents[ref.digest])
    error = result.error and (result.error.error, result.error.text, result.error.trace)
    return result.summary, [(file.name, bytes(unpack(file.content))) for file in result.files], error
