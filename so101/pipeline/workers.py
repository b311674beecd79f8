"""The process pool of the stages: `map_unordered`.

Processes are spawned (a fork would copy GL contexts and locks), run BLAS with one thread (results must not depend on
the number of cores), ignore Ctrl-C (the parent decides) and end themselves when the parent dies, even by kill -9. A
worker holds one job at a time, so an endless iterator of jobs is fine and memory stays flat.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import connection, resource_tracker
from typing import Any, TypeVar

from so101.errors import SimulationError

Job = TypeVar("Job")
Result = TypeVar("Result")

SINGLE_THREAD = {
    name: "1"
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "LP_NUM_THREADS")
}
_REPR_LIMIT = 200  # characters of a job shown in an error


def map_unordered(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    *,
    workers: int,
    initializer: Callable[..., Any] | None = None,
    initargs: tuple[Any, ...] = (),
) -> Iterator[Result]:
    """Results of ``function(job)`` as they finish, in any order.

    `jobs` is read lazily: one job a worker is in flight. The processes live until the iterator ends, fails or is closed
    (leaving a `for` loop early closes it when the iterator is dropped).

    Args:
        function, initializer: importable, so that a spawned process finds them.
        jobs: picklable values.
        workers: number of processes; 1 runs everything in this process.
        initializer, initargs: called once in each process before its first job.

    Raises:
        SimulationError: a process died; names the job it held and how it ended.
        Exception: whatever `function` raised, with the worker's traceback as its cause.
    """
    if workers <= 1:
        yield from _map_here(function, jobs, initializer, initargs)
        return
    pool: list[_Worker] = []
    try:
        for job in jobs:
            if len(pool) < workers:
                pool.append(_Worker(function, initializer, initargs))
                pool[-1].send(job)
                continue
            worker = _next_ready(pool)
            pool.append(pool.pop(pool.index(worker)))  # fair: who was served waits behind the others
            result = worker.receive()
            worker.send(job)  # before the yield: it computes while the caller writes
            yield result
        while busy := [worker for worker in pool if worker.busy]:
            yield _next_ready(busy).receive()
    finally:
        for worker in pool:
            worker.end()


def _map_here(function, jobs, initializer, initargs) -> Iterator[Any]:
    ready = initializer is None
    for job in jobs:
        if not ready:
            initializer(*initargs)
            ready = True
        yield function(job)


class _RemoteTraceback(Exception):
    """The text of a traceback from a worker, shown as the cause of the exception raised here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _Worker:
    """One process and the pipe to it."""

    def __init__(self, function, initializer, initargs) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, function, initializer, initargs), name="so101-worker", daemon=True
        )
        with child_surroundings():
            self._process.start()
        theirs.close()
        self._job: Any = None
        self.busy = False

    @property
    def pipe(self) -> connection.Connection:
        return self._pipe

    def send(self, job: Any) -> None:
        self._job, self.busy = job, True
        try:
            self._pipe.send(job)
        except (BrokenPipeError, ConnectionResetError):
            raise self._death() from None

    def receive(self) -> Any:
        try:
            value, error, trace = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._death() from None
        self.busy = False
        if error is not None:
            raise error from _RemoteTraceback(trace)
        return value

    def _death(self) -> SimulationError:
        self._process.join(timeout=5)
        code = self._process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        job = repr(self._job)
        job = job if len(job) <= _REPR_LIMIT else job[:_REPR_LIMIT] + "..."
        return SimulationError(
            f"A worker process {how} while it worked on {job}. Finished work is kept. When the machine ran out of "
            "memory, use fewer --workers; with --workers 1 the job runs in this process and shows where it fails"
        )

    def end(self) -> None:
        self._pipe.close()
        self._process.kill()  # files are written atomically: nothing is half-written
        self._process.join()
        self._process.close()


def _next_ready(pool: list[_Worker]) -> _Worker:
    ready = set(connection.wait([worker.pipe for worker in pool]))
    return next(worker for worker in pool if worker.pipe in ready)


@contextmanager
def child_surroundings() -> Iterator[None]:
    """What a process started inside inherits: one BLAS thread, and SIGINT blocked from its first instruction on."""
    resource_tracker.ensure_running()  # its first start would unblock SIGINT again
    saved = {name: os.environ.get(name) for name in SINGLE_THREAD}
    os.environ.update(SINGLE_THREAD)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def end_with_parent() -> None:
    """End this process when its parent is gone, however it went: the sentinel becomes readable then. For a thread."""
    connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)


def _serve(pipe: connection.Connection, function, initializer, initargs) -> None:
    """Body of a worker: receive a job, answer (result, error, traceback)."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    failure = None
    try:
        if initializer is not None:
            initializer(*initargs)
    except Exception as error:
        failure = (None, error, traceback.format_exc())
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):  # the parent closed the pipe
            return
        answer = failure
        if answer is None:
            try:
                answer = (function(job), None, "")
            except Exception as error:
                answer = (None, error, traceback.format_exc())
        try:
            if answer[1] is not None:
                pickle.loads(pickle.dumps(answer[1]))  # some exceptions can be packed but not unpacked
            content = pickle.dumps(answer)
        except Exception as error:
            what = f"raised {answer[1]!r}" if answer[1] is not None else "returned a value"
            text = f"{getattr(function, '__name__', function)}({job!r}) {what} that a worker cannot send back: {error}"
            content = pickle.dumps((None, SimulationError(text), answer[2] or traceback.format_exc()))
        try:
            pipe.send_bytes(content)
        except OSError:  # the parent closed the pipe: it no longer wants the answer
            return
