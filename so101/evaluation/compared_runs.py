"""Runs to compare, as they are found: evaluations, trainings, entries of MLflow."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from so101.config import Config
from so101.config.training import TrackingConfig
from so101.errors import DataError
from so101.evaluation.closed_loop.folder import EvalFolder
from so101.evaluation.closed_loop.record import list_episodes, load_episode
from so101.evaluation.closed_loop.summary import metrics
from so101.evaluation.comparison import Compared

_TRAINING_LOG = Path("training") / "log.csv"


def find_run(text: str, config: Config) -> Compared:
    """An evaluation's folder, the folder of a model, or id or name of a run in MLflow (the newest of that name).

    Raises:
        DataError: it is none of them, or damaged.
    """
    path = Path(text)
    if (path / "summary.json").is_file():
        return _of_evaluation(path)
    if (path / _TRAINING_LOG).is_file():
        return _of_training(path)
    found = None if path.is_dir() else _of_mlflow(text, config.training.tracking)
    if found is None:
        raise DataError(
            f"{text}: not a run that can be compared; name a folder of ./twin eval (it has summary.json), the folder "
            f"of a model (it has {_TRAINING_LOG}), or id or name of a run in MLflow ({config.training.tracking.store})"
        )
    return found


def _of_evaluation(path: Path) -> Compared:
    folder = EvalFolder(path)
    summary, record = _json(folder.summary), _json(folder.record) if folder.record.is_file() else {}
    try:
        numbers = {**metrics(summary), **summary.get("metrics", {})}
        success = (summary["strict"]["successes"], summary["n"])
        seeds = range(summary["first_seed"], summary["last_seed"] + 1)
        if not 0 <= success[0] <= success[1] or not all(isinstance(v, int | float) for v in numbers.values()):
            raise ValueError(f"{success[0]!r} successes of {success[1]!r}, or figures that are no numbers")
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise DataError(f"{folder.summary}: not the summary of an evaluation ({error!r}); run it again") from None
    episodes = [load_episode(file) for file in list_episodes(folder.episodes)]
    return Compared(
        name=path.resolve().name,
        source=str(path),
        params=_texts(record.get("made_with", {})),
        metrics=numbers,
        success=success,
        outcomes={episode.seed: episode.strict for episode in episodes if episode.seed in seeds},
    )


def _of_training(path: Path) -> Compared:
    from so101.learning.train import read_state

    points: dict[str, dict[int, float]] = {}
    text = (path / _TRAINING_LOG).read_text(encoding="utf-8", errors="replace").replace("\0", "")
    for row in csv.reader(text.splitlines()):
        with suppress(ValueError):  # a line that a crash cut off
            step, key, value = row
            points.setdefault(key, {})[int(step)] = float(value)
    curves = {key: (np.array(list(at)), np.array(list(at.values()))) for key, at in points.items()}
    return Compared(
        name=path.resolve().name,
        source=str(path),
        params=_texts(_flat(read_state(path).get("identity", {}))),
        metrics={key: float(values[-1]) for key, (_, values) in curves.items()},
        curves=curves,
    )


def _of_mlflow(text: str, tracking: TrackingConfig) -> Compared | None:
    from so101.tracking import open_store

    if not (Path(tracking.store) / "mlflow.db").is_file():
        return None
    try:
        client = open_store(tracking)
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        quoted = text.replace("'", "")
        by = "run_id" if len(text) == 32 and text.isalnum() else "run_name"
        found = client.search_runs(
            experiments, f"attributes.{by} = '{quoted}'", order_by=["attributes.start_time DESC"], max_results=1
        )
        if not found:
            return None
        run = found[0]
        curves = {
            key: _curve(client.get_metric_history(run.info.run_id, key))
            for key in run.data.metrics
            if not key.startswith("system/")
        }
    except ImportError:
        raise DataError(f"{text}: runs in MLflow can be read with MLflow alone; pip install -e .[training]") from None
    except Exception as error:  # of MLflow, SQLAlchemy, SQLite, the disk
        why = (str(error) or repr(error)).splitlines()[0]
        raise DataError(
            f"{text}: was looked for in MLflow, and {tracking.store} cannot be read ({why}); "
            "name a folder, or another store with training.tracking.store"
        ) from None
    numbers = dict(run.data.metrics)
    n, share = numbers.get("episodes"), numbers.get("strict_share")
    return Compared(
        name=run.info.run_name or text,
        source=f"MLflow {run.info.run_id}",
        params=dict(run.data.params),
        metrics=numbers,
        curves={key: curve for key, curve in curves.items() if len(curve[0]) > 1},
        success=None if not n or share is None else (round(share * n), round(n)),
    )


def _curve(history: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """By step; of a step that was logged again the later value."""
    points = {point.step: point.value for point in sorted(history, key=lambda point: point.timestamp)}
    steps = sorted(points)
    return np.array(steps), np.array([points[step] for step in steps])


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("no mapping")
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as JSON ({error}); run the command that made it again") from None
    return content


def _flat(values: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{at}{key}.") if isinstance(value, dict) else {f"{at}{key}": value}
    return flat


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """As MLflow keeps them."""
    return {key: str(value) for key, value in values.items()}
