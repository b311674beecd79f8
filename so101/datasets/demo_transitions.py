"""Rows of .demo files as what reinforcement learning trains on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from so101.datasets.demo_file import INTERVENED, SUCCESS, DemoHeader, read_demo
from so101.errors import DataError, did_you_mean

DemoFilter = Literal["all", "success", "intervened"]
FILTERS: tuple[DemoFilter, ...] = get_args(DemoFilter)
_COLUMNS = ("obs", "action", "reward", "next_obs", "done", "flags")


@dataclass(frozen=True)
class Counts:
    """Of all files, before the filter: `episodes`, `successes` among them, `rows`, `intervened` among them. `kept` rows
    passed it."""

    episodes: int
    successes: int
    rows: int
    intervened: int
    kept: int


@dataclass(frozen=True)
class Transitions:
    """N rows, float32 but for `flags`: obs and next_obs (N, D), action (N, A) in [-1, 1], reward (N,), done (N,),
    flags (N,) uint32 (bits INTERVENED, SUCCESS). `header` is that of the first file."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    done: np.ndarray
    flags: np.ndarray
    header: DemoHeader
    counts: Counts

    def __len__(self) -> int:
        return len(self.obs)


def load_transitions(
    paths: Sequence[Path | str],
    filter: DemoFilter | str = "all",
    *,
    tasks: Collection[str] = (),
    widths: tuple[int, int] | None = None,
) -> Transitions:
    """Rows of one or more .demo files, in the order of the files.

    Args:
        filter: "all" rows; those of episodes that ended in "success"; or those that a human or an expert drove
            ("intervened").
        tasks: names that are accepted; without any, all files must be of the first one's task. The first is the one
            that is trained.
        widths: D and A of who trains, when known.

    Raises:
        DataError: a file cannot be read or is damaged, files differ in task, words or rate, a width is another than
            `widths`, or no row passes the filter.
    """
    if filter not in FILTERS:
        raise DataError(f"demo filter {filter!r} is not one of {', '.join(FILTERS)}{did_you_mean(filter, FILTERS)}")
    if not paths:
        raise DataError("no .demo file to train from was named")
    files = [(Path(path), read_demo(path)) for path in paths]
    first_path, header = files[0][0], files[0][1].header
    for path, file in files:
        _check(path, file.header, first_path, header, tasks, widths)
    episodes = [episode for _, file in files for episode in file.episodes]
    if not episodes:
        raise DataError(f"{', '.join(map(str, paths))}: no episode in them; record some with `./twin record`")
    columns = {key: np.concatenate([getattr(episode, key) for episode in episodes]) for key in _COLUMNS}
    flags = columns["flags"]
    intervened = (flags & INTERVENED) > 0
    keep = {"all": np.ones(len(flags), bool), "success": (flags & SUCCESS) > 0, "intervened": intervened}[filter]
    successes = sum(episode.success for episode in episodes)
    counts = Counts(len(episodes), successes, len(flags), int(intervened.sum()), int(keep.sum()))
    if not counts.kept:
        raise DataError(
            f"{', '.join(map(str, paths))}: no row passes the filter {filter!r}: {counts.rows} rows of "
            f"{counts.episodes} episodes, {counts.successes} successful, {counts.intervened} rows intervened"
        )
    return Transitions(**{key: values[keep] for key, values in columns.items()}, header=header, counts=counts)


def _check(
    path: Path,
    header: DemoHeader,
    first_path: Path,
    first: DemoHeader,
    tasks: Collection[str],
    widths: tuple[int, int] | None,
) -> None:
    if not header.task:
        raise DataError(
            f"{path}: an MRLDEMO1 file names no task; `./twin demo convert --task TASK` makes a .demo of it"
        )
    if tasks and header.task not in tasks:
        raise DataError(
            f"{path}: of task {header.task!r}, but {' or '.join(map(repr, tasks))} is trained; leave it out"
        )
    if widths is not None and header.widths != tuple(widths):
        raise DataError(
            f"{path}: {header.widths[0]} observation words and {header.widths[1]} actions (task {header.task}), "
            f"but {widths[0]} and {widths[1]} are trained; it is of another family"
        )
    alike = DemoHeader(**{**vars(header), "task": first.task, "family": first.family}) if tasks else header
    if difference := first.difference(alike):
        raise DataError(f"{first_path} and {path} do not go together: {difference}; train from one of them")
