"""What can go wrong with work on other processes and machines."""

from __future__ import annotations

import so101.errors
from proto.messages.work import JobError
from so101.errors import SimulationError, So101Error


class WorkError(So101Error):
    """The broker is away, refuses us, or has no workers."""


class RemoteTraceback(Exception):
    """Where a job failed in its worker; the cause of the error raised here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def raise_job_error(error: JobError) -> None:
    """Raise here what a job raised there: the same class where it is one of so101's, with the worker's traceback."""
    kind = getattr(so101.errors, error.error, None)
    if not (isinstance(kind, type) and issubclass(kind, So101Error)):
        raise SimulationError(f"a job failed: {error.error}: {error.text}") from RemoteTraceback(error.trace)
    raise kind(error.text) from RemoteTraceback(error.trace)
