"""Reads a run folder, one demo at a time, into the small numbers that the report shows. Missing stages stay None."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from so101.config import Config
from so101.datasets.demo import Demo, list_demos, load_demo
from so101.datasets.seeds_hdf5 import read_seeds
from so101.errors import DataError
from so101.evaluation.coverage import ObjectCoverage, Starts, failed_subtask, is_moved, object_coverage
from so101.evaluation.statistics import (
    ForwardKinematics,
    Interval,
    SourceUse,
    TrajectoryStatistics,
    cause_table,
    source_usage,
    start_offset,
    trajectory_statistics,
    wilson_interval,
)
from so101.geometry import make_pose, rotation_about_axis
from so101.pipeline.run_folder import RunFolder
from so101.tasks.success import judge_object
from so101.trajectory.smoothing import kept_indices

SOURCES = ("seeds", "generated", "verified")
CHANCES = ("geometric", "strict", "verified")  # stages whose share is a success probability


@dataclass(frozen=True)
class StageCount:
    """One row of the pipeline table. `count` is None where the stage has not run; `of` is what the share is of. The
    share has an interval where success is a matter of chance, that is with a `confidence`."""

    name: str
    meaning: str
    count: int | None
    of: int | None = None
    of_name: str = ""
    confidence: float | None = None

    @property
    def share(self) -> float | None:
        return self.count / self.of if self.count is not None and self.of else None

    @property
    def interval(self) -> Interval | None:
        if self.share is None or self.confidence is None:
            return None
        return wilson_interval(self.count, self.of, self.confidence)


@dataclass(frozen=True)
class DemoVideos:
    """The videos of one demo: camera -> file."""

    index: int
    cameras: dict[str, Path]


@dataclass(frozen=True)
class SeedsReport:
    """What the seeds stage says: where from, what was assumed of all; name, kept, cause and more of each recording."""

    source: str
    assumptions: list[str]
    candidates: list[dict[str, Any]]

    @property
    def kept(self) -> int:
        return sum(bool(candidate["kept"]) for candidate in self.candidates)


@dataclass
class RunSummary:
    """Everything the page needs, small."""

    stages: list[StageCount] = field(default_factory=list)
    frames: dict[str, int] = field(default_factory=dict)  # source -> frames
    seed_range: tuple[int, int] | None = None
    attempts: int | None = None
    strict: int = 0
    causes: list[tuple[str, int, int]] = field(default_factory=list)  # cause, attempts, of them passed the loose filter
    replay_causes: list[tuple[str, int]] = field(default_factory=list)
    coverage: list[ObjectCoverage] = field(default_factory=list)  # objects that are moved first
    usage: dict[str, list[SourceUse]] = field(default_factory=dict)  # subtask -> rows
    statistics: dict[str, list[TrajectoryStatistics]] = field(default_factory=lambda: {name: [] for name in SOURCES})
    seeds_report: SeedsReport | None = None
    videos: list[DemoVideos] = field(default_factory=list)

    def stage(self, name: str) -> StageCount:
        return next(stage for stage in self.stages if stage.name == name)


def read_json(path: Path) -> Any:
    """A JSON file of the run, None when absent.

    Raises:
        DataError: not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the report cannot read it ({error}); delete it and run its stage again") from None


def base_in_world(config: Config) -> np.ndarray:
    """T_world_base (4, 4) of robot.yaml."""
    turn = rotation_about_axis(np.array([0.0, 0.0, 1.0]), config.robot.base_yaw_rad)
    return make_pose(turn, np.array(config.robot.base_position_m))


def collect(config: Config, run: RunFolder, fk: ForwardKinematics, advance=lambda: None) -> RunSummary:
    """Read the run folder. `advance` is called once a file read.

    Raises:
        DataError: a file of the run is damaged.
    """
    summary = RunSummary()
    _read_seed_files(config, run, fk, summary)
    loose = _read_attempts(config, run, fk, summary, advance)
    verified, rejected = _read_verified(run, fk, summary, advance)
    summary.videos = list_videos(config, run)
    _count_stages(config, run, summary, loose, verified, rejected)
    return summary


def read_seeds_report(run: RunFolder) -> SeedsReport | None:
    """seeds.json, None when absent.

    Raises:
        DataError: not what the seeds stage writes.
    """
    report = read_json(run.seeds_report)
    if report is None:
        return None
    try:
        candidates = [{"name": entry["name"], "kept": entry["kept"], **entry} for entry in report["candidates"]]
        return SeedsReport(str(report["source"]), [str(text) for text in report["assumptions"]], candidates)
    except (KeyError, TypeError):
        raise DataError(
            f"{run.seeds_report}: the report needs source, assumptions and candidates with name and kept in it; "
            "delete it and run the seeds stage again"
        ) from None


def _read_seed_files(config: Config, run: RunFolder, fk: ForwardKinematics, summary: RunSummary) -> None:
    summary.seeds_report = read_seeds_report(run)
    if run.seeds.is_file():
        for seed in read_seeds(run.seeds, config.of_seeds):
            summary.statistics["seeds"].append(trajectory_statistics(seed.q, seed.q_target, seed.fps, fk))
            summary.frames["seeds"] = summary.frames.get("seeds", 0) + seed.num_frames


def _read_attempts(config: Config, run: RunFolder, fk: ForwardKinematics, summary: RunSummary, advance) -> int:
    """Generated and failed attempts into `summary`; returns how many pass the loose filter."""
    if not (run.generated.is_dir() or run.failed.is_dir()):
        return 0
    task, T_world_base = config.task.active, base_in_world(config)
    causes, loose_causes, uses = [], [], defaultdict(list)
    starts = {name: Starts() for name in task.objects}
    seeds, loose = [], 0
    for folder in (run.generated, run.failed):
        for path in list_demos(folder):
            demo = load_demo(path)
            advance()
            summary.strict += demo.strict
            loose += demo.geometric
            seeds.append(demo.seed)
            if not demo.strict:
                causes.append(demo.cause or "unknown")
                if demo.geometric:
                    loose_causes.append(causes[-1])
            for subtask, source in zip(subtask_names(demo, config), demo.meta.get("sources", []), strict=False):
                uses[subtask].append((str(source), demo.strict))
            _add_starts(config, demo, T_world_base, starts)
            if folder == run.generated:
                summary.statistics["generated"].append(trajectory_statistics(demo.q, demo.q_target, demo.fps, fk))
                summary.frames["generated"] = summary.frames.get("generated", 0) + demo.num_frames
    summary.attempts = len(seeds)
    summary.seed_range = (min(seeds), max(seeds)) if seeds else None
    by_loose = dict(cause_table(loose_causes))
    summary.causes = [(cause, count, by_loose.get(cause, 0)) for cause, count in cause_table(causes)]
    summary.usage = {subtask: source_usage(pairs) for subtask, pairs in uses.items()}
    covered = [
        object_coverage(name, began, task, config.dataset.report) for name, began in starts.items() if began.offsets
    ]
    summary.coverage = sorted(covered, key=lambda coverage: not coverage.moved)
    return loose


def subtask_names(demo: Demo, config: Config) -> list[str]:
    """Names of the subtasks of a demo in order: those it finished, then those of the task that it did not come to."""
    done = [str(mark[0]) for mark in demo.meta.get("subtasks", [])]
    return done + [subtask.name for subtask in config.task.active.subtasks if subtask.name not in done]


def _add_starts(config: Config, demo: Demo, T_world_base: np.ndarray, starts: dict[str, Starts]) -> None:
    """One attempt into the starts of its objects. Of one that is moved it tells whether that object got where it
    belongs, and nothing when it stopped in a subtask of others; what stands may always have been in the way."""
    task = config.task.active
    stopped = failed_subtask(demo, task)
    for name, began in starts.items():
        if name not in demo.objects or not demo.num_frames:
            continue
        success = demo.strict
        if not success and is_moved(name, task):
            if stopped is not None and name not in (stopped.object, stopped.held):
                began.elsewhere += 1
                continue
            if stopped is None and name in task.success.objects:
                success = judge_object(config, demo.objects, demo.q, name)[0].strict
        began.offsets.append(start_offset(demo.objects[name][0], task.objects[name], T_world_base))
        began.success.append(success)
        began.causes.append("" if success else demo.cause or "unknown")


def _read_verified(run: RunFolder, fk: ForwardKinematics, summary: RunSummary, advance) -> tuple[int | None, int]:
    """Verified and rejected demos into `summary`; returns their counts, None and 0 when verification has not run."""
    if not (run.verified.is_dir() or run.rejected.is_dir()):
        return None, 0
    verified = list_demos(run.verified)
    for path in verified:
        demo = load_demo(path)
        advance()
        summary.statistics["verified"].append(trajectory_statistics(demo.q, demo.q_target, demo.fps, fk))
        summary.frames["verified"] = summary.frames.get("verified", 0) + demo.num_frames
    causes = []
    for path in list_demos(run.rejected):
        causes.append(load_demo(path).cause or "unknown")
        advance()
    summary.replay_causes = cause_table(causes)
    return len(verified), len(causes)


def list_videos(config: Config, run: RunFolder) -> list[DemoVideos]:
    """Demos with a video of every camera, in index order."""
    found = []
    for folder in sorted(run.videos.glob("demo_[0-9]*")):
        index = int(folder.name.removeprefix("demo_"))
        cameras = {camera: run.video(index, camera) for camera in config.cameras.names}
        if all(path.is_file() for path in cameras.values()):
            found.append(DemoVideos(index, cameras))
    return found


def _count_stages(
    config: Config, run: RunFolder, summary: RunSummary, loose: int, verified: int | None, rejected: int
) -> None:
    report = summary.seeds_report
    candidates = len(report.candidates) if report is not None else None
    seeds = len(summary.statistics["seeds"]) if run.seeds.is_file() else None
    if seeds is None and report is not None:
        seeds = report.kept
    ran = summary.attempts is not None
    kept = len(kept_indices(run)) if run.filter_report.is_file() else None
    smoothed = len(list_demos(run.smoothed)) if run.smoothed.is_dir() else None
    replayed = verified + rejected if verified is not None else None
    rendered = len(summary.videos) if run.videos.is_dir() else None
    wanted = min(verified, config.skillgen.target_demos) if verified is not None else None
    info_path = run.dataset / "meta" / "info.json"
    info = read_json(info_path)
    episodes = None
    if info is not None:
        try:
            episodes, summary.frames["dataset"] = int(info["total_episodes"]), int(info["total_frames"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{info_path}: total_episodes and total_frames must be whole numbers ({error!r}); delete the dataset "
                "folder and run the dataset stage again"
            ) from None
    rows = [
        ("seeds", "demonstrations that became seeds", seeds, candidates, "recordings"),
        ("attempts", "trajectories generated with physics", summary.attempts, None, ""),
        ("geometric", "object over the container (loose filter)", loose if ran else None, summary.attempts, "attempts"),
        ("strict", "inserted, released and still", summary.strict if ran else None, summary.attempts, "attempts"),
        ("kept", "taken by the filter", kept, summary.attempts, "attempts"),
        ("smoothed", "arm targets smoothed", smoothed, kept, "kept"),
        ("verified", "succeeded again in an open-loop replay", verified, replayed, "replayed"),
        ("rendered", "videos of every camera", rendered, wanted, "wanted"),
        ("in dataset", "episodes in the LeRobot dataset", episodes, rendered, "rendered"),
    ]
    confidence = config.dataset.report.confidence
    summary.stages = [StageCount(*row, confidence if row[0] in CHANCES else None) for row in rows]
