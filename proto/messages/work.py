"""Work: runs hand jobs to the broker, workers take them. The broker answers; nobody is told anything unasked."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from proto.errors import BadMessage
from proto.messages.base import Message

MAX_FILES = 60  # of one job: a frame each

Id = Annotated[str, Meta(pattern=r"^[0-9A-Za-z_-]{1,64}$")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
Kind = Annotated[str, Meta(pattern=r"^[a-z_]{1,32}$")]
Label = Annotated[str, Meta(max_length=256)]
FileName = Annotated[str, Meta(min_length=1, max_length=256)]
Index = Annotated[int, Meta(ge=0, le=2**53)]
Count = Annotated[int, Meta(ge=0)]
Bytes = Annotated[int, Meta(ge=0, le=2**40)]
Seconds = Annotated[float, Meta(ge=0)]
ErrorText = Annotated[str, Meta(max_length=20_000)]
Json = Annotated[str, Meta(max_length=1_000_000)]


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a job: its name relative to the run folder, its bytes (n,) uint8."""

    name: FileName
    content: np.ndarray


Files = Annotated[tuple[File, ...], Meta(max_length=MAX_FILES)]


def pack(content: bytes) -> np.ndarray:
    """Bytes as the array that travels, (n,) uint8; not copied."""
    return np.frombuffer(content, np.uint8)


def unpack(content: np.ndarray) -> memoryview:
    """The bytes of an array that came, not copied.

    Raises:
        BadMessage: it is no (n,) uint8.
    """
    if content.dtype != np.uint8 or content.ndim != 1:
        raise BadMessage(f"the bytes of a file are an array (n,) of uint8, got {content.shape} of {content.dtype}")
    return content.data


class PartRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that all jobs of a batch share, by the SHA-256 of its bytes. Name "" for the settings."""

    name: Annotated[str, Meta(max_length=256)]
    digest: Digest
    size: Bytes


Parts = Annotated[tuple[PartRef, ...], Meta(min_length=1, max_length=MAX_FILES)]


class JobError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job that raised: the class of the error, its text, where it was raised."""

    error: Label
    text: ErrorText
    trace: ErrorText


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of a job: JSON for the stage and its files, or an error."""

    index: Index
    summary: Json
    files: Files
    error: JobError | None = None


# --- runs


class OpenBatch(Message):
    """A run has jobs of one kind. Answered by `BatchState`; "refused" when its program is another one."""

    batch: Id
    run: Label
    kind: Kind
    parts: Parts
    build: Label


class PutPart(Message):
    """A piece of a shared file. `Ok`; pieces in order, the digest is checked with the last."""

    batch: Id
    digest: Digest
    offset: Bytes
    content: np.ndarray


class SubmitJob(Message):
    """One more job. `BatchState`; a job that is there already is no second one."""

    batch: Id
    index: Index
    files: Files


class FetchResult(Message):
    """Next result, please; those in `taken` need not be kept. `BatchState`. Also says that the run is still there."""

    batch: Id
    taken: Annotated[tuple[Index, ...], Meta(max_length=100_000)] = ()


class CloseBatch(Message):
    """No more of this batch, drop what is open. `Ok`."""

    batch: Id


class BatchState(Message):
    """How a batch stands.

    Attributes:
        missing: digests of parts that were not put yet.
        open: jobs the broker has, finished ones that were not taken included; what is not here is not known to it.
        workers: that could take such jobs now.
        result: one that waits.
    """

    missing: Annotated[tuple[Digest, ...], Meta(max_length=MAX_FILES)]
    open: Annotated[tuple[Index, ...], Meta(max_length=100_000)]
    workers: Count
    result: Result | None = None


# --- workers


class JoinWork(Message):
    """A worker is there. `Ok`; "refused" when its program is another one, so that all bytes come from the same."""

    worker: Id
    kinds: Annotated[tuple[Kind, ...], Meta(min_length=1, max_length=16)]
    host: Label
    pid: Count
    build: Label


class TakeJob(Message):
    """A job, please. `NextJob`; the same one again to a worker that has one."""

    worker: Id


class PutResult(Message):
    """A job is done. `NextJob`. Ignored when nobody waits for it (any more)."""

    worker: Id
    batch: Id
    result: Result


class WorkerBeat(Message):
    """Still there. `Ok`; "unknown_worker" to one that was silent for too long or that a new broker has not met."""

    worker: Id


class LeaveWork(Message):
    """A worker ends; its job goes to another. `Ok`."""

    worker: Id


class GetPart(Message):
    """A piece of a shared file. `Part`; "unknown_part" when no batch needs it."""

    digest: Digest
    offset: Bytes


class Part(Message):
    """Bytes from `offset` on, of `size` in all."""

    size: Bytes
    content: np.ndarray


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job for a worker."""

    batch: Id
    kind: Kind
    parts: Parts
    index: Index
    files: Files


class NextJob(Message):
    """What to do next; nothing for now when there is no order."""

    order: Order | None = None


# --- everybody


class WorkStatus(Message):
    """Who works on what? `WorkReport`."""


class WorkerReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One worker. `job`: "KIND INDEX of RUN", "" when idle; `rate_per_min` over its life."""

    worker: Id
    host: Label
    pid: Count
    kinds: tuple[Kind, ...]
    state: Annotated[str, Meta(pattern="^(idle|busy)$")]
    job: Annotated[str, Meta(max_length=512)]
    done: Count
    rate_per_min: Seconds
    joined_s: Seconds
    silent_s: Seconds


class BatchReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The jobs of one stage of one run; `lost` counts workers that vanished with one of them."""

    batch: Id
    run: Label
    kind: Kind
    queued: Count
    running: Count
    done: Count
    lost: Count


class WorkReport(Message):
    """Workers and batches, each in the order they came. `late`: results nobody waited for any more."""

    workers: tuple[WorkerReport, ...]
    batches: tuple[BatchReport, ...]
    late: Count
