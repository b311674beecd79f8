"""Where a run keeps its files. Progress is read from here, never from a second bookkeeping."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run. Nothing is created by looking at them."""

    root: Path

    @property
    def record(self) -> Path:
        """JSON: the settings this run was made with."""
        return self.root / "run.json"

    @property
    def lock(self) -> Path:
        """Locked while a command works here; holds its process id."""
        return self.root / ".lock"

    @property
    def seeds(self) -> Path:
        return self.root / "seeds.hdf5"

    @property
    def seeds_report(self) -> Path:
        """JSON: one entry a candidate recording with kept/cause/assumptions."""
        return self.root / "seeds.json"

    @property
    def generated(self) -> Path:
        """Attempts whose geometric or strict test held."""
        return self.root / "generated"

    @property
    def failed(self) -> Path:
        """Attempts that failed, each with its cause."""
        return self.root / "failed"

    @property
    def filter_report(self) -> Path:
        """JSON: {"geometric": [indices], "strict": [indices], "kept": [indices]}."""
        return self.root / "filter.json"

    @property
    def smoothed(self) -> Path:
        return self.root / "smoothed"

    @property
    def verified(self) -> Path:
        """Smoothed demos that succeeded again in an open-loop replay; states are those of the replay."""
        return self.root / "verified"

    @property
    def rejected(self) -> Path:
        """Smoothed demos whose replay failed."""
        return self.root / "rejected"

    @property
    def videos(self) -> Path:
        return self.root / "videos"

    def video(self, index: int, camera: str) -> Path:
        """Video of one demo and camera."""
        return self.videos / f"demo_{index:06d}" / f"{camera}.mp4"

    def looks(self, index: int) -> Path:
        """JSON: the looks drawn for the videos of one demo; absent when nothing is drawn."""
        return self.videos / f"demo_{index:06d}" / "looks.json"

    @property
    def dataset(self) -> Path:
        return self.root / "dataset"

    @property
    def report(self) -> Path:
        return self.root / "report"
