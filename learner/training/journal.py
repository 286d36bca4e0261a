"""The durable trace of a run: every response is here before its owner is asked again.

After a crash the learner replays the journal, arrives at the same state bit for bit,
and asks the next question again under the same number: no owner is charged twice.

Nobody waits for the disk: a thread writes what was appended while the next owner is asked. What a
crash may lose is therefore a tail of ticks, and the owners hold all of it:

* Ticks are written in their order, so what is lost is what came last (``append``).
* An owner is asked a new number only when the answer to the one before is durable (``settle``).
  So each owner has at most one answer in the tail, and it is the last that it gave, which it
  repeats for the same number and theta without a charge.
* What else is noted (a missed tick, a query left unanswered, a tick of the owners' own) is written
  after all ticks before it, and a tick that only some of its owners answered is waited for.
  So in the tail every tick was answered by all its owners, and none was missed.

Hence the order of the tail is that of the ticks, which a restart draws again from the same seed:
its first tick is that after the journal's last, with the same state, so the same theta goes to
the same owner under the same number, the same bytes come back, and the state after it is the
same; and so on to the tail's end. That needs the owner of each tick to be there; a restart waits
for one that is not, as long as others may hold answers of later ticks (``runner.py``). Killed

* before a tick's owner is asked: nothing is lost but the tail;
* between question and answer, or answer and ``append``: the owner may have charged it; the tick
  is then the tail's last;
* while the thread writes: a transaction is there or not; both are tails;
* owner and learner at once: a strict owner has its last response on the disk. One that charges in
  blocks may have lost it, and counts it as spent; then, and where an owner of the tail stays
  away, the line goes on with the owner's next number (``line.py``). One answer is lost for each
  owner that was asked after it, and nobody is charged twice.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
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

    @property
    def gradients(self) -> dict[int, Vector]:
        """The responses alone, by owner."""
        return {owner: gradient for owner, (_, gradient) in self.responses.items()}


class Journal:
    """The journal of one run, in one SQLite file.

    Guarantees:
      * Entries become durable in the order in which they were appended.
      * Whatever else is noted is durable when the call returns, and all entries before it.

    Raises:
      InputError: The file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with contextlib.ExitStack() as undone, self._explained():
            self._lock = _hold(path)
            undone.callback(os.close, self._lock)
            # Owners of one round answer in threads of their own, and one thread writes ticks.
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            undone.callback(self._db.close)
            self._db.execute("PRAGMA journal_mode = WAL")
            # An owner can repeat only its last response: losing two would end the study.
            self._db.execute("PRAGMA synchronous = FULL")
            # A log that is written over from its start syncs twice as fast as one that grows.
            self._db.execute("PRAGMA wal_autocheckpoint = 256")
            self._db.executescript(_SCHEMA)
            undone.pop_all()
        self._tail = _Tail(self._write)

    @cached_property
    def past(self) -> tuple[TickEntry, ...]:
        """The ticks of earlier starts, in order; read once, before this start appends its own."""
        return tuple(self.entries())

    def note(self, key: str, value: str) -> None:
        """Keep one fact of the run; noting it again replaces it."""
        self.settle()
        with self._explained():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def noted(self, key: str) -> str | None:
        """A fact noted before, or None."""
        with self._explained():
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def append(self, entry: TickEntry) -> None:
        """Keep one tick; it is on the disk when :meth:`settle` returns."""
        self._tail.append(entry)

    def settle(self, owners: Collection[int] | None = None) -> None:
        """Wait until every tick that these owners answered is on the disk; of None, every tick.

        Raises:
          InputError: It could not be written.
        """
        self._tail.settle(owners)

    def _write(self, entries: Sequence[TickEntry]) -> None:
        """Ticks in one transaction; they are on the disk when this returns."""
        with self._explained():
            self._db.execute("BEGIN")
            try:
                self._db.executemany(
                    "INSERT INTO ticks VALUES (?, ?, ?)",
                    [(entry.position, entry.time, entry.wall_seconds) for entry in entries],
                )
                self._db.executemany(
                    "INSERT INTO responses VALUES (?, ?, ?, ?)",
                    [
                        (
                            entry.position,
                            owner,
                            sequence,
                            gradient.astype("<f8", copy=False).tobytes(),
                        )
                        for entry in entries
                        for owner, (sequence, gradient) in entry.responses.items()
                    ],
                )
                self._db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise

    def keep_unanswered(self, owner: int, *, sequence: int, theta: Vector) -> None:
        """Keep a query that an owner left unanswered; it is asked again when it is back."""
        self.settle()
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
        self.settle()
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
        """Close the file; what was appended is on the disk, unless it cannot be written."""
        self._tail.end()
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


class _Tail:
    """Ticks that are not on the disk yet, and the thread that writes them.

    SQLite's connection takes turns by itself; a transaction is open only while nobody else
    writes, because who notes something else waits for it here.
    """

    def __init__(self, write: Callable[[Sequence[TickEntry]], None]) -> None:
        self._write = write
        self._entries: list[TickEntry] = []
        self._failure: Exception | None = None
        self._ending = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def append(self, entry: TickEntry) -> None:
        """Write a tick, some time soon."""
        with self._changed:
            self._entries.append(entry)
            self._changed.notify_all()

    def settle(self, owners: Collection[int] | None) -> None:
        """Wait until no tick of these owners is left; of None, no tick at all."""
        with self._changed:
            while self._entries and self._failure is None:
                if owners is not None and not any(
                    owner in entry.responses for entry in self._entries for owner in owners
                ):
                    return
                self._changed.wait()
            if self._failure is not None:
                raise self._failure

    def end(self) -> None:
        """Write what is left, and end the thread."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        """Write whatever was appended, all of it at once, until the end or a failure."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._entries or self._ending)
                written = len(self._entries)
            if not written:
                return
            try:
                self._write(self._entries[:written])
            except Exception as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return
            with self._changed:
                del self._entries[:written]
                self._changed.notify_all()


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
