"""The durable trace of a run: every response is here before its owner forgets it.

After a crash the learner replays the journal, arrives at the same state bit for bit,
and asks the next question again under the same number: no owner is charged twice.

Nobody waits for the disk: a thread writes what was appended, many ticks at once, while owners are
asked. What a crash may lose is therefore a tail of ticks, and the owners hold all of it:

* Ticks are written in their order, so what is lost is what came last (``append``).
* An owner repeats its last answers for the same numbers and thetas without a charge, as many as
  its enrolment said. It is asked a new number only when all that it gave before but one fewer are
  durable (``settle``). So each owner repeats all answers that it has in the tail.
* What else is noted (a missed tick, a query left unanswered, a tick of the owners' own) is written
  after all ticks before it, and a tick that only some of its owners answered is waited for.
  So in the tail every tick was answered by all its owners, and none was missed.
* Questions that were asked ahead (``in_flight.py``) were asked at the models that these ticks come
  to if all are answered. Where one is missed, those behind it are noted as unanswered first.

Hence the order of the tail is that of the ticks, which a restart draws again from the same seed:
its first tick is that after the journal's last, with the same state, so the same theta goes to
the same owner under the same number, the same bytes come back, and the state after it is the
same; and so on to the tail's end. That needs the owner of each tick to be there; a restart waits
for one that is not, as long as others may hold answers of later ticks (``resuming.py``). Killed

* before a tick's owner is asked: nothing is lost but the tail;
* between question and answer, or answer and ``append``: the owner may have charged it, and others
  what they were asked ahead; these ticks are then the tail's last;
* while the thread writes: a transaction is there or not; both are tails;
* owner and learner at once: a strict owner has its last responses on the disk. One that charges in
  blocks may have lost them, and counts them as spent; then, and where an owner of the tail stays
  away, the lines go on with the owners' next numbers (``line.py``). What each of them gave in the
  tail after that is lost, at most as many as it repeats, and nobody is charged twice.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from common.arrays import Vector
from common.errors import InputError
from common.files import lock_file, permitted, unwritten
from common.sqlite_files import check_sqlite, open_sqlite, transaction
from common.texts import brief
from common.wire import PROGRAM_VERSION
from learner.training.journal_tables import make_tables
from learner.training.journal_values import (
    UNREADABLE,
    TickEntry,
    check_ticks,
    entries_of,
    index_of,
    response_rows,
    sequence_of,
    unusable,
    vector_of,
    whole_number,
)

T = TypeVar("T")

# A tick is on the disk after so long, whether or not somebody needs it there.
LAG_SECONDS = 0.1
# Between two looks whether who writes is there: a thread that finds no memory ends without a word.
LOOK_SECONDS = 1.0


class Journal:
    """The journal of one run, in one SQLite file.

    Guarantees:
      * Entries become durable in the order in which they were appended.
      * Whatever else is noted is durable when the call returns, and all entries before it.

    Raises:
      InputError: The file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._turn, self._wrote = path, threading.Lock(), PROGRAM_VERSION
        with contextlib.ExitStack() as undone, self._explained():
            self._lock = _hold(path)
            undone.callback(os.close, self._lock)
            # Threads take turns at it: since Python 3.12 it fails where two use it at once.
            self._db = open_sqlite(path, any_thread=True)
            undone.callback(self._db.close)
            # Only a new file takes it: a long answer is written in a third of the pieces.
            self._db.execute("PRAGMA page_size = 16384")
            self._db.execute("PRAGMA journal_mode = WAL")
            # An owner repeats only its last responses: what settled must be there.
            self._db.execute("PRAGMA synchronous = FULL")
            # A log that is written over from its start syncs twice as fast as one that grows.
            self._db.execute("PRAGMA wal_autocheckpoint = 64")
            make_tables(self._db, path, self.damaged)
            self._wrote = self._program()
            # Whether all that earlier starts were answered is here, or is asked for no more.
            self.is_whole = self._take_end()
            undone.pop_all()
        self._tail = _Tail(self._write)

    @cached_property
    def past(self) -> tuple[TickEntry, ...]:
        """The ticks of earlier starts, in order; read once, before this start appends its own."""
        return tuple(self.entries())

    def note(self, key: str, value: str) -> None:
        """Keep one fact of the run; noting it again replaces it."""
        self.settle()
        with self._turn, self._explained():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def noted(self, key: str) -> str | None:
        """A fact noted before, or None."""
        with self._turn, self._explained():
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if row is not None and not isinstance(row[0], str):
            raise self.damaged(key)
        return None if row is None else row[0]

    def read(self, key: str, meaning: Callable[[str], T]) -> T | None:
        """What a fact noted before means, or None.

        Args:
          key: Its name.
          meaning: Makes a value of the text; what it raises says that the text is not what was
            written.

        Raises:
          InputError: It is damaged.
        """
        text = self.noted(key)
        if text is None:
            return None
        with self._sound(key):
            return meaning(text)

    def check(self, *, largest: Sequence[float], length: int) -> None:
        """Refuse ticks that a run cannot have left.

        Args:
          largest: Of each owner the largest absolute value of a coordinate of its responses.
          length: The length of a response.

        Raises:
          InputError: One is damaged or missing, or of an owner or size that the run has not.
        """
        with self._sound("ticks"):
            check_ticks(self.past, missed_before=self.missed_before, largest=largest, length=length)
            if any(owner >= len(largest) for owner in self.unanswered()):
                raise ValueError("of nobody")

    @property
    def missed_before(self) -> int:
        """The position after the last tick that nobody answered, or 0."""
        return self.read("missed_before", whole_number) or 0

    def append(self, entry: TickEntry) -> None:
        """Keep one tick; it is on the disk when :meth:`settle` returns."""
        self._tail.append(entry)

    def settle(self, repeats: Mapping[int, int] | None = None) -> None:
        """Wait until these owners may be asked once more; of None, until every tick is durable.

        Args:
          repeats: Owner index -> how many of its last answers it gives again, at least 1. Fewer
            of those that it gave may be anywhere but on the disk.

        Raises:
          InputError: It could not be written.
        """
        self._tail.settle(repeats)

    def _write(self, entries: Sequence[TickEntry]) -> None:
        """Ticks in one transaction; they are on the disk when this returns."""
        with self._turn, self._explained(), transaction(self._db):
            self._db.executemany(
                "INSERT INTO ticks VALUES (?, ?, ?)",
                [(entry.position, entry.time, entry.wall_seconds) for entry in entries],
            )
            self._db.executemany(
                "INSERT INTO responses VALUES (?, ?, ?, ?)", response_rows(entries)
            )

    def keep_unanswered(self, owner: int, *, sequence: int, theta: Vector) -> None:
        """Keep a query that an owner left unanswered; it is asked again when it is back."""
        self.settle()
        with self._turn, self._explained():
            self._db.execute(
                "INSERT OR REPLACE INTO unanswered VALUES (?, ?, ?)",
                (owner, sequence, theta.astype("<f8").tobytes()),
            )

    def unanswered(self) -> dict[int, tuple[int, Vector]]:
        """Owner index -> (sequence number, theta) of the last query it left unanswered."""
        with self._turn, self._explained():
            rows = self._db.execute("SELECT * FROM unanswered").fetchall()
        with self._sound("unanswered"):
            return {
                index_of(owner): (sequence_of(sequence), vector_of(theta))
                for owner, sequence, theta in rows
            }

    def entries(self) -> Iterator[TickEntry]:
        """All ticks in order."""
        self.settle()
        with self._explained(), self._sound("ticks"):
            ticks = self._db.execute(
                "SELECT position, time, wall_seconds FROM ticks ORDER BY position"
            )
            answers = self._db.execute(
                "SELECT position, owner, sequence, gradient FROM responses ORDER BY rowid"
            )
            yield from entries_of(ticks, answers)

    def close(self) -> None:
        """Close the file; what was appended is on the disk, unless it cannot be written."""
        if self._tail.end() and self.is_whole:
            self._note_end()
        self._db.close()
        os.close(self._lock)

    def _note_end(self) -> None:
        """Note for the next start that nothing is missing; without that it asks owners."""
        with contextlib.suppress(sqlite3.DatabaseError):
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('ended', 'in order')")

    def _take_end(self) -> bool:
        """Whether that was noted; it holds for one start."""
        return self._db.execute("DELETE FROM meta WHERE key = 'ended'").rowcount > 0

    @contextlib.contextmanager
    def _sound(self, what: str) -> Iterator[None]:
        """Values that are not what was written, as a sentence."""
        try:
            yield
        except UNREADABLE as error:
            raise self.damaged(what) from error

    def _program(self) -> str:
        """The version of copriv that began it, as far as it says so."""
        began = "INSERT INTO meta SELECT 'version', ? WHERE NOT EXISTS (SELECT 1 FROM meta)"
        self._db.execute(began, (PROGRAM_VERSION,))
        row = self._db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
        return PROGRAM_VERSION if row is None else brief(str(row[0]))

    def damaged(self, what: str) -> InputError:
        """The error for something in it that is not what was written, or not by this version."""
        if self._wrote != PROGRAM_VERSION:
            return InputError(
                f"{self._path}: copriv {self._wrote} began it, and this version, {PROGRAM_VERSION},"
                f" cannot read all of it ({what}); use that version to go on"
            )
        return InputError(
            f"{self._path}: it is damaged ({what}); start a new run, or restore it from a backup"
        )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise unusable(self._path, error) from error


class _Tail:
    """Ticks that are not on the disk yet, and the thread that writes them.

    It begins when an owner has half as many answers among them as it repeats, so that its next
    questions need not wait, or after a moment. A transaction is open only while nobody else writes,
    because who notes something else waits here.
    """

    def __init__(self, write: Callable[[Sequence[TickEntry]], None]) -> None:
        self._write = write
        self._entries: list[TickEntry] = []
        # By owner: answers among the entries, and how many it repeats, as far as that is known.
        self._answers: Counter[int] = Counter()
        self._repeats: dict[int, int] = {}
        self._failure: Exception | None = None
        self._urgent = self._ending = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def append(self, entry: TickEntry) -> None:
        """Write a tick, some time soon."""
        with self._changed:
            self._entries.append(entry)
            self._answers.update(entry.responses.keys())
            self._urgent = self._urgent or any(
                2 * self._answers[owner] >= self._repeats.get(owner, 1) for owner in entry.responses
            )
            if self._urgent or len(self._entries) == 1:
                self._changed.notify_all()

    def settle(self, repeats: Mapping[int, int] | None) -> None:
        """Wait until each of these owners repeats more than is left of it; of None, for all."""
        with self._changed:
            self._repeats.update(repeats or {})
            while self._failure is None and self._is_left(repeats):
                if not self._thread.is_alive():
                    raise MemoryError("the thread that writes the journal has ended")
                self._urgent = True
                self._changed.notify_all()
                self._changed.wait(LOOK_SECONDS)
            if self._failure is not None:
                raise self._failure

    def end(self) -> bool:
        """Write what is left, and end the thread; whether all of it is on the disk."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._thread.join()
        return self._failure is None and not self._entries

    def _is_left(self, repeats: Mapping[int, int] | None) -> bool:
        """Whether there is something to wait for."""
        if repeats is None:
            return bool(self._entries)
        return any(self._answers[owner] >= max(most, 1) for owner, most in repeats.items())

    def _work(self) -> None:
        """Write whatever was appended, until the end or a failure."""
        try:
            while self._write_next():
                pass
        except Exception as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _write_next(self) -> bool:
        """Write what was appended, all of it at once; False where it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._entries or self._ending)
            self._changed.wait_for(lambda: self._urgent or self._ending, LAG_SECONDS)
            written, self._urgent = self._entries[:], False
        if not written:
            return False
        self._write(written)
        with self._changed:
            del self._entries[: len(written)]
            self._answers.subtract(owner for entry in written for owner in entry.responses)
            self._changed.notify_all()
        return True


def _hold(path: Path) -> int:
    """Take the run for this process alone; the lock ends with the process."""
    check_sqlite(path)
    try:
        return lock_file(path.with_name(f"{path.name}.lock"))
    except BlockingIOError:
        raise InputError(f"{path}: another process holds this run; wait for it to end") from None
    except OSError as error:
        # Who goes on with a run in another folder asks again, and spends again.
        cure = permitted(error, "make it writable, or begin another run with --out")
        why = f"{path}: the run folder cannot be written ({error.strerror})"
        raise unwritten(error, f"{why}; {cure}") from None
