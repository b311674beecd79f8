"""Jobs: the pure pieces that stages are cut into, so that any worker anywhere can do them with the same bytes.

A job reads and writes files of the run folder and nothing else. A worker elsewhere gets a folder that looks like it,
with the files the job reads; what the job leaves there goes into the real one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from so101.errors import SimulationError, did_you_mean


@dataclass(frozen=True)
class Job:
    """One piece of work.

    Attributes:
        index: of the attempt or demo.
        inputs: files it reads, relative to the run folder.
    """

    index: int
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobContext:
    """What all jobs of a stage share.

    Attributes:
        kind: key of `JOB_KINDS`.
        settings: the `Config` as JSON.
        folder: the run folder: jobs read and write there.
        files: what a runner reads when it is made, and never later; relative to `folder`.
    """

    kind: str
    settings: str
    folder: Path
    files: tuple[str, ...] = ()


class Runner(Protocol):
    """Runs jobs of one context, one after the other. What came before never shows in the bytes of a job's files."""

    def run(self, job: Job, folder: Path) -> dict[str, Any]:
        """Do `job` on the files below `folder`; returns what the stage wants to know, as JSON values."""

    def close(self) -> None:
        """Free what is not memory."""


@dataclass(frozen=True)
class JobKind:
    """One sort of jobs.

    Attributes:
        runner: "module:class", called with the settings (JSON) and a folder that holds the context's files.
        makes: patterns of the files a job may write, relative to the run folder; ``{demo}`` stands for its number.
    """

    runner: str
    makes: tuple[str, ...]

    def load(self) -> Callable[[str, Path], Runner]:
        """Import what runs such jobs; seconds the first time."""
        module, _, name = self.runner.partition(":")
        return getattr(import_module(module), name)

    def may_make(self, job_index: int, name: str) -> bool:
        """Whether a job may write the file `name`: what a worker sends lands nowhere else."""
        path = PurePosixPath(name)
        if not is_below(name):
            return False
        patterns = [PurePosixPath(pattern.format(demo=f"demo_{job_index:06d}")) for pattern in self.makes]
        return any(
            len(path.parts) == len(pattern.parts) and all(map(fnmatchcase, path.parts, pattern.parts))
            for pattern in patterns
        )


JOB_KINDS: Mapping[str, JobKind] = {
    "attempt": JobKind("so101.skillgen.generate:AttemptJobs", makes=("generated/{demo}.npz", "failed/{demo}.npz")),
    "verify": JobKind("so101.trajectory.verification:VerifyJobs", makes=("verified/{demo}.npz", "rejected/{demo}.npz")),
    "render": JobKind("so101.rendering.stage:RenderJobs", makes=("videos/{demo}/*.mp4", "videos/{demo}/looks.json")),
}


def job_kind(name: str) -> JobKind:
    """The kind called `name`.

    Raises:
        SimulationError: there is none.
    """
    try:
        return JOB_KINDS[name]
    except KeyError:
        known = f"{', '.join(JOB_KINDS)}{did_you_mean(name, JOB_KINDS)}"
        raise SimulationError(f"no jobs of kind {name!r}; this program knows {known}") from None


def is_below(name: str) -> bool:
    """Whether a file name stays below the folder it is joined to."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name
