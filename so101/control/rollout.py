"""One rollout from its beginning to its files: log, demo, videos, plot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from so101.config import Config
from so101.control.loop import ControlLoop, EpisodeResult
from so101.control.plot import write_plot
from so101.control.rollout_log import TickLog, read_log
from so101.datasets.rollouts import EpisodeRecorder, SessionFolder


class Rollout(NamedTuple):
    """What was done and where it is. No demo when nothing was recorded or was to be kept, no plot without ticks.
    `late_frames`: pictures of all cameras that are missing in the videos, because the encoder was behind."""

    index: int
    result: EpisodeResult
    demo: Path | None
    plot: Path | None
    late_frames: int = 0


def run_rollout(
    config: Config,
    loop: ControlLoop,
    folder: SessionFolder,
    *,
    cameras: Collection[str],
    start: np.ndarray | None,
    seed: int,
    meta: Mapping[str, Any],
    keep: Callable[[EpisodeResult], bool] = lambda result: True,
) -> Rollout:
    """Run `loop` once and keep what happened in `folder`, under its next number.

    Args:
        cameras: names of cameras.yaml to record.
        start: (6,) rad; where the arm is when None.
        seed, meta: go into the demo.
        keep: False: nothing but log and plot is kept.

    Raises:
        DataError: a video cannot be written. The log stays.
    """
    index = folder.next_index()
    recorder = EpisodeRecorder(config, folder, index, cameras)
    try:
        with TickLog(folder.log(index), config.robot.joint_names) as log:
            result = loop.run_episode(start, log, recorder)
    except BaseException:
        recorder.discard()
        raise
    demo = None
    with loop.holding():
        if recorder.num_frames and keep(result):
            facts = {"reason": result.reason, "loop": result.stats.summary(), "late_frames": recorder.late_frames}
            demo = recorder.finish(task=config.task.name, seed=seed, outcome=result.outcome, meta={**meta, **facts})
        else:
            recorder.discard()
        title = f"{folder.root.name}, rollout {index}: {result.outcome} ({result.reason})"
        rows = read_log(folder.log(index))
        if rows:
            write_plot(folder.plot(index), rows, config.robot.joint_names, title)
    return Rollout(index, result, demo, folder.plot(index) if rows else None, recorder.late_frames)
