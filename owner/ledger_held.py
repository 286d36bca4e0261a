"""A ledger that this process holds: its files, and all-or-nothing changes of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from common.files import real_path
from common.sqlite_files import transaction
from owner.ledger_ahead import Charged
from owner.ledger_books import Book
from owner.ledger_checks import read_account
from owner.ledger_files import LedgerFiles
from owner.ledger_rows import LedgerDiskError, LedgerError, explained, text_digest
from owner.ledger_start import start_ledger
from owner.ledger_tables import AccountRow, update_account


class HeldLedger:
    """The files of a ledger, and the books of what stands in them.

    What it takes, and raises, is said of :class:`owner.ledger.Ledger`.

    Guarantees:
      * Nothing is changed in files that the next start may not find.
      * What is read is what this process last wrote or checked, or nothing is read at all.
      * After a failure that could not be undone nothing is changed or read any more.
    """

    def __init__(self, path: Path, *, owner: str, fingerprint: str) -> None:
        # Two names of one file are one ledger.
        self.path = path = real_path(path)
        self.is_unsound = self._is_over = False
        # Whether it did not fail when it was last used: what failed is made good by a write only.
        self.works = True
        # Why only another start can use it, if that is so.
        self.fault: LedgerError | None = None
        with explained(path), contextlib.ExitStack() as opened:
            self.files = LedgerFiles(path)
            # After the database: closing any handle of its files would drop SQLite's own locks.
            opened.callback(self.files.close)
            self.db, self.books = start_ledger(
                path, self.files.mark, owner=owner, fingerprint=fingerprint
            )
            opened.callback(self.db.close)
            self.log = self.files.adopt()
            # Never less than it was: a log that is not believed now is not to be believed later.
            self.files.write_mark(max(self.books.mark, self.files.mark))
            self._opened = opened.pop_all()

    def text(self, digest: str) -> str:
        """The text of a digest."""
        with self.used():
            self.check_usable()
            row = self.db.execute("SELECT text FROM texts WHERE digest = ?", (digest,)).fetchone()
            if row is not None and text_digest(row[0]) == digest:
                return str(row[0])
            raise self.changed()

    def account(self, book: Book) -> tuple[AccountRow, bytes]:
        """A study's account and its checksum, if the disk still says what this process knows."""
        values = self.db.execute(
            "SELECT * FROM accounts WHERE number = ?", (book.study.number,)
        ).fetchone()
        if values is not None:
            row, checksum, whole = read_account(values, book.study_checksum)
            if whole and checksum == book.account_checksum:
                return row, checksum
        raise self.changed()

    def write_account(self, book: Book, before: Charged, row: AccountRow) -> bytes:
        """Write a study's account, within a transaction, if the disk still says what it was.

        Returns:
          Its checksum.
        """
        checksum = update_account(
            self.db, row, book.study_checksum, before=before.row, checksum=before.checksum
        )
        if checksum is None:
            raise self.changed()
        return checksum

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """One use of the files, which may fail."""
        try:
            with explained(self.path):
                yield
        except LedgerError as error:
            self.works = False
            if self.is_unsound and self.fault is None:
                self.fault = LedgerDiskError(
                    f"{error}; this owner ends: only a new start sees what is on the disk"
                )
            raise

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, on the disk when it ends."""
        with self.used():
            self.check_usable()
            try:
                with transaction(self.db):
                    yield
                self.works = True
            except BaseException:
                # If it is still open, this connection would read charges that are not durable, and
                # a retry would be given a response that was never charged.
                self.is_unsound = self.db.in_transaction
                raise

    def keep(self, *books: Book) -> None:
        """Note a change that is on the disk, also beside it."""
        for book in books:
            self.books.keep(book)
        self.files.write_mark(self.books.mark)

    def check_usable(self) -> None:
        """Refuse a connection or files that may not be those of the next start."""
        self.check_sound()
        self.files.check_in_place()

    def check_sound(self) -> None:
        """Refuse a ledger that is closed, or of which this process does not know what it says."""
        if self._is_over:
            raise LedgerError(f"{self.path}: the owner is stopping; ask again when it is back")
        if self.is_unsound:
            raise LedgerDiskError(
                f"{self.path}: an earlier failure could not be undone; start the owner again"
            )

    def changed(self) -> LedgerError:
        """The error where the disk says other than what this process knows."""
        return LedgerError(
            f"{self.path}: the ledger was changed while in use by something else than this owner; "
            "restore it from a copy and start the owner again"
        )

    def close(self) -> None:
        """Release the files; nothing is read or changed any more."""
        self._is_over = True
        self._opened.close()
