"""Reading a ledger without changing it: for people, for `check`, and before it is served."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common.files import real_path
from common.sqlite_files import check_sqlite, open_sqlite
from common.texts import brief
from owner.ledger_ahead import Charged
from owner.ledger_books import Book, Books
from owner.ledger_checks import (
    check_mark,
    check_shard,
    examined,
    schema_version,
    sound,
)
from owner.ledger_files import EMPTIED, Mark, read_mark
from owner.ledger_rows import LedgerError, StudyEntry, explained
from owner.ledger_tables import BLOCKS, SCHEMA_VERSION, AccountRow
from owner.ledger_upgrade import OLD_VERSION, check_old, upgrade


def read_studies(path: Path) -> tuple[dict[str, str], list[StudyEntry]]:
    """The meta data and studies of a ledger, for people; it may be in use.

    The shard's fingerprint is left out: who can guess a record could check the guess by it.

    Raises:
      LedgerError: There is no ledger, or it cannot be read.
    """
    with _opened(path) as (db, mark):
        books = sound(db, path, mark)
        check_mark(books, mark, path)
        return _shown_meta(books), _entries(db, books)


@dataclass(frozen=True)
class History:
    """All that a ledger holds: texts by digest, and each study with the records of its charges."""

    meta: dict[str, str]
    texts: dict[str, str]
    studies: list[tuple[StudyEntry, bytes]]


def read_history(path: Path) -> History:
    """A ledger with every charge; ``charges_of`` reads its records.

    Raises:
      LedgerError: There is no ledger, or it cannot be read.
    """
    with _opened(path) as (db, mark):
        books = sound(db, path, mark)
        check_mark(books, mark, path)
        texts = dict(db.execute("SELECT digest, text FROM texts"))
        studies = [
            (book.entry(account, texts.__getitem__), _records(db, account))
            for book, account in _accounts(db, books)
        ]
        return History(_shown_meta(books), texts, studies)


def read_meta(path: Path) -> dict[str, str]:
    """Whose a ledger is; the fingerprint of its records is for the ledger itself, never shown.

    Raises:
      LedgerError: There is no ledger, or it cannot be read.
    """
    with _opened(path) as (db, mark):
        return sound(db, path, mark).meta


def read_for_shard(path: Path, *, fingerprint: str) -> list[StudyEntry]:
    """The studies of a ledger, if it belongs to these records; nothing is written.

    Raises:
      LedgerError: It cannot be read, or it belongs to other records.
    """
    with _opened(path) as (db, mark):
        books = sound(db, path, mark)
        check_shard(books.meta, path, fingerprint=fingerprint)
        check_mark(books, mark, path)
        return _entries(db, books)


def studies_there(path: Path, *, fingerprint: str) -> list[StudyEntry]:
    """As :func:`read_for_shard`; none where there is no ledger yet.

    Raises:
      LedgerError: As there, or it is lost.
    """
    with explained(path):
        is_there = path.is_file()
    if is_there:
        return read_for_shard(path, fingerprint=fingerprint)
    refuse_lost(path)
    return []


def refuse_lost(path: Path) -> None:
    """Refuse a ledger that is not there, where the files beside it say that it was.

    Raises:
      LedgerError: They say so, or cannot be read.
    """
    with explained(path):
        mark = read_mark(real_path(path))
    if mark:
        raise LedgerError(f"{path}: {EMPTIED}")


def verify_ledger(path: Path) -> list[str]:
    """What is wrong with a ledger: one sentence for each finding, none for a sound one.

    Raises:
      LedgerError: There is no ledger, or it cannot be read.
    """
    with _opened(path) as (db, mark):
        books, findings = examined(db, path, mark)
        if not findings:
            check_mark(books, mark, path)
    return findings


@contextlib.contextmanager
def snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """One state of a ledger, over a connection that cannot change it.

    Not even by closing: a connection that may write would then move a log that is to be refused
    into the ledger, and delete it.

    Raises:
      LedgerError: It is on read-only ground, and cannot be read whole there.
    """
    # Only who may write can undo a transaction of the first start that was cut off.
    mode = "rw" if Path(f"{path}-journal").exists() else "ro"
    still = _is_still(path)
    # Without this SQLite would make a -shm beside it, which it cannot.
    address = f"{path.as_uri()}?mode={mode}" + ("&immutable=1" if still else "")
    before = path.stat()
    check_sqlite(path)
    with contextlib.closing(open_sqlite(address, uri=True)) as db:
        db.execute("BEGIN")
        try:
            yield db
        finally:
            after = path.stat()
            moved = (after.st_mtime_ns, after.st_size) != (before.st_mtime_ns, before.st_size)
            if still and (moved or not _is_still(path)):
                raise LedgerError(
                    f"{path}: was written to while it was read; type the same command again"
                )


def _is_still(path: Path) -> bool:
    """Whether a ledger is a file that nobody writes to, on ground where nothing can be made.

    Its owner is not running then: it would hold a -shm there. All that was committed is in the
    ledger itself if no -wal holds any of it.

    Raises:
      LedgerError: A -wal does, which cannot be read without a -shm.
    """
    log, shared = (Path(f"{path}{suffix}") for suffix in ("-wal", "-shm"))
    if os.access(path.parent, os.W_OK) or shared.exists():
        return False
    if log.exists() and log.stat().st_size:
        raise LedgerError(
            f"{path}: {path.name}-wal holds a part of it, which cannot be read in a folder that "
            "cannot be written; copy the ledger with all its files to a folder that can be"
        )
    return True


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[sqlite3.Connection, Mark]]:
    """A ledger of this version; one of the version before is upgraded in memory."""
    real = real_path(path)
    if not os.path.isfile(real):
        raise LedgerError(
            f"{path}: there is no ledger; give the path that the owner's settings name"
        )
    # Before the ledger: what is charged in between is in the ledger and not yet in the mark.
    with explained(path):
        mark = read_mark(real)
        with snapshot(real) as db:
            if check_version(db, path) != OLD_VERSION:
                yield db, mark
                return
            check_old(db, path)
            with contextlib.closing(open_sqlite(":memory:")) as copy:
                db.execute("COMMIT")
                db.backup(copy)
                upgrade(copy, path)
                yield copy, mark


def check_version(db: sqlite3.Connection, path: Path) -> str:
    """The version of a ledger's tables, if this program knows it.

    Raises:
      LedgerError: It is another, or the ledger holds nothing yet.
    """
    version = schema_version(db, path)
    if version is None:
        raise LedgerError(
            f"{path}: the ledger holds nothing yet, since its owner ended before it could serve; "
            "start the owner, or restore the ledger if studies were in it"
        )
    if version not in {SCHEMA_VERSION, OLD_VERSION}:
        raise LedgerError(
            f"{path}: schema version {brief(version)}, this program knows "
            f"{SCHEMA_VERSION} and {OLD_VERSION}; use the program version that wrote the ledger"
        )
    return version


def _shown_meta(books: Books) -> dict[str, str]:
    return {key: value for key, value in books.meta.items() if key != "shard_fingerprint"}


def _accounts(db: sqlite3.Connection, books: Books) -> Iterator[tuple[Book, AccountRow]]:
    """Every study's book and account, with what was given of its charges, oldest first."""
    for book in books:
        number = book.study.number
        *values, checksum = db.execute(
            "SELECT * FROM accounts WHERE number = ?", (number,)
        ).fetchone()
        yield book, Charged.of(AccountRow(*values), checksum, books.given.get(checksum)).settled


def _entries(db: sqlite3.Connection, books: Books) -> list[StudyEntry]:
    """Studies as typed records, oldest first."""
    texts = dict(db.execute("SELECT digest, text FROM texts"))
    return [book.entry(account, texts.__getitem__) for book, account in _accounts(db, books)]


def _records(db: sqlite3.Connection, account: AccountRow) -> bytes:
    """The records of all charges of a study, oldest first."""
    first = account.number * BLOCKS
    blocks = db.execute(
        "SELECT records FROM charges WHERE position >= ? AND position < ? ORDER BY position",
        (first, first + BLOCKS),
    )
    return b"".join(block for (block,) in blocks) + account.recent
