"""SQLite files that may have come from a stranger, with what lies beside them."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from common.files import open_regular

UNTOLD = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
# What a rollback journal begins with, and ends with where it names another file.
MAGIC = bytes.fromhex("d9d505f920a163d7")
# A response has at most 96 MB, a feature map 64; SQLite's own bound is a gigabyte.
LARGEST_ROW = 2**27


def check_sqlite(path: Path) -> None:
    """Refuse a SQLite file that is a link, or whose rollback journal names another file.

    Whoever opens a database to write first undoes what its journal says. Where that ends in the
    name of a file, as of a transaction over several databases, SQLite before 3.53.3 then deletes
    that file. What this program writes is one database each, and ends so never.

    Args:
      path: The database, which is about to be opened to be written; where a link to it is meant,
        what that leads to.

    Raises:
      sqlite3.DatabaseError: It is a link, there is such a journal, or one that cannot be read.

    References: section 3 of SQLite's file format, "The Rollback Journal"; "super-journal".
    """
    if path.is_symlink():
        raise sqlite3.DatabaseError("it is a link, which may lead to any database")
    journal = path.with_name(f"{path.name}-journal")
    try:
        with open_regular(journal) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - len(MAGIC)))
            names_another = file.read(len(MAGIC)) == MAGIC
    except FileNotFoundError:
        return
    except OSError as error:
        raise sqlite3.DatabaseError(f"{journal.name} cannot be read: {error.strerror}") from None
    if names_another:
        raise sqlite3.DatabaseError(
            f"{journal.name} beside it names another file to be deleted, which is none of ours"
        )


def open_sqlite(
    path: Path | str, *, uri: bool = False, any_thread: bool = False
) -> sqlite3.Connection:
    """A connection, without transactions of its own, that reads and writes no larger row than ours.

    A value takes memory several times over; a larger one raises a ``sqlite3.DataError`` instead. A
    view of a few bytes may have very many of a gigabyte: sorting them fills the disk, and SQLite
    sees no signal before its next cell.

    Args:
      path: The database.
      uri: Whether that is a URI.
      any_thread: Whether other threads may use it.

    Raises:
      sqlite3.Error: It cannot be opened.
    """
    db = sqlite3.connect(path, isolation_level=None, uri=uri, check_same_thread=not any_thread)
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_ROW)
    return db


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, on the disk when it ends."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # A failed COMMIT may have rolled back by itself.
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def told_by_system(error: Exception, path: Path) -> Exception:
    """What the system says of a file that SQLite could not make beside a database, or the error.

    SQLite does not say why, such as that there is no room for one more file, or that the folder may
    not be written: a trial shows it.
    """
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in UNTOLD:
        try:
            tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as told:
            return OSError(told.errno, told.strerror, str(path.parent))
    return error
