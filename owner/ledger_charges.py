"""Responses that are charged ahead of their queries: charged, given, and taken back.

Those that were not given are taken back at a start, a closing, and an end.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from owner.account import Kept
from owner.ledger_ahead import Charged, charge_block, charge_next
from owner.ledger_books import Book
from owner.ledger_given import GIVEN, given_at_once
from owner.ledger_held import HeldLedger
from owner.ledger_start import now
from owner.ledger_tables import write_meta

log = logging.getLogger("copriv.owner")


class Charges:
    """What this process has charged of a ledger's studies, given or not.

    Args:
      held: The ledger.
      block: How many responses are charged at once and noted nowhere; 1 to note each in the log.

    Guarantees:
      * What an earlier process left in the log stands in the ledger before anything is given.
      * The log knows of each change before the ledger has it, as long as anything in it is needed.
    """

    def __init__(self, held: HeldLedger, *, block: int) -> None:
        self._held, self._books, self._log = held, held.books, held.log
        self._block = block
        # Accounts that this process has charged, by study.
        self._charged: dict[str, Charged] = {}
        # SQLite's count of what others wrote, when all was last looked at.
        self._version = -1
        # Bytes of the response that was charged last, or that a charge had no room for.
        self._size = 0
        self._settle_before()

    def account(self, book: Book) -> Charged:
        """A study's account, if the disk still says what this process knows."""
        row, checksum = self._held.account(book)
        known = Charged.of(row, checksum, self._books.given.get(checksum))
        return self._charged.get(book.study.study_id, known)

    def is_next(self, book: Book, sequence: int) -> bool:
        """Whether a study's next response has this number."""
        charged = self._charged.get(book.study.study_id)
        given = charged.given if charged else book.answered
        return sequence == given + 1 <= book.promised

    def charge(self, book: Book, record: bytes, response: bytes) -> None:
        """Charge the next response of a study, unless it was charged before, and give it."""
        charged = self._charged.get(book.study.study_id)
        if charged is None or not charged.left:
            if self._block == 1:
                self._charge_next(book.study.study_id, record, response)
                return
            charged = self._charge_block(book, record)
        self._give(book, charged, record, response)

    def try_again(self) -> None:
        """Write to a ledger that failed, as a charge would; nothing is charged."""
        count = given_at_once(self._size)
        self.make_room(count, self._size)
        meta = self._books.meta | {"last_opened": now()}
        with self._held.transaction():
            if self._block == 1:
                self._log.lengthen(count - 1, self._size)
            write_meta(self._held.db, meta)
        self._books.meta = meta

    def _ahead(self) -> list[str]:
        """The studies that this process has charged ahead."""
        return [study_id for study_id, charged in self._charged.items() if charged.begun]

    def reach(self, books: Sequence[Book], meta: dict[str, str]) -> None:
        """Have the log know of a change before it is made, where the log is needed."""
        if self._block == 1 and self._ahead():
            self._log.reach(self._books.generation_after(books, meta))

    def make_room(self, count: int = 0, size: int = 0) -> None:
        """Have the log begin anew where it has no room for this many responses, or a change."""
        if not self._log.has_room(count, size):
            self.settle_all()
            self._log.restart()

    def settle_all(self) -> None:
        """Write down what was given of all blocks."""
        self.settle([self._books.studies[study_id] for study_id in self._ahead()])

    def settle(self, books: Sequence[Book], closed: str | None = None) -> None:
        """Write studies' accounts without what was charged ahead and not given.

        Of a study that is closed without a response only its row stays, and no text that was its
        alone.
        """
        if not books:
            return
        accounts: list[Charged] = []
        is_written = False
        try:
            with self._held.transaction():
                accounts, meta = [self.account(book) for book in books], self._books.meta
                if any(account.is_ahead for account in accounts):
                    meta = self._books.with_taken_back(sum(account.left for account in accounts))
                    write_meta(self._held.db, meta)
                settled = [
                    self._settled(book, account, closed)
                    for book, account in zip(books, accounts, strict=True)
                ]
                self.reach(settled, meta)
                is_written = True
        except BaseException:
            # A commit that failed may stand in SQLite's log: what it takes back must not be given.
            if is_written and any(account.left for account in accounts):
                self._held.is_unsound = True
            raise
        for book in books:
            self._charged.pop(book.study.study_id, None)
        self._books.meta = meta
        self._held.keep(*settled)

    def _settled(self, book: Book, account: Charged, closed: str | None) -> Book:
        """Write one account so, within a transaction; returns its book."""
        row = account.settled
        if closed:
            # It is asked no more, so nothing is repeated.
            row = row._replace(closed=closed, responses=b"")
        settled = book.after(Charged(row, self._held.write_account(book, account, row)))
        for text in () if settled.texts else self._books.unneeded_after(book):
            self._held.db.execute("DELETE FROM texts WHERE digest = ?", (text,))
        return settled

    def _settle_before(self) -> None:
        """Write down what the log says that an earlier process gave, and need it no more.

        Also where it is not believed: what counts as spent is not to depend on a log any more.
        """
        found = [(book, self.account(book)) for book in self._books if not book.closed]
        if any(account.is_lost for _, account in found):
            log.warning(
                "%s%s: the log of what was given is missing, damaged or an old copy; what it may "
                "have noted is spent; after a crash leave it beside the ledger",
                self._held.path,
                GIVEN,
            )
        self.settle([book for book, account in found if account.begun or account.is_lost])
        self._books.given.clear()

    def _give(self, book: Book, charged: Charged, record: bytes, response: bytes) -> None:
        """Give the next response that was charged before, which the next start must find."""
        with self._held.used():
            self._held.check_sound()
            self._held.files.check_names()
            # Before it is noted: a failure behind that would leave it noted and not known here, and
            # its number would be answered again.
            gave = charged.gave(record, response)
            if self._block == 1:
                after = book.after(gave)
                self._check_unchanged()
                try:
                    self._log.give(charged.checksum, record, response)
                except BaseException:
                    # Whether it is there, only the disk can show.
                    self._held.is_unsound = True
                    raise
            self._charged[book.study.study_id] = gave
            self._held.works = True
        if self._block == 1:
            self._held.keep(after)

    def _check_unchanged(self) -> None:
        """Look again at the accounts that are charged ahead, if anybody else has written since."""
        (version,) = self._held.db.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            for study_id in self._charged:
                self.account(self._books.studies[study_id])
            self._version = version

    def _charge_next(self, study_id: str, record: bytes, response: bytes) -> None:
        """Charge the next response, and some after it that will be noted in the log."""
        size = self._size = len(response)
        count = given_at_once(size)
        self.make_room(count, size)
        book = self._books.studies[study_id]
        with self._held.transaction():
            before = self._charged.get(study_id) or self.account(book)
            row, begun = charge_next(self._held.db, before.settled, record, response, count=count)
            checksum = self._held.write_account(book, before, row)
            charged = Charged(row, checksum, begun, responses=Kept(row.responses))
            after = book.after(charged)
            if begun:
                generation = self._books.generation_after([after], self._books.meta)
                self._log.begin(checksum, begun, size, generation=generation)
            else:
                self.reach([after], self._books.meta)
        if begun:
            self._charged[study_id] = charged
        else:
            # All of it stands in the ledger.
            self._charged.pop(study_id, None)
        self._held.keep(after)

    def _charge_block(self, book: Book, record: bytes) -> Charged:
        """Charge a block of responses that will be noted nowhere."""
        with self._held.transaction():
            before = self._charged.get(book.study.study_id) or self.account(book)
            settled = before.settled
            row, begun = charge_block(self._held.db, settled, record, count=self._block)
            checksum = self._held.write_account(book, before, row)
        charged = Charged(row, checksum, begun, responses=Kept(settled.responses))
        self._charged[book.study.study_id] = charged
        # What was charged is spent, since nobody else knows what was given of it.
        self._held.keep(book.after(Charged(row, checksum)))
        return charged
