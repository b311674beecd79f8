"""What a worker elsewhere made, put into the run folder."""

from __future__ import annotations

import json
from typing import Any

from proto.messages.work import Result, unpack
from services.work.errors import raise_job_error
from so101.errors import SimulationError
from so101.files import write_atomic
from so101.pipeline.jobs import JobContext, job_kind


def keep_result(context: JobContext, result: Result) -> tuple[int, dict[str, Any]]:
    """Write the files of `result`, each atomically; returns what an executor yields.

    Raises:
        So101Error: the job failed.
        SimulationError: it sent a file that is none of this job's, or no JSON object.
    """
    if result.error is not None:
        raise_job_error(result.error)
    kind = job_kind(context.kind)
    for file in result.files:
        if not kind.may_make(result.index, file.name):
            raise SimulationError(
                f"a worker sent {file.name!r} for {context.kind} {result.index}, which makes {', '.join(kind.makes)}; "
                "nothing was written. Is it one of ours?"
            )
    for file in result.files:
        content = unpack(file.content)
        write_atomic(context.folder / file.name, lambda stream, content=content: stream.write(content))
    try:
        summary = json.loads(result.summary)
    except ValueError:
        summary = None
    if not isinstance(summary, dict):
        raise SimulationError(f"a worker sent no JSON object for {context.kind} {result.index}. Is it one of ours?")
    return result.index, summary
