"""Checks a LeRobot v2.1 dataset folder against what LeRobot and GR00T require of it.

`validate_dataset` is about the format alone and knows no configuration; `check_dataset` is every check of
`so101.datasets.checks.catalogue`, with what the numbers mean and what GR00T will train on. Neither changes anything.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from so101.config import Config
from so101.datasets.checks.base import MARKER, SCALAR_DTYPES, TIMESTAMP_TOLERANCE_S, Dataset, Fault, Findings
from so101.datasets.checks.catalogue import CHECKS
from so101.datasets.checks.files import check_strays, check_totals, read_info, read_lines
from so101.datasets.checks.modality import check_modality, check_trained_on, read_modality
from so101.datasets.checks.motion import check_motion
from so101.datasets.checks.rows import read_rows
from so101.datasets.checks.statistics import check_episode_stats, check_groot_stats
from so101.datasets.checks.video import check_codecs, check_frozen, probe_videos
from so101.datasets.lerobot_source import SOURCES
from so101.pipeline.progress import Reporter, SilentReporter

__all__ = [
    "CHECKS",
    "MARKER",
    "SCALAR_DTYPES",
    "TIMESTAMP_TOLERANCE_S",
    "CheckReport",
    "Fault",
    "check_dataset",
    "validate_dataset",
]


@dataclass(frozen=True)
class CheckReport:
    """All that was found. `ran`: names of the checks that could look; the others lacked what they need."""

    path: Path
    faults: tuple[Fault, ...]
    ran: frozenset[str]

    @property
    def errors(self) -> list[Fault]:
        """What makes the dataset unusable."""
        return [fault for fault in self.faults if not fault.warning]

    @property
    def warnings(self) -> list[Fault]:
        """What is suspicious."""
        return [fault for fault in self.faults if fault.warning]

    def state(self, check: str) -> str:
        """ "ok", "warning", "fault" or "skipped" of a check by name."""
        found = [fault for fault in self.faults if fault.check == check]
        if not found:
            return "ok" if check in self.ran else "skipped"
        return "warning" if all(fault.warning for fault in found) else "fault"


def validate_dataset(path: Path | str, *, images: bool = True) -> list[str]:
    """All faults of format of the dataset at `path`, one sentence each; empty when LeRobot and GR00T can read it.

    Args:
        path: the folder with meta/, data/ and videos/.
        images: also decode the videos and recompute their statistics (slow: every frame is decoded).
    """
    findings = Findings()
    _format(Dataset(Path(path)), findings, images=images, horizon=None)
    return [fault.text for fault in findings.faults if not fault.warning]


def check_dataset(
    path: Path | str, config: Config, *, images: bool = True, reporter: Reporter | None = None
) -> CheckReport:
    """Every check of the dataset at `path`, with the settings it shall be trained with.

    Args:
        path: the folder with meta/, data/ and videos/.
        config: dataset (units, cameras, modality), training (horizon, thresholds), the arm, and the control rate.
        images: also recompute LeRobot's image statistics, which decodes every frame. Without it a few frames of each
            video are decoded; GR00T does not read these statistics.
        reporter: told of every video that was decoded.
    """
    data, findings = Dataset(Path(path)), Findings(reporter=reporter or SilentReporter())
    settings = config.training.dataset_check
    if _format(data, findings, images=images, horizon=config.training.action_horizon):
        if data.fps != config.deploy.control.control_hz:
            text = f"fps is {data.fps}, the control loop runs at {config.deploy.control.control_hz:g}"
            findings.error("fps", f"meta/info.json: {text} (deploy.control.control_hz)")
        check_codecs(data, findings, settings)
        check_frozen(data, findings, settings)
        check_trained_on(data, findings, config)
        check_motion(data, findings, config, _meta_json(data.root, MARKER), _meta_json(data.root, SOURCES))
    order = {name: number for number, name in enumerate(CHECKS)}
    faults = sorted(findings.faults, key=lambda fault: order[fault.check])
    return CheckReport(data.root, tuple(faults), frozenset(findings.ran))


def _format(data: Dataset, findings: Findings, *, images: bool, horizon: int | None) -> bool:
    """Fill `data`; False when there is nothing to look at further."""
    if not read_info(data, findings):
        return False
    data.episodes = read_lines(data, findings, "episodes.jsonl", "episode_index", {"tasks": list, "length": int})
    data.tasks = read_lines(data, findings, "tasks.jsonl", "task_index", {"task": str})
    check_totals(data, findings)
    findings.reporter.start("check", len(data.episodes) * len(data.video_keys) * (1 + images), unit="videos")
    read_rows(data, findings)
    probe_videos(data, findings)
    check_strays(data, findings)
    check_episode_stats(data, findings, images=images)
    read_modality(data, findings)
    check_groot_stats(data, findings, horizon=horizon)
    if data.modality is not None:
        check_modality(data, findings)
    return True


def _meta_json(root: Path, name: str) -> dict | None:
    """A file that ./twin dataset or ./twin merge wrote beside those of LeRobot; None for foreign datasets."""
    try:
        value = json.loads((root / "meta" / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
