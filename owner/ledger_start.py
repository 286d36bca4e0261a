"""Opening a ledger to serve it: read first, and written only if it is sound."""

from __future__ import annotations

import logging
import sqlite3
import time
from pathlib import Path

from common.sqlite_files import check_sqlite, open_sqlite, transaction
from owner.ledger_books import Books
from owner.ledger_checks import check_mark, check_shard, schema_version, sound
from owner.ledger_files import EMPTIED, Mark
from owner.ledger_reading import check_version, snapshot
from owner.ledger_rows import LedgerError
from owner.ledger_tables import SCHEMA_VERSION, as_time, create_tables, write_meta
from owner.ledger_upgrade import OLD_VERSION, check_old, upgrade

log = logging.getLogger("copriv.owner")


def start_ledger(
    path: Path, mark: Mark, *, owner: str, fingerprint: str
) -> tuple[sqlite3.Connection, Books]:
    """A connection to a ledger that may be charged, and its books.

    A new one is made, one of the version before upgraded; a ledger that is refused is left as
    it is, its log included.

    Args:
      path: The ledger's file, which this process holds.
      mark: How far the ledger had come.
      owner: Its owner's name, for a new ledger.
      fingerprint: Of the records that the budget belongs to.

    Raises:
      LedgerError: It is damaged, older than its mark, or of other records.
    """
    version, books = _looked_at(path, mark, fingerprint)
    check_sqlite(path)
    db = open_sqlite(path, any_thread=True)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        # A log that is written over from its start syncs twice as fast as one that grows.
        db.execute("PRAGMA wal_autocheckpoint = 256")
        db.execute("PRAGMA foreign_keys = ON")
        # Written at once: a disk without room is found before anything is promised.
        with transaction(db):
            if version is None:
                # A disk that is not mounted, or a path that was changed, looks the same.
                log.info("%s: a new ledger is made: nothing counts as spent of these records", path)
                create_tables(db)
                books.meta = {
                    "schema_version": SCHEMA_VERSION,
                    "owner": owner,
                    "shard_fingerprint": fingerprint,
                    "created": now(),
                }
            elif version == OLD_VERSION:
                log.info("%s: the ledger is upgraded to schema version %s", path, SCHEMA_VERSION)
                upgrade(db, path)
                books = sound(db, path, mark)
                check_mark(books, mark, path)
            books.meta |= {"last_opened": now()}
            write_meta(db, books.meta)
    except BaseException:
        db.close()
        raise
    return db, books


def _looked_at(path: Path, mark: Mark, fingerprint: str) -> tuple[str | None, Books]:
    """A ledger's version, None for a new one, and its books if it is of this version."""
    if path.stat().st_size == 0:
        return None, Books({})
    with snapshot(path) as db:
        if schema_version(db, path) is None:
            if mark:
                raise LedgerError(f"{path}: {EMPTIED}")
            return None, Books({})
        version = check_version(db, path)
        if version == OLD_VERSION:
            check_old(db, path)
            meta = dict(db.execute("SELECT key, value FROM meta"))
            check_shard(meta, path, fingerprint=fingerprint)
            return version, Books(meta)
        books = sound(db, path, mark)
    check_shard(books.meta, path, fingerprint=fingerprint)
    check_mark(books, mark, path)
    return version, books


def now() -> str:
    """The time, as the ledger writes it."""
    return as_time(time.time_ns() // 10**6)
