"""Charges that were made ahead and not given are taken back: at a start, a closing, and an end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from owner.ledger_ahead import Charged
from owner.ledger_books import Book
from owner.ledger_given import GIVEN
from owner.ledger_held import HeldLedger
from owner.ledger_tables import AccountRow, update_account, write_meta

log = logging.getLogger("copriv.owner")


class SettlingLedger(HeldLedger):
    """A ledger whose charges ahead are settled: written down as far as they were given.

    What it takes is said of :class:`owner.ledger.Ledger`.

    Guarantees:
      * What an earlier process left in the log stands in the ledger before anything is given.
      * The log knows of each change before the ledger has it, as long as anything in it is needed.
    """

    def __init__(self, path: Path, *, owner: str, fingerprint: str, block: int) -> None:
        super().__init__(path, owner=owner, fingerprint=fingerprint)
        self._block = block
        try:
            self._settle_before()
        except BaseException:
            self._opened.close()
            raise

    def _settle_before(self) -> None:
        """Write down what the log says that an earlier process gave, and need it no more.

        Also where it is not believed: what counts as spent is not to depend on a log any more.
        """
        found = [(book, self._account(book)) for book in self._books if not book.closed]
        if any(account.is_lost for _, account in found):
            log.warning(
                "%s%s: the log of what was given is missing, damaged or an old copy; what it may "
                "have noted is spent; after a crash leave it beside the ledger",
                self._path,
                GIVEN,
            )
        self._settle([book for book, account in found if account.begun or account.is_lost])
        self._books.given.clear()

    def _write(self, book: Book, before: Charged, row: AccountRow) -> bytes:
        """Write a study's account, within a transaction, if the disk says what we know."""
        checksum = update_account(
            self._db, row, book.study_checksum, before=before.row, checksum=before.checksum
        )
        if checksum is None:
            raise self._changed()
        return checksum

    def _settle(self, books: Sequence[Book], closed: str | None = None) -> None:
        """Write studies' accounts without what was charged ahead and not given.

        Of a study that is closed without a response only its row stays, and no text that was its
        alone.
        """
        if not books:
            return
        accounts: list[Charged] = []
        is_written = False
        try:
            with self._transaction():
                accounts, meta = [self._account(book) for book in books], self._books.meta
                if any(account.is_ahead for account in accounts):
                    meta = self._books.with_taken_back(sum(account.left for account in accounts))
                    write_meta(self._db, meta)
                settled = [
                    self._settled(book, account, closed)
                    for book, account in zip(books, accounts, strict=True)
                ]
                self._reach(settled, meta)
                is_written = True
        except BaseException:
            # A commit that failed may stand in SQLite's log: what it takes back must not be given.
            is_ahead = any(account.left for account in accounts)
            self._unsound = self._unsound or (is_written and is_ahead)
            raise
        for book in books:
            self._charged.pop(book.study.study_id, None)
        self._books.meta = meta
        self._keep(*settled)

    def _settled(self, book: Book, account: Charged, closed: str | None) -> Book:
        """Write one account so, within a transaction; returns its book."""
        row = account.settled
        if closed:
            # It is asked no more, so nothing is repeated.
            row = row._replace(closed=closed, responses=b"")
        settled = book.after(Charged(row, self._write(book, account, row)))
        for text in () if settled.texts else self._books.unneeded_after(book):
            self._db.execute("DELETE FROM texts WHERE digest = ?", (text,))
        return settled

    def _ahead(self) -> list[str]:
        """The studies that this process has charged ahead."""
        return [study_id for study_id, charged in self._charged.items() if charged.begun]

    def _reach(self, books: Sequence[Book], meta: dict[str, str]) -> None:
        """Have the log know of a change before it is made, where the log is needed."""
        if self._block == 1 and self._ahead():
            self._log.reach(self._books.generation_after(books, meta))

    def _make_room(self, count: int = 0, size: int = 0) -> None:
        """Have the log begin anew where it has no room for this many responses, or a change."""
        if not self._log.has_room(count, size):
            self._settle_all()
            self._log.restart()

    def _settle_all(self) -> None:
        """Write down what was given of all blocks."""
        self._settle([self._books.studies[study_id] for study_id in self._ahead()])
