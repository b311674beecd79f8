"""Runs of trainings and evaluations in MLflow: an embedded SQLite store, no server, no telemetry.

``with tracked_run(config, kind="train", name="first", params={"lr": 1e-3}) as run: run.log({"loss": 0.1}, step=3)``

What is logged never stops what is done: a store that is absent, full or locked costs one warning. Metrics are collected
and written by a thread every `training.tracking.flush_s`; a process that is killed loses no more than those.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from so101.config import Config
from so101.config.training import TrackingConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Kind = Literal["train", "eval", "transfer"]

_BATCH = 1000  # metrics MLflow takes in one call
_PARAM_BATCH = 100  # params MLflow takes in one call
_MAX_PARAM_CHARS = 6000  # of the value of a param
_log = logging.getLogger(__name__)


def kept_run_id(path: Path | str) -> str | None:
    """The `mlflow_run` in a JSON file that a command left behind, to continue that run; None where there is none."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8")).get("mlflow_run")
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None


def store_uri(tracking: TrackingConfig) -> str:
    """What MLflow calls `--backend-store-uri`."""
    return f"sqlite:///{Path(tracking.store).absolute() / 'mlflow.db'}"


def open_store(tracking: TrackingConfig) -> Any:
    """An `mlflow.MlflowClient` on the store, which is made when there is none.

    Raises:
        ImportError: MLflow is not installed.
        Exception: whatever MLflow or SQLite raise about a store they cannot open.
    """
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = os.environ["DO_NOT_TRACK"] = "true"  # before the import, which reads them
    import mlflow

    for noisy in ("mlflow", "alembic"):  # a new store is announced in dozens of lines
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # tracebacks of what is told in a line here
    store = Path(tracking.store)
    store.mkdir(parents=True, exist_ok=True)
    with open(store / ".lock", "w") as lock:  # MLflow does not keep two processes from making its tables at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        client = mlflow.MlflowClient(tracking_uri=store_uri(tracking))
        client.search_experiments(max_results=1)
    return client


class NullRun:
    """A run that is logged nowhere: what `tracked_run` gives without MLflow."""

    id: str | None = None

    def log(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Numbers at `step`; those that are not finite are kept as such."""

    def params(self, values: Mapping[str, Any]) -> None:
        """Settings, flat. One that has another value already (a run that is continued) becomes the tag resumed.KEY."""

    def tags(self, values: Mapping[str, Any]) -> None:
        """Words to search by."""

    def figure(self, name: str, figure: Figure) -> None:
        """A matplotlib figure, as figures/NAME.png."""

    def artifact(self, path: Path | str, folder: str = "") -> None:
        """A file, or a folder with all that is in it, under `folder` of the run."""

    @contextmanager
    def system_metrics(self) -> Iterator[None]:
        """While the block runs: CPU and memory of the machine, memory of this process and of its GPU, now and then."""
        yield

    def close(self, status: str) -> None:
        """End as FINISHED, FAILED or KILLED."""


class MlflowRun(NullRun):
    """A run in the store.

    Args:
        client: `mlflow.MlflowClient`.
        run_id: of a run that exists.
        clock: s; for tests.
    """

    def __init__(
        self, client: Any, run_id: str, tracking: TrackingConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.id: str = run_id
        self._client, self._tracking, self._clock = client, tracking, clock
        self._pending: deque[Any] = deque(maxlen=tracking.max_pending)
        self._writing = threading.RLock()  # one write at a time; held for as long as MLflow waits for the store
        self._quiet_until_s = -float("inf")
        self._warned = False
        self._closed = threading.Event()
        self._writer = threading.Thread(target=self._write_now_and_then, name="tracking", daemon=True)

    def start(self) -> MlflowRun:
        """Begin to write what is logged."""
        self._writer.start()
        return self

    def log(self, metrics: Mapping[str, float], step: int = 0) -> None:
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1000)
        self._pending.extend([Metric(key, float(value), now_ms, int(step)) for key, value in metrics.items()])

    def flush(self) -> None:
        """Write what was collected; what cannot be written is tried again later."""
        with self._writing:
            while self._pending:
                batch = [self._pending.popleft() for _ in range(min(_BATCH, len(self._pending)))]
                if not self._safely(lambda: self._client.log_batch(self.id, metrics=batch)):  # noqa: B023
                    room = self._tracking.max_pending - len(self._pending)
                    self._pending.extendleft(reversed(batch[-room:] if room > 0 else []))
                    return

    def params(self, values: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        def write() -> None:
            known = self._client.get_run(self.id).data.params
            new = [Param(key, text) for key, text in texts.items() if key not in known]
            for begin in range(0, len(new), _PARAM_BATCH):
                self._client.log_batch(self.id, params=new[begin : begin + _PARAM_BATCH])
            for key, text in texts.items():
                if known.get(key, text) != text:
                    self._client.set_tag(self.id, f"resumed.{key}", text)

        texts = {key: str(value)[:_MAX_PARAM_CHARS] for key, value in values.items()}
        self._safely(write)

    def tags(self, values: Mapping[str, Any]) -> None:
        from mlflow.entities import RunTag

        tags = [RunTag(key, str(value)) for key, value in values.items()]
        self._safely(lambda: self._client.log_batch(self.id, tags=tags))

    def figure(self, name: str, figure: Figure) -> None:
        self._safely(lambda: self._client.log_figure(self.id, figure, f"figures/{name}.png"))

    def artifact(self, path: Path | str, folder: str = "") -> None:
        write = self._client.log_artifacts if Path(path).is_dir() else self._client.log_artifact
        self._safely(lambda: write(self.id, str(path), folder or None))

    @contextmanager
    def system_metrics(self) -> Iterator[None]:
        ended = threading.Event()
        sampler = threading.Thread(target=self._sample, args=(ended,), name="system metrics", daemon=True)
        sampler.start()
        try:
            yield
        finally:
            ended.set()
            sampler.join()

    def close(self, status: str) -> None:
        self._closed.set()
        if self._writer.is_alive():
            self._writer.join()
        self._quiet_until_s = -float("inf")
        self.flush()
        self._safely(lambda: self._client.set_terminated(self.id, status))

    def _write_now_and_then(self) -> None:
        while not self._closed.wait(self._tracking.flush_s):
            self.flush()

    def _sample(self, ended: threading.Event) -> None:
        import psutil

        process, begin_s = psutil.Process(), self._clock()
        psutil.cpu_percent()  # the first call only begins the measurement
        while not ended.wait(self._tracking.system_metrics_s):
            sample = {
                "system/cpu_pct": psutil.cpu_percent(),
                "system/memory_pct": psutil.virtual_memory().percent,
                "system/process_memory_mb": process.memory_info().rss / 1e6,
                **_gpu_memory(),
            }
            self.log(sample, step=round(self._clock() - begin_s))

    def _safely(self, write: Callable[[], Any]) -> bool:
        """Whether it was written. After a failure the store is left alone for a while: each try may take seconds."""
        with self._writing:
            if self._clock() < self._quiet_until_s:
                return False
            try:
                write()
            except Exception as error:  # of MLflow, SQLAlchemy, SQLite, the disk: none may end what is logged
                self._quiet_until_s = self._clock() + self._tracking.retry_s
                if not self._warned:
                    _log.warning("tracking: not written to %s (%s); going on", self._tracking.store, _first_line(error))
                self._warned = True
                return False
            return True


def _gpu_memory() -> dict[str, float]:
    """Of the GPU that this process uses through torch, if it does."""
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return {}
    return {"system/gpu_memory_mb": torch.cuda.memory_allocated() / 1e6}


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def tracked_run(
    config: Config,
    *,
    kind: Kind,
    name: str,
    params: Mapping[str, Any] | None = None,
    tags: Mapping[str, Any] | None = None,
    resume_id: str | None = None,
) -> Iterator[NullRun]:
    """A run of the experiment `kind` in the store of `training.tracking`.

    It ends as FINISHED, as FAILED when the block raises, as KILLED when it is interrupted. Several processes may have
    runs open at once.

    Args:
        name: shown in MLflow; `./twin compare` finds runs by it.
        params, tags: as `MlflowRun.params` and `.tags`.
        resume_id: a run to continue, as `run.id` was; a new one when it is gone.
    """
    run = _begin(config.training.tracking, kind, name, resume_id)
    if params:
        run.params(params)
    if tags:
        run.tags(tags)
    try:
        yield run
    except Exception:
        run.close("FAILED")
        raise
    except BaseException:
        run.close("KILLED")
        raise
    run.close("FINISHED")


def _begin(tracking: TrackingConfig, kind: Kind, name: str, resume_id: str | None) -> NullRun:
    if not tracking.enabled:
        _log.warning("tracking: off, nothing is logged (training.tracking.enabled is false)")
        return NullRun()
    try:
        client = open_store(tracking)
        run_id = _resumed(client, resume_id)
        if run_id is None:
            run_id = client.create_run(_experiment(client, tracking, kind), run_name=name).info.run_id
    except ImportError:
        _log.warning("tracking: MLflow is not installed, nothing is logged; pip install -e .[training]")
        return NullRun()
    except Exception as error:  # of MLflow, SQLAlchemy, SQLite, the disk
        _log.warning("tracking: %s cannot be used, nothing is logged (%s)", tracking.store, _first_line(error))
        return NullRun()
    return MlflowRun(client, run_id, tracking).start()


def _resumed(client: Any, run_id: str | None) -> str | None:
    """`run_id`, running again; None when there is no such run."""
    from mlflow.exceptions import MlflowException

    if run_id is None:
        return None
    try:
        client.update_run(run_id, status="RUNNING")
    except MlflowException as error:
        _log.warning("tracking: run %s cannot be continued, a new one begins (%s)", run_id, _first_line(error))
        return None
    return run_id


def _experiment(client: Any, tracking: TrackingConfig, kind: Kind) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(kind)
    if found is None:
        artifacts = Path(tracking.store).absolute() / "artifacts" / kind
        try:
            return client.create_experiment(kind, artifact_location=artifacts.as_uri())
        except MlflowException:  # another process was faster
            found = client.get_experiment_by_name(kind)
            if found is None:
                raise
    return found.experiment_id
