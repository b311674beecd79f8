"""The run store: what was asked for, in SQLite. What became of it is read from disk (`progress`, `outcome`).

Plain `sqlite3`: one table and a handful of statements need no mapper. Write-ahead logging, so that a reader (or a
person with the sqlite3 shell) never stops the control plane; every change is on disk when the call returns.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from so101.errors import RunFolderError

_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY,
    created_s REAL NOT NULL,       -- wall clock
    request TEXT NOT NULL,         -- JSON
    wanted TEXT NOT NULL,          -- 'run' or 'stop'
    queued_s REAL,                 -- since when it waits for its turn; NULL: it does not
    starts INTEGER NOT NULL,       -- processes started so far
    crashes INTEGER NOT NULL,      -- of them died since somebody last asked for the run
    stop_s REAL                    -- when it was asked to stop
)
"""


@dataclass(frozen=True)
class StoredRun:
    """One row."""

    id: str
    created_s: float
    request: dict[str, Any]
    wanted: str
    queued_s: float | None
    starts: int
    crashes: int
    stop_s: float | None


class RunStore:
    """For any thread.

    Raises:
        RunFolderError: the file is no store of ours, damaged, or cannot be used now.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
        except sqlite3.OperationalError as error:
            raise RunFolderError(f"{path}: the run store cannot be opened ({error})") from None
        try:
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError(f"version {version}, this program reads {_VERSION}")
            self._connection.execute(_SCHEMA)
            self._connection.execute(f"PRAGMA user_version={_VERSION}")
            (verdict,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
            columns = [row[1] for row in self._connection.execute("PRAGMA table_info(runs)")]
            if verdict != "ok" or columns != [field.name for field in fields(StoredRun)]:
                raise sqlite3.DatabaseError(verdict if verdict != "ok" else f"its columns are {', '.join(columns)}")
        except sqlite3.OperationalError as error:
            self._connection.close()
            raise RunFolderError(
                f"{path}: the run store cannot be used now ({error}); does another program hold it, is the disk full, "
                "may this user write there?"
            ) from None
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise RunFolderError(
                f"{path}: not a run store of this program ({error}); move it away, a new one is made. Runs in their "
                "folders are untouched"
            ) from None

    def add(self, run_id: str, request: dict[str, Any], now_s: float) -> None:
        """A new run, queued. sqlite3.IntegrityError when the id is taken."""
        self._execute(
            "INSERT INTO runs VALUES (?, ?, ?, 'run', ?, 0, 0, NULL)", (run_id, now_s, json.dumps(request), now_s)
        )

    def get(self, run_id: str) -> StoredRun | None:
        rows = self._execute("SELECT * FROM runs WHERE id = ?", (run_id,))
        return _stored(rows[0]) if rows else None

    def all(self) -> list[StoredRun]:
        """In the order they wait, then newest first."""
        order = "queued_s IS NULL, queued_s, created_s DESC, id"
        return [_stored(row) for row in self._execute(f"SELECT * FROM runs ORDER BY {order}")]

    def queue(self, run_id: str, now_s: float) -> None:
        """Somebody asks for the run to go on."""
        self._execute(
            "UPDATE runs SET wanted = 'run', queued_s = ?, crashes = 0, stop_s = NULL WHERE id = ?", (now_s, run_id)
        )

    def queue_again(self, run_id: str, now_s: float, *, crashed: bool = True) -> None:
        """Its process died, or is stopped to go on later."""
        self._execute("UPDATE runs SET queued_s = ?, crashes = crashes + ? WHERE id = ?", (now_s, crashed, run_id))

    def mark_started(self, run_id: str) -> int:
        """A process is about to start; returns which one this is, from 1."""
        self._execute("UPDATE runs SET queued_s = NULL, starts = starts + 1 WHERE id = ?", (run_id,))
        stored = self.get(run_id)
        return stored.starts if stored else 0

    def mark_stopping(self, run_id: str, now_s: float) -> None:
        self._execute("UPDATE runs SET wanted = 'stop', queued_s = NULL, stop_s = ? WHERE id = ?", (now_s, run_id))

    def remove(self, run_id: str) -> None:
        self._execute("DELETE FROM runs WHERE id = ?", (run_id,))

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._connection.execute(statement, values).fetchall()


def _stored(row: tuple[Any, ...]) -> StoredRun:
    return StoredRun(row[0], row[1], json.loads(row[2]), *row[3:])
