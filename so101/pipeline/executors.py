"""Executors: who runs the jobs of a stage. `make_executor` gives the one that deploy.work.executor names.

`local` is here. Others live outside the library and are made known with `register_executor` before a stage runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from so101.errors import ConfigError
from so101.pipeline.jobs import Job, JobContext, Runner, job_kind
from so101.pipeline.workers import map_unordered

if TYPE_CHECKING:
    from so101.config import Config

Say = Callable[[str], None]
Finished = tuple[int, dict[str, Any]]  # index of a job, what its runner returned


class Executor(Protocol):
    """Runs jobs somewhere."""

    def map_unordered(self, context: JobContext, jobs: Iterable[Job], say: Say) -> Iterator[Finished]:
        """Run `jobs`, each once, in any order.

        A job's files are in ``context.folder``, whole, when the job is given. `jobs` is read lazily. Closing the
        iterator ends the work that is under way.

        Args:
            say: takes a line for the user, when there is something to wait for.

        Raises:
            So101Error: whatever a job raised; or its worker died.
        """


EXECUTORS: dict[str, str] = {"local": "so101.pipeline.executors:LocalExecutor"}


def register_executor(name: str, factory: str) -> None:
    """Make an executor known: `factory` is "module:class", called with a `Config` and a number of processes."""
    if EXECUTORS.setdefault(name, factory) != factory:
        raise ValueError(f"executor {name!r} is {EXECUTORS[name]} already; it cannot be {factory} too")


def make_executor(config: Config, workers: int) -> Executor:
    """The executor that deploy.work.executor names.

    Args:
        workers: processes of this machine, for executors that start any.

    Raises:
        ConfigError: it is not known to this program.
    """
    name = config.deploy.work.executor
    if name not in EXECUTORS:
        raise ConfigError(
            f"deploy.yaml: work.executor is {name!r}; this program was started without the services and knows "
            f"{', '.join(EXECUTORS)}. Start it with ./twin, or pass --set deploy.work.executor=local"
        )
    module, _, factory = EXECUTORS[name].partition(":")
    return getattr(import_module(module), factory)(config, workers)


class LocalExecutor:
    """Processes of this command; with one worker, this process itself."""

    def __init__(self, config: Config, workers: int) -> None:
        self._workers = workers

    def map_unordered(self, context: JobContext, jobs: Iterable[Job], say: Say) -> Iterator[Finished]:
        workers = min(self._workers, len(jobs)) if isinstance(jobs, Sized) else self._workers
        try:
            yield from map_unordered(run_job, jobs, workers=workers, initializer=start_worker, initargs=(context,))
        finally:
            stop_worker()


_runner: Runner | None = None  # of this process
_context: JobContext


def start_worker(context: JobContext) -> None:
    """Initialiser of a process: its runner."""
    global _runner, _context
    stop_worker()
    _runner, _context = job_kind(context.kind).load()(context.settings, context.folder), context


def stop_worker() -> None:
    """Free the runner of this process, if there is one."""
    global _runner
    if _runner is not None:
        _runner.close()
        _runner = None


def run_job(job: Job) -> Finished:
    """Run one job in the folder of the run."""
    assert _runner is not None
    return job.index, _runner.run(job, _context.folder)
