"""The durable budget: what this shard has promised, spent and answered, in one SQLite file.

Every charge and its response are committed together, synced to the disk, before the caller
may send a byte. Amounts are exact rationals kept as text; counts are integers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from common.errors import BudgetSpentError, OrderError
from common.leaks import warn_of_readers
from common.privacy import in_short
from owner.ledger_rows import (
    SCHEMA,
    SCHEMA_VERSION,
    LedgerError,
    StudyEntry,
    check_schema,
    check_shard,
    entries,
    epsilon_held,
    explained,
    miscounted,
)

__all__ = ["Ledger"]

QUICK_CHECK_BYTES = 64 * 2**20


class Ledger:
    """The open ledger of one shard; only one process at a time may hold it.

    Guarantees:
      * ``charge`` returns only when charge and response are on the disk.
      * A study never gets more responses than promised, whatever happens to the process.
      * After a failure, what is read is what is on the disk, or nothing is read at all.
      * A ledger that is no longer the file of its name takes no charge.
      * A ledger of another shard, a damaged one, one that cannot be written and one held by
        another process are refused.

    Raises:
      LedgerError: The file cannot be used; the sentence says why and what to do.
    """

    def __init__(self, path: Path, *, owner: str, fingerprint: str) -> None:
        # Two names of one file are one ledger.
        self._path = path = path.resolve()
        self._lock, self._file = _hold(path)
        self._unsound = False
        # What all studies hold, as far as this process knows; only it writes.
        self._held: Fraction | None = None
        self._version = 0
        try:
            with explained(path):
                self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.execute("PRAGMA foreign_keys = ON")
                self._open(owner, fingerprint)
            # Made for its owner alone; a copy that was restored may not be.
            warn_of_readers(path)
        except BaseException:
            self._release()
            raise

    def _open(self, owner: str, fingerprint: str) -> None:
        """Create the tables, or check that the ledger is whole, of this shard and writable."""
        if self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            self._create(owner, fingerprint)
        meta = check_schema(self._db, self._path)
        check_shard(meta, self._path, fingerprint=fingerprint)
        _check_whole(self._db, self._path)
        self._total = int(
            self._db.execute("SELECT coalesce(sum(answered), 0) FROM accounts").fetchone()[0]
        )
        if self._total < _read_mark(self._lock):
            raise LedgerError(
                f"{self._path}: the ledger has lost responses that were given (its -wal file may "
                "be missing or it is an old copy); restore the newest copy with its -wal file"
            )
        # A disk without room is found before anything is promised, not at the first response.
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('last_opened', ?)", (_now(),))
        _write_mark(self._lock, self._total)

    def _create(self, owner: str, fingerprint: str) -> None:
        if _read_mark(self._lock):
            raise LedgerError(
                f"{self._path}: the ledger is empty but responses were given before; restore it"
            )
        rows = {
            "schema_version": SCHEMA_VERSION,
            "owner": owner,
            "shard_fingerprint": fingerprint,
            "created": _now(),
        }
        with self._transaction():
            for statement in SCHEMA.strip().split(";\n"):
                self._db.execute(statement)
            self._db.executemany("INSERT INTO meta VALUES (?, ?)", rows.items())

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, on the disk when it ends."""
        self._check_in_place()
        with explained(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                # A failed COMMIT may have rolled back by itself.
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                # If even that failed, this connection would read charges that are not durable,
                # and a retry would be given a response that was never charged.
                self._unsound = self._db.in_transaction
                raise

    @contextlib.contextmanager
    def _changing(self, more: Fraction) -> Iterator[None]:
        """A transaction that changes what is held; after one that failed the disk is asked."""
        try:
            with self._transaction():
                held = self.epsilon_held()
                yield
        except BaseException:
            self._held = None
            raise
        self._held = held + more

    def _check_sound(self) -> None:
        if self._unsound:
            raise LedgerError(
                f"{self._path}: an earlier failure could not be undone; start the owner again"
            )

    def _check_in_place(self) -> None:
        """A charge in a file that the next start will not find would be charged to nobody."""
        held = os.fstat(self._file)
        try:
            there = self._path.stat()
        except OSError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            raise LedgerError(
                f"{self._path}: the ledger was moved or replaced while in use; put the file back "
                "and start the owner again"
            )

    def study(self, study_id: str) -> StudyEntry | None:
        """One study, or None."""
        self._check_sound()
        with explained(self._path):
            rows = list(entries(self._db, "WHERE s.study_id = ?", (study_id,)))
        return rows[0] if rows else None

    def studies(self) -> Iterator[StudyEntry]:
        """All studies, oldest first."""
        self._check_sound()
        with explained(self._path):
            yield from entries(self._db)

    @property
    def responses(self) -> int:
        """Responses ever charged, over all studies."""
        return self._total

    def epsilon_held(self) -> Fraction:
        """What all studies together take of the lifetime budget."""
        self._check_sound()
        with explained(self._path):
            # Another process cannot hold the ledger; if one wrote to it all the same, count again.
            version = int(self._db.execute("PRAGMA data_version").fetchone()[0])
            if self._held is None or version != self._version:
                self._held, self._version = epsilon_held(self._db), version
        return self._held

    def epsilon_spent(self) -> Fraction:
        """What all responses ever given have spent of the lifetime budget."""
        self._check_sound()
        with explained(self._path):
            return epsilon_held(self._db, spent_only=True)

    def check_left(self, epsilon: Fraction, *, lifetime: Fraction) -> None:
        """Refuse a study that the lifetime budget has no room for.

        Raises:
          BudgetSpentError: It has not so much left.
        """
        left = lifetime - self.epsilon_held()
        if epsilon > left:
            raise BudgetSpentError(
                f"the study asks for epsilon {in_short(epsilon)}, but "
                f"{in_short(max(left, Fraction(0)))} of the lifetime budget is left; ask for less"
            )

    def open_study(
        self,
        *,
        study_id: str,
        learner: str,
        terms: str,
        epsilon: Fraction,
        promised: int,
        noise_scale: float,
        insecure_noise: bool,
        lifetime: Fraction,
    ) -> None:
        """Reserve a study's epsilon out of the lifetime budget.

        Raises:
          BudgetSpentError: The lifetime budget has not so much left; nothing is reserved.
        """
        with self._changing(epsilon):
            self.check_left(epsilon, lifetime=lifetime)
            self._db.execute(
                "INSERT INTO studies VALUES (?, ?, ?, ?, ?, ?, ?)",
                (study_id, learner, str(epsilon), noise_scale, insecure_noise, _now(), terms),
            )
            self._db.execute(
                "INSERT INTO accounts (study_id, promised) VALUES (?, ?)", (study_id, promised)
            )

    def charge(self, *, study_id: str, sequence: int, digest: str, response: bytes) -> None:
        """Charge one response and keep it for a retry, in one synced transaction.

        Raises:
          OrderError: The number is not the next one, all were given, or the study is closed.
          LedgerError: It could not be written: nothing is charged, nothing may be released.
        """
        with self._transaction():
            # The WHERE clause repeats next_step's rule where no second writer can pass it.
            changed = self._db.execute(
                "UPDATE accounts SET answered = ?, last_digest = ?, last_response = ? "
                "WHERE study_id = ? AND answered = ? AND ? <= promised AND closed IS NULL",
                (sequence, digest, response, study_id, sequence - 1, sequence),
            ).rowcount
            if changed != 1:
                raise OrderError(f"sequence number {sequence} is not the next one of this study")
            self._db.execute(
                "INSERT INTO charges VALUES (?, ?, ?, ?)", (study_id, sequence, digest, _now())
            )
        self._total += 1
        _write_mark(self._lock, self._total)

    def close_study(self, study_id: str) -> None:
        """Close a study; what it did not use returns to the lifetime budget."""
        entry = self.study(study_id)
        if entry is None or entry.account.closed:
            return
        with self._changing(entry.epsilon_spent - entry.epsilon):
            self._db.execute(
                "UPDATE accounts SET closed = ? WHERE study_id = ? AND closed IS NULL",
                (_now(), study_id),
            )

    def close(self) -> None:
        """Release the file."""
        self._release()

    def _release(self) -> None:
        db = getattr(self, "_db", None)
        if db is not None:
            db.close()
        # After the database: closing any handle of its file would drop SQLite's own locks.
        os.close(self._file)
        os.close(self._lock)


def _check_whole(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a truncated or corrupt file; large ones only where the budget itself is kept."""
    if path.stat().st_size <= QUICK_CHECK_BYTES:
        results = [db.execute("PRAGMA quick_check").fetchone()[0]]
    else:
        results = [
            db.execute(f"PRAGMA quick_check('{table}')").fetchone()[0]
            for table in ("studies", "accounts")
        ]
    bad = [result for result in results if result != "ok"]
    bad += [f"study {study}: its count is not that of its charges" for study in miscounted(db)]
    if bad:
        raise LedgerError(f"{path}: the ledger is damaged ({bad[0]}); restore it from a copy")


def _hold(path: Path) -> tuple[int, int]:
    """Take the ledger for this process alone, by its name and by its file.

    The locks end with the process. The file itself is locked too, for another name of it.
    """
    handles: list[int] = []
    try:
        for name in (f"{path}.lock", path):
            # Readable by its owner only: the ledger tells what was asked of the records.
            handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            handles.append(handle)
    except OSError as error:
        for handle in handles:
            os.close(handle)
        raise LedgerError(
            f"{path}: the ledger or its folder cannot be written ({error.strerror}); make it "
            "writable, or give a writable path as `ledger` in the owner's settings"
        ) from None
    try:
        for handle in handles:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        for handle in handles:
            os.close(handle)
        raise LedgerError(
            f"{path}: another process holds this ledger; stop it first, two owners must not "
            "share one budget"
        ) from None
    return handles[0], handles[1]


def _read_mark(lock: int) -> int:
    """The number of responses ever given, as last noted beside the ledger."""
    text = os.pread(lock, 32, 0).strip()
    return int(text) if text.isdigit() else 0


def _write_mark(lock: int, total: int) -> None:
    """Note the number of responses given.

    Not synced, and a failure does not matter: a mark that lags makes its check weaker, and
    the response is charged already.
    """
    with contextlib.suppress(OSError):
        os.pwrite(lock, f"{total:>20}\n".encode(), 0)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
