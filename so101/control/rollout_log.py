"""The log of a rollout: one CSV line a tick, on disk as soon as the tick is over; a crash costs nothing of it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np

from so101.errors import DataError

NUMBERS = ("tick", "due_s", "woke_ms", "sent_ms", "skipped", "chunk", "row")


class TickRow(NamedTuple):
    """What happened in one tick.

    Attributes:
        tick, due_s: its place in the grid, and when that was due, s since the grid began.
        woke_ms, sent_ms: how late the loop woke, and had sent its command, ms after due.
        skipped: places of the grid passed over just before.
        phase: start | policy | paused | settle | home.
        chunk, row: which row of which chunk was sent; -1: none (an eased target, or the pose held).
        miss: why the command was late or no fresh action was there; "" for none.
        q, target, sent: (6,) rad: measured joints, what the loop wanted, what the driver says it sent; else nan.
        frame_age_ms: age of the oldest camera frame of the tick; nan without frames.
    """

    tick: int
    due_s: float
    woke_ms: float
    sent_ms: float
    skipped: int
    phase: str
    chunk: int
    row: int
    miss: str
    q: np.ndarray
    target: np.ndarray
    sent: np.ndarray
    frame_age_ms: float


class TickLog:
    """Writes `TickRow`s to `path`."""

    def __init__(self, path: Path | str, joint_names: Sequence[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.path, "w", newline="", encoding="utf-8", buffering=1)  # a line at a time
        self._writer = csv.writer(self._file, lineterminator="\n")
        vectors = [f"{part}_{name}" for part in ("q", "target", "sent") for name in joint_names]
        self._writer.writerow([*NUMBERS, "phase", "miss", *vectors, "frame_age_ms"])

    def write(self, row: TickRow) -> None:
        """Add one tick."""
        numbers = (row.tick, f"{row.due_s:.6f}", f"{row.woke_ms:.3f}", f"{row.sent_ms:.3f}")
        joints = [f"{value:.6f}" for part in (row.q, row.target, row.sent) for value in part]
        age = f"{row.frame_age_ms:.1f}"
        self._writer.writerow([*numbers, row.skipped, row.chunk, row.row, row.phase, row.miss, *joints, age])

    def __enter__(self) -> TickLog:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()


def read_log(path: Path | str) -> list[TickRow]:
    """All whole lines of a log; the last one may have been cut off by a crash.

    Raises:
        DataError: not such a file.
    """
    try:
        whole = Path(path).read_text(encoding="utf-8").rpartition("\n")[0]
        header, *lines = list(csv.reader(whole.split("\n")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as the log of a rollout ({error})") from None
    joints = (len(header) - len(NUMBERS) - 3) // 3
    if tuple(header[: len(NUMBERS)]) != NUMBERS or joints < 1:
        raise DataError(f"{path}: not the log of a rollout; its first line must begin with {','.join(NUMBERS)}")
    try:
        return [_row(line, joints) for line in lines]
    except (ValueError, IndexError) as error:
        raise DataError(f"{path}: damaged ({error}); only its last line may be cut off") from None


def _row(line: list[str], joints: int) -> TickRow:
    tick, due_s, woke_ms, sent_ms, skipped, chunk, row, phase, miss, *vectors, age = line
    q, target, sent = np.array(vectors, float).reshape(3, joints)
    return TickRow(
        tick=int(tick),
        due_s=float(due_s),
        woke_ms=float(woke_ms),
        sent_ms=float(sent_ms),
        skipped=int(skipped),
        phase=phase,
        chunk=int(chunk),
        row=int(row),
        miss=miss,
        q=q,
        target=target,
        sent=sent,
        frame_age_ms=float(age),
    )
