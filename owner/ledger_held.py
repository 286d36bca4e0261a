"""A ledger's files, held by one process, and transactions on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from common.files import real_path
from owner.ledger_books import Book
from owner.ledger_files import LedgerFiles
from owner.ledger_rows import LedgerError, explained
from owner.ledger_start import start_ledger, transaction

__all__ = ["HeldFile"]


class HeldFile:
    """A ledger's files in the hands of this process, and changes that are all or nothing.

    Args:
      path: The ledger's file.
      owner: The owner's name, for a new ledger.
      fingerprint: Of the records that the budget belongs to.

    Guarantees:
      * Nothing is changed in files that the next start may not find.
      * After a failure that could not be undone nothing is changed or told any more.

    Raises:
      LedgerError: The files cannot be used; the sentence says why and what to do.
    """

    def __init__(self, path: Path, *, owner: str, fingerprint: str) -> None:
        # Two names of one file are one ledger.
        self._path = path = real_path(path)
        self._unsound = self._over = False
        with explained(path), contextlib.ExitStack() as opened:
            self._files = LedgerFiles(path)
            # After the database: closing any handle of its files would drop SQLite's own locks.
            opened.callback(self._files.close)
            self._db, self._books = start_ledger(
                path, self._files.mark, owner=owner, fingerprint=fingerprint
            )
            opened.callback(self._db.close)
            self._log = self._files.adopt()
            # Never less than it was: a log that is not believed now is not to be believed later.
            self._files.write_mark(max(self._books.mark, self._files.mark))
            self._opened = opened.pop_all()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, on the disk when it ends."""
        with explained(self._path):
            self._check_usable()
            try:
                with transaction(self._db):
                    yield
            except BaseException:
                # If it is still open, this connection would read charges that are not durable, and
                # a retry would be given a response that was never charged.
                self._unsound = self._db.in_transaction
                raise

    def _keep(self, *books: Book) -> None:
        """Note a change that is on the disk, also beside it."""
        for book in books:
            self._books.keep(book)
        self._files.write_mark(self._books.mark)

    def _check_usable(self) -> None:
        """Refuse a connection or files that may not be those of the next start."""
        self._check_sound()
        self._files.check_in_place()

    def _check_sound(self) -> None:
        if self._over:
            raise LedgerError(f"{self._path}: the owner is stopping; ask again when it is back")
        if self._unsound:
            raise LedgerError(
                f"{self._path}: an earlier failure could not be undone; start the owner again"
            )

    def _changed(self) -> LedgerError:
        return LedgerError(
            f"{self._path}: the ledger was changed while in use by something else than this owner; "
            "restore it from a copy and start the owner again"
        )
