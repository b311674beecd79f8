"""Jobs from bytes to bytes: what a worker does that shares no disk with the run."""

from __future__ import annotations

import json
import shutil
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
    """Runs jobs in a scratch folder that looks like a run folder; keeps the runners of the last contexts.

    Args:
        scratch: an empty folder of its own.
        kept: contexts whose model and seeds stay loaded.
        max_bytes: of one message; a result above is an error.
    """

    def __init__(self, scratch: Path, kept: int, max_bytes: int) -> None:
        self._scratch, self._kept, self._max_bytes = scratch, kept, max_bytes
        self._runners: OrderedDict[tuple[str, tuple[PartRef, ...]], tuple[Runner, Path]] = OrderedDict()
        self._started = 0

    def run(
        self, kind: str, parts: Sequence[PartRef], index: int, files: Sequence[File], fetch: Callable[[PartRef], bytes]
    ) -> Result:
        """Do one job. What it raises is its result; what `fetch` raises is raised."""
        contents = {}
        if (kind, tuple(parts)) not in self._runners:
            contents = {ref.name: fetch(ref) for ref in parts}
        folder = self._scratch / "job"
        try:
            runner = self._runner(kind, tuple(parts), contents)
            inputs = _write_files(folder, {file.name: unpack(file.content) for file in files})
            summary = json.dumps(runner.run(Job(index, tuple(inputs)), folder))
            made = _read_files(folder, set(inputs))
            size = sum(file.content.nbytes for file in made)
            if size > self._max_bytes - MARGIN_BYTES:
                raise SimulationError(
                    f"{kind} {index} made {size} bytes, a message takes {self._max_bytes}; raise "
                    "deploy.messages.max_bytes for broker, workers and runs"
                )
            return Result(index, summary, made)
        except Exception as error:
            text = str(error).replace(f"{folder}/", "")
            trace = traceback.format_exc()[-_TEXT_LIMIT:]
            return Result(index, "{}", (), JobError(type(error).__name__[:256], text[:_TEXT_LIMIT], trace))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Free all runners."""
        while self._runners:
            self._drop_oldest()

    def _runner(self, kind: str, parts: tuple[PartRef, ...], contents: dict[str, bytes]) -> Runner:
        key = (kind, parts)
        if key not in self._runners:
            while len(self._runners) >= self._kept:
                self._drop_oldest()
            self._started += 1
            folder = self._scratch / f"context_{self._started}"
            settings = contents.pop(SETTINGS).decode()
            _write_files(folder, contents)
            self._runners[key] = job_kind(kind).start(settings, folder), folder
        self._runners.move_to_end(key)
        return self._runners[key][0]

    def _drop_oldest(self) -> None:
        _, (runner, folder) = self._runners.popitem(last=False)
        runner.close()
        shutil.rmtree(folder, ignore_errors=True)


def _write_files(folder: Path, contents: dict[str, bytes | memoryview]) -> list[str]:
    """Write files below `folder`; their names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        if not is_below(name):
            raise SimulationError(f"file name {name!r} leads out of the folder of the job")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return list(contents)


def _read_files(folder: Path, without: set[str]) -> tuple[File, ...]:
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return tuple(File(name, pack((folder / name).read_bytes())) for name in names if name not in without)
