"""Report stage: ``report/index.html`` (the page) and ``report/report.json`` (its numbers)."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from so101.config import Config
from so101.config.report import ReportConfig
from so101.datasets.demo import demo_file_name, list_demos, load_demo
from so101.evaluation.collect import DemoVideos, RunSummary, collect, subtask_names
from so101.evaluation.coverage import coverage_numbers
from so101.evaluation.media import frames_at, jpeg_data_uri
from so101.evaluation.page import SampleFrames, VideoCard, render_page
from so101.evaluation.statistics import TrajectoryStatistics, summarise
from so101.evaluation.workspace import Workspace, area_numbers, workspace
from so101.files import write_json, write_text
from so101.kinematics.arm import ArmKinematics
from so101.pipeline.progress import Reporter, StageResult
from so101.pipeline.run_folder import RunFolder

PAGE = "index.html"
NUMBERS = "report.json"
_PACKAGES = ("so101-twin", "mujoco", "numpy", "scipy", "torch", "av")


def write_report(config: Config, run: RunFolder, reporter: Reporter, workers: int) -> StageResult:
    """Write the page of a run from whatever is in its folder; stages that have not run are shown as such.

    `workers` is not used: reading dominates. The page needs no network; videos are linked as ``../videos/...``.

    Raises:
        DataError: a file of the run is damaged; it says which and what to run again.
    """
    folders = (run.generated, run.failed, run.verified, run.rejected)
    reporter.start("report", sum(len(list_demos(folder)) for folder in folders), unit="demos read")
    summary = collect(config, run, ArmKinematics(config).fk, reporter.advance)
    settings = config.dataset.report
    shown = summary.videos[: settings.video_demos]
    frames = _sample_frames(config, shown[0] if shown else next(iter(summary.videos), None))
    cards = [_video_card(config, run, videos) for videos in shown]
    maps = workspace(config) if settings.workspace.in_report else None
    page = render_page(config, run.root.resolve().name, summary, frames, cards, package_versions(), maps)
    write_json(run.report / NUMBERS, report_numbers(summary, settings, maps))
    write_text(run.report / PAGE, page)
    reporter.message(f"The page is {run.report / PAGE}")
    counts = {stage.name: stage.count for stage in summary.stages if stage.count is not None}
    return StageResult("report", 1, counts)


def package_versions() -> dict[str, str]:
    """Versions that can change the results, for the foot of the page."""
    versions = {"Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def report_numbers(summary: RunSummary, settings: ReportConfig, maps: Workspace | None) -> dict[str, Any]:
    """The numbers of the page as JSON values."""
    return {
        "stages": {
            stage.name: {"count": stage.count, "of": stage.of, "interval": stage.interval} for stage in summary.stages
        },
        "attempt_seeds": list(summary.seed_range) if summary.seed_range else None,
        "causes": {cause: count for cause, count, _ in summary.causes},
        "replay_causes": dict(summary.replay_causes),
        "frames": summary.frames,
        "sources": {name: [use._asdict() for use in uses] for name, uses in summary.usage.items()},
        "coverage": coverage_numbers(
            summary.coverage, summary.usage, settings, maps.table.yaw_share_in if maps else None
        ),
        "workspace": {area.name: area_numbers(maps, area) for area in maps.areas} if maps else None,
        "trajectories": {
            source: {
                name: summarise(getattr(row, name) for row in rows)._asdict() for name in TrajectoryStatistics._fields
            }
            for source, rows in summary.statistics.items()
            if rows
        },
    }


def _sample_frames(config: Config, videos: DemoVideos | None) -> SampleFrames | None:
    if videos is None:
        return None
    settings = config.dataset.report
    fractions = np.linspace(0, 1, settings.frame_moments) if settings.frame_moments > 1 else [0.5]
    cameras = {}
    for camera, path in videos.cameras.items():
        images, times = frames_at(path, list(fractions))
        uris = [jpeg_data_uri(image, settings.frame_width_px, settings.jpeg_quality) for image in images]
        cameras[camera] = list(zip(uris, times, strict=True))
    return SampleFrames(videos.index, cameras)


def _video_card(config: Config, run: RunFolder, videos: DemoVideos) -> VideoCard:
    settings = config.dataset.report
    cameras = {}
    for camera, path in videos.cameras.items():
        (image,), _ = frames_at(path, [0.5])
        poster = jpeg_data_uri(image, settings.frame_width_px, settings.jpeg_quality)
        cameras[camera] = (f"../videos/{path.parent.name}/{path.name}", poster)
    return VideoCard(videos.index, _caption(config, run, videos.index), cameras)


def _caption(config: Config, run: RunFolder, index: int) -> str:
    path = run.verified / demo_file_name(index)
    if not path.is_file():
        return ""
    demo = load_demo(path)
    parts = [f"{demo.num_frames / demo.fps:.1f} s", f"attempt seed {demo.seed}"]
    parts += [
        f"{name} from {source}"
        for name, source in zip(subtask_names(demo, config), demo.meta.get("sources", []), strict=False)
    ]
    return " · ".join(parts)
