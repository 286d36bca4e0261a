"""The durable trace of a run: every response is here before it is applied.

After a crash the learner replays the journal, arrives at the same state bit for bit,
and asks the next question again under the same number: no owner is charged twice.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from common.arrays import Vector
from common.errors import InputError
from common.files import lock_file

__all__ = ["Journal", "TickEntry"]


_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ticks (
  position INTEGER PRIMARY KEY,
  time REAL NOT NULL,
  wall_seconds REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS unanswered (
  owner INTEGER PRIMARY KEY,
  sequence INTEGER NOT NULL,
  theta BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS responses (
  position INTEGER NOT NULL REFERENCES ticks,
  owner INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  gradient BLOB NOT NULL,
  PRIMARY KEY (position, owner)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, kw_only=True)
class TickEntry:
    """One tick and its responses.

    Args:
      position: Its place among all ticks drawn, from 0.
      time: Virtual time.
      wall_seconds: Seconds since the run began.
      responses: Owner index -> (sequence number, gradient (p,)); empty when nobody answered.
    """

    position: int
    time: float
    wall_seconds: float
    responses: dict[int, tuple[int, Vector]]


class Journal:
    """The journal of one run, in one SQLite file.

    Raises:
      InputError: The file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with contextlib.ExitStack() as undone, self._explained():
            self._lock = _hold(path)
            undone.callback(os.close, self._lock)
            # Owners of one round answer in threads of their own.
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            undone.callback(self._db.close)
            self._db.execute("PRAGMA journal_mode = WAL")
            # An owner can repeat only its last response: losing two would end the study.
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)
            undone.pop_all()

    @cached_property
    def past(self) -> tuple[TickEntry, ...]:
        """The ticks of earlier starts, in order; read once, before this start appends its own."""
        return tuple(self.entries())

    def note(self, key: str, value: str) -> None:
        """Keep one fact of the run; noting it again replaces it."""
        with self._explained():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def noted(self, key: str) -> str | None:
        """A fact noted before, or None."""
        with self._explained():
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def append(self, entry: TickEntry) -> None:
        """Keep one tick; it is on the disk when this returns."""
        with self._explained():
            self._db.execute("BEGIN")
            try:
                self._db.execute(
                    "INSERT INTO ticks VALUES (?, ?, ?)",
                    (entry.position, entry.time, entry.wall_seconds),
                )
                self._db.executemany(
                    "INSERT INTO responses VALUES (?, ?, ?, ?)",
                    (
                        (entry.position, owner, sequence, gradient.astype("<f8").tobytes())
                        for owner, (sequence, gradient) in entry.responses.items()
                    ),
                )
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def keep_unanswered(self, owner: int, *, sequence: int, theta: Vector) -> None:
        """Keep a query that an owner left unanswered; it is asked again when it is back."""
        with self._explained():
            self._db.execute(
                "INSERT OR REPLACE INTO unanswered VALUES (?, ?, ?)",
                (owner, sequence, theta.astype("<f8").tobytes()),
            )

    def unanswered(self) -> dict[int, tuple[int, Vector]]:
        """Owner index -> (sequence number, theta) of the last query it left unanswered."""
        with self._explained():
            return {
                int(owner): (int(sequence), np.frombuffer(theta, dtype="<f8").astype(np.float64))
                for owner, sequence, theta in self._db.execute("SELECT * FROM unanswered")
            }

    def entries(self) -> Iterator[TickEntry]:
        """All ticks in order."""
        with self._explained():
            answers = iter(
                self._db.execute(
                    "SELECT position, owner, sequence, gradient FROM responses "
                    "ORDER BY position, owner"
                )
            )
            ahead = next(answers, None)
            for position, time, wall in self._db.execute(
                "SELECT position, time, wall_seconds FROM ticks ORDER BY position"
            ):
                responses = {}
                while ahead is not None and ahead[0] == position:
                    gradient = np.frombuffer(ahead[3], dtype="<f8").astype(np.float64)
                    responses[int(ahead[1])] = (int(ahead[2]), gradient)
                    ahead = next(answers, None)
                yield TickEntry(
                    position=position, time=time, wall_seconds=wall, responses=responses
                )

    def close(self) -> None:
        """Close the file."""
        self._db.close()
        os.close(self._lock)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"{self._path}: the journal cannot be used ({error}); check the disk's space "
                "and the file's permissions; the run can be resumed"
            ) from error


def _hold(path: Path) -> int:
    """Take the run for this process alone; the lock ends with the process."""
    try:
        return lock_file(path.with_name(f"{path.name}.lock"))
    except BlockingIOError:
        raise InputError(f"{path}: another process is at this run; wait for it to end") from None
    except OSError as error:
        raise InputError(
            f"{path}: the run folder cannot be written ({error.strerror}); give another --out"
        ) from None
