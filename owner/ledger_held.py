"""A ledger that this process holds: reading it, and transactions on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from common.errors import BudgetSpentError
from common.files import real_path
from common.privacy import in_short
from owner.account import MOST_KEPT
from owner.ledger_ahead import Charged
from owner.ledger_books import Book
from owner.ledger_checks import read_account
from owner.ledger_files import LedgerFiles
from owner.ledger_rows import LedgerDiskError, LedgerError, StudyEntry, explained, text_digest
from owner.ledger_start import start_ledger, transaction
from owner.ledger_tables import last_digests


class HeldLedger:
    """A ledger that this process holds: its studies, its budget, and all-or-nothing changes.

    What it takes, and raises, is said of :class:`owner.ledger.Ledger`.

    Guarantees:
      * Nothing is changed in files that the next start may not find.
      * What is read is what this process last wrote or checked, or nothing is read at all.
      * After a failure that could not be undone nothing is changed or read any more.
    """

    def __init__(self, path: Path, *, owner: str, fingerprint: str) -> None:
        # Two names of one file are one ledger.
        self._path = path = real_path(path)
        self._unsound = self._over = False
        # Whether it did not fail when it was last used: what failed is made good by a write only.
        self.works = True
        # Why only another start can use it, if that is so.
        self.fault: LedgerError | None = None
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
        # Accounts that this process has charged, by study.
        self._charged: dict[str, Charged] = {}

    def study(self, study_id: str) -> StudyEntry | None:
        """One study, or None."""
        self._check_sound()
        book = self._books.studies.get(study_id)
        return None if book is None else self._entry(book)

    def studies(self) -> Iterator[StudyEntry]:
        """All studies, oldest first."""
        yield from map(self._entry, list(self._books))

    @property
    def responses(self) -> int:
        """Responses ever charged, over all studies."""
        return self._books.responses

    def epsilon_held(self) -> Fraction:
        """What all studies together take of the lifetime budget."""
        self._check_sound()
        return self._books.held

    def epsilon_spent(self) -> Fraction:
        """What all responses ever given have spent of the lifetime budget."""
        self._check_sound()
        return self._books.spent()

    def check_left(self, epsilon: Fraction, *, lifetime: Fraction) -> None:
        """Refuse a study that the lifetime budget has no room for.

        Raises:
          BudgetSpentError: It has not so much left.
        """
        left = lifetime - self.epsilon_held()
        if epsilon > left:
            raise BudgetSpentError(
                f"the study asks for epsilon {in_short(epsilon, up=True)}, but "
                f"{in_short(max(left, Fraction(0)))} of the lifetime budget is left; ask for less"
            )

    def _text(self, digest: str) -> str:
        """The text of a digest."""
        with self._used():
            self._check_usable()
            row = self._db.execute("SELECT text FROM texts WHERE digest = ?", (digest,)).fetchone()
            if row is not None and text_digest(row[0]) == digest:
                return str(row[0])
            raise self._changed()

    def _entry(self, book: Book) -> StudyEntry:
        with self._used():
            self._check_usable()
            account = self._account(book).settled
            digests = last_digests(self._db, account, MOST_KEPT)
            if digests is None:
                raise self._changed()
        return book.entry(account, self._text, digests)

    def _account(self, book: Book) -> Charged:
        """A study's account, if the disk still says what this process knows."""
        values = self._db.execute(
            "SELECT * FROM accounts WHERE number = ?", (book.study.number,)
        ).fetchone()
        if values is not None:
            row, checksum, whole = read_account(values, book.study_checksum)
            if whole and checksum == book.account_checksum:
                found = Charged.of(row, checksum, self._books.given.get(checksum))
                return self._charged.get(book.study.study_id, found)
        raise self._changed()

    @contextlib.contextmanager
    def _used(self) -> Iterator[None]:
        """One use of the files, which may fail."""
        try:
            with explained(self._path):
                yield
        except LedgerError as error:
            self.works = False
            if self._unsound and self.fault is None:
                self.fault = LedgerDiskError(
                    f"{error}; this owner ends: only a new start sees what is on the disk"
                )
            raise

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, on the disk when it ends."""
        with self._used():
            self._check_usable()
            try:
                with transaction(self._db):
                    yield
                self.works = True
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
