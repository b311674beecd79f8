"""What checks share: faults, and a dataset folder as far as it can be read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from so101.datasets.checks.catalogue import CHECKS
from so101.datasets.videos import VideoFacts
from so101.pipeline.progress import Reporter, SilentReporter

MARKER = "so101.json"  # provenance file in meta/, written by lerobot_v21
SCALAR_DTYPES = {
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}
TIMESTAMP_TOLERANCE_S = 1e-4  # LeRobot's default: a frame further from its timestamp is refused
VECTORS = {"state": "observation.state", "action": "action"}  # section of modality.json -> its default column


@dataclass(frozen=True)
class Fault:
    """One finding. `check` is a name in CHECKS; a `warning` is suspicious, anything else makes the data unusable."""

    check: str
    text: str
    fix: str
    warning: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass
class Findings:
    """What the checks found so far, and which of them could look at all. `reporter` is told of every video decoded."""

    faults: list[Fault] = field(default_factory=list)
    ran: set[str] = field(default_factory=set)
    reporter: Reporter = field(default_factory=SilentReporter)

    def error(self, check: str, text: str, fix: str | None = None) -> None:
        """Unusable. `fix`: when it is not the usual one of the check."""
        self._add(Fault(check, text, fix or CHECKS[check].fix))

    def warn(self, check: str, text: str, fix: str | None = None) -> None:
        """Suspicious."""
        self._add(Fault(check, text, fix or CHECKS[check].fix, warning=True))

    def looked(self, *checks: str) -> None:
        """These checks had what they need."""
        self.ran.update(checks)

    def _add(self, fault: Fault) -> None:
        self.ran.add(fault.check)
        if fault not in self.faults:
            self.faults.append(fault)


@dataclass
class Dataset:
    """A folder as far as it was read. `columns` and `videos` have an entry an episode, None where unreadable."""

    root: Path
    info: dict[str, Any] = field(default_factory=dict)
    episodes: list[dict] = field(default_factory=list)
    tasks: list[dict] = field(default_factory=list)
    columns: list[dict[str, np.ndarray] | None] = field(default_factory=list)
    videos: dict[str, list[VideoFacts | None]] = field(default_factory=dict)
    modality: dict[str, Any] | None = None

    @property
    def features(self) -> dict[str, dict]:
        return self.info.get("features", {})

    @property
    def fps(self) -> int:
        return self.info["fps"]

    @property
    def video_keys(self) -> list[str]:
        return [key for key, feature in self.features.items() if feature["dtype"] == "video"]

    @property
    def complete(self) -> bool:
        """All episodes were read."""
        return bool(self.columns) and all(columns is not None for columns in self.columns)

    def data_file(self, index: int) -> Path:
        return self._file("data_path", index)

    def video_file(self, key: str, index: int) -> Path:
        return self._file("video_path", index, video_key=key)

    def _file(self, template: str, index: int, **parts: str) -> Path:
        chunk = index // self.info["chunks_size"]
        return self.root / self.info[template].format(episode_chunk=chunk, episode_index=index, **parts)

    def name(self, path: Path) -> str:
        """`path` within the dataset, for texts."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)


def read_json(data: Dataset, findings: Findings, name: str, check: str) -> Any:
    """A file of meta/, or None after a fault of `check`."""
    path = data.root / "meta" / name
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        findings.error(check, f"meta/{name}: cannot be read ({error})")
        return None


def first(mask: np.ndarray) -> int:
    """First row of a (T, ...) mask that has a true value."""
    return int(np.argwhere(mask)[0][0])


def listed(indices: list[int], limit: int = 8) -> str:
    """Episode numbers for a text: "episode 3", "episodes 1, 2 and 40 more"."""
    shown = ", ".join(str(index) for index in indices[:limit])
    more = f" and {len(indices) - limit} more" if len(indices) > limit else ""
    return f"episode{'s' if len(indices) > 1 else ''} {shown}{more}"
