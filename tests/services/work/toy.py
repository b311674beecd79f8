"""A kind of job without physics: hashes what it is given. Index 13 raises, 99 never ends before `release`."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

from so101.errors import DataError
from so101.pipeline.jobs import Job, JobContext, JobKind

KIND = JobKind("tests.services.work.toy:ToyJobs", makes=("out/{demo}.txt",))
release = threading.Event()
began = threading.Event()
closed: list[Path] = []


class ToyJobs:
    def __init__(self, settings: str, folder: Path) -> None:
        self._salt, self._folder = settings.encode() + (folder / "shared.bin").read_bytes(), folder

    def run(self, job: Job, folder: Path) -> dict:
        if job.index == 13:
            raise DataError(f"{folder / job.inputs[0]}: thirteen is bad")
        if job.index == 99:
            began.set()
            assert release.wait(240)
        text = answer(self._salt, job.index, (folder / job.inputs[0]).read_bytes())
        path = folder / "out" / f"demo_{job.index:06d}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return {"text": text}

    def close(self) -> None:
        closed.append(self._folder)


def answer(salt: bytes, index: int, content: bytes) -> str:
    return hashlib.sha256(salt + b"%d" % index + content).hexdigest()


def toy_context(folder: Path, indices, settings: str = "{}") -> tuple[JobContext, list[Job]]:
    """A run folder with inputs of these jobs; the context and the jobs."""
    (folder / "in").mkdir(parents=True, exist_ok=True)
    (folder / "shared.bin").write_bytes(bytes(range(256)) * 40)
    jobs = []
    for index in indices:
        (folder / "in" / f"{index}").write_bytes(b"input %d" % index)
        jobs.append(Job(index, (f"in/{index}",)))
    return JobContext("toy", settings, folder, ("shared.bin",)), jobs


def check_files(context: JobContext, indices) -> None:
    """Exactly the files of these jobs are there, whole."""
    salt = context.settings.encode() + (context.folder / "shared.bin").read_bytes()
    expected = {
        f"demo_{i:06d}.txt": answer(salt, i, (context.folder / "in" / f"{i}").read_bytes()) for i in set(indices)
    }
    assert {path.name: path.read_text() for path in (context.folder / "out").iterdir()} == expected
