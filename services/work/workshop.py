"""Jobs from bytes to bytes: what a worker does that shares no disk with the run."""

from __future__ import annotations

import json
import tempfile
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from proto.messages.work import File, JobError, PartRef, Result, pack, unpack
from services.work.parts import digest_of
from so101.errors import SimulationError
from so101.pipeline.jobs import Job, JobContext, Runner, is_below, job_kind

SETTINGS = ""  # the part that holds the settings
MARGIN_BYTES = 1 << 20  # of a message, for all that is not file content
_TEXT_LIMIT = 10_000  # characters


@dataclass(frozen=True)
class Shared:
    """What a context shares, as it travels: references, and the bytes by digest."""

    refs: tuple[PartRef, ...]
    contents: dict[str, bytes]


def shared_of(context: JobContext) -> Shared:
    """Settings and files of `context`, read from its folder."""
    named = {SETTINGS: context.settings.encode()}
    named |= {name: (context.folder / name).read_bytes() for name in context.files}
    refs = tuple(PartRef(name, digest_of(content), len(content)) for name, content in named.items())
    return Shared(refs, {ref.digest: content for ref, content in zip(refs, named.values(), strict=True)})


def read_inputs(context: JobContext, job: Job, max_bytes: int) -> tuple[File, ...]:
    """The files a job reads, as they travel.

    Raises:
        SimulationError: too large for one message.
    """
    files = tuple(File(name, pack((context.folder / name).read_bytes())) for name in job.inputs)
    size = sum(file.content.nbytes for file in files)
    if size > max_bytes - MARGIN_BYTES:
        raise SimulationError(
            f"the files of {context.kind} {job.index} have {size} bytes, a message takes {max_bytes}; raise "
            "deploy.messages.max_bytes for broker, workers and runs"
        )
    return files


class Workshop:
    """Runs each job in a new folder that looks like a run folder; keeps the runners of the last contexts.

    Args:
        scratch: where those folders are made; the system's place for temporary files when None.
        kept: contexts whose model and seeds stay loaded.
        max_bytes: of one message; a result above is an error.
    """

    def __init__(self, scratch: Path | None, kept: int, max_bytes: int) -> None:
        self._scratch, self._kept, self._max_bytes = scratch, kept, max_bytes
        self._runners: OrderedDict[tuple[str, tuple[PartRef, ...]], Runner] = OrderedDict()

    def run(
        self, kind: str, parts: Sequence[PartRef], index: int, files: Sequence[File], fetch: Callable[[PartRef], bytes]
    ) -> Result:
        """Do one job. What it raises is its result; what `fetch` raises is raised."""
        key, contents = (kind, tuple(parts)), {}
        if key not in self._runners:
            contents = {ref.name: fetch(ref) for ref in parts}
        with tempfile.TemporaryDirectory(prefix="so101-job-", dir=self._scratch) as name:
            folder = Path(name)
            try:
                runner = self._runner(key, contents, folder / "shared")
                return self._run(runner, kind, Job(index, tuple(file.name for file in files)), files, folder / "run")
            except Exception as error:
                text = str(error).replace(f"{folder / 'run'}/", "").replace(f"{folder / 'shared'}/", "")
                trace = traceback.format_exc()[-_TEXT_LIMIT:]
                return Result(index, "{}", (), JobError(type(error).__name__[:256], text[:_TEXT_LIMIT], trace))

    def close(self) -> None:
        """Free all runners."""
        while self._runners:
            self._runners.popitem(last=False)[1].close()

    def _run(self, runner: Runner, kind: str, job: Job, files: Sequence[File], folder: Path) -> Result:
        _write_files(folder, {file.name: unpack(file.content) for file in files})
        summary = json.dumps(runner.run(job, folder))
        made = _read_files(folder, set(job.inputs))
        size = sum(file.content.nbytes for file in made)
        if size > self._max_bytes - MARGIN_BYTES:
            raise SimulationError(
                f"{kind} {job.index} made {size} bytes, a message takes {self._max_bytes}; raise "
                "deploy.messages.max_bytes for broker, workers and runs"
            )
        return Result(job.index, summary, made)

    def _runner(self, key: tuple[str, tuple[PartRef, ...]], contents: dict[str, bytes], folder: Path) -> Runner:
        """The runner of a context, started in `folder` when it is new; it reads the files there now or never."""
        if key not in self._runners:
            while len(self._runners) >= self._kept:
                self._runners.popitem(last=False)[1].close()
            settings = contents.pop(SETTINGS).decode()
            _write_files(folder, contents)
            self._runners[key] = job_kind(key[0]).load()(settings, folder)
        self._runners.move_to_end(key)
        return self._runners[key]


def _write_files(folder: Path, contents: dict[str, bytes | memoryview]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        if not is_below(name):
            raise SimulationError(f"file name {name!r} leads out of the folder of the job")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _read_files(folder: Path, without: set[str]) -> tuple[File, ...]:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return tuple(File(name, pack((folder / name).read_bytes())) for name in names if name not in without)
