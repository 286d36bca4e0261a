"""The durable budget: what this shard has promised, spent and answered.

Every charge and its response are on the disk before the caller may send a byte: the charge in one
SQLite file, the response there or in a log beside it. Amounts are exact rationals kept as text;
counts are integers.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from common.errors import BudgetSpentError, OrderError
from common.privacy import in_short
from common.terms import StudyTerms
from owner.account import MOST_KEPT, Kept
from owner.ledger_ahead import Charged, charge_block, charge_next
from owner.ledger_books import Book
from owner.ledger_checks import read_account
from owner.ledger_given import GIVEN, given_at_once
from owner.ledger_held import HeldFile
from owner.ledger_rows import LedgerError, StudyEntry, explained, terms_to_text, text_digest
from owner.ledger_start import now
from owner.ledger_tables import (
    AccountRow,
    StudyRow,
    charge_record,
    insert_account,
    insert_study,
    insert_text,
    last_digests,
    update_account,
    write_meta,
)

__all__ = ["Ledger"]

log = logging.getLogger("copriv.owner")


class Ledger(HeldFile):
    """The open ledger of one shard; only one process at a time may hold it.

    Args:
      path: Its file.
      owner: The owner's name, for a new ledger.
      fingerprint: Of the records that the budget belongs to.
      block: How many responses are charged at once and noted nowhere, 2 to 64; 1 to have each
        response on the disk before it leaves.

    Guarantees:
      * ``charge`` returns only when the charge is on the disk; with ``block = 1`` also the
        response. In larger blocks the response alone is lost by a crash, and never given again.
      * A study never gets more responses than promised, whatever happens to the process.
      * What is read is what this process last wrote or checked, or nothing is read at all.
      * A ledger that is no longer in the files of its name takes no charge.
      * A ledger of another shard, a damaged one, one that is older than its marks, one that cannot
        be written and one held by another process are refused.

    Raises:
      LedgerError: The file cannot be used; the sentence says why and what to do.
    """

    def __init__(self, path: Path, *, owner: str, fingerprint: str, block: int = 1) -> None:
        super().__init__(path, owner=owner, fingerprint=fingerprint)
        self._block = block
        self._charged: dict[str, Charged] = {}
        # SQLite's count of what others wrote, when all was last looked at.
        self._version = -1
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
                "have noted is spent",
                self._path,
                GIVEN,
            )
        self._settle([book for book, account in found if account.begun or account.is_lost])
        self._books.given.clear()

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
        known, is_written = self._ahead(), False
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
            is_ahead = any(charged.left for charged in known.values())
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
            row = replace(row, closed=closed, responses=b"")
        settled = book.after(Charged(row, self._write(book, account, row)))
        for text in () if settled.texts else self._books.unneeded_after(book):
            self._db.execute("DELETE FROM texts WHERE digest = ?", (text,))
        return settled

    def _ahead(self) -> dict[str, Charged]:
        """Of the studies that are charged ahead: what was given."""
        return {name: charged for name, charged in self._charged.items() if charged.begun}

    def _reach(self, books: Sequence[Book], meta: dict[str, str]) -> None:
        """Have the log know of a change before it is made, where the log is needed."""
        if self._block == 1 and self._ahead():
            self._log.reach(self._books.generation_after(books, meta))

    def _make_room(self, count: int = 0, size: int = 0) -> None:
        """Have the log begin anew where it has no room for so many responses, or a change."""
        if not self._log.has_room(count, size):
            self._settle_all()
            self._log.restart()

    def _settle_all(self) -> None:
        """Write down what was given of all blocks."""
        self._settle([self._books.studies[study_id] for study_id in self._ahead()])

    def _text(self, digest: str) -> str:
        """The text of a digest."""
        with explained(self._path):
            self._check_usable()
            row = self._db.execute("SELECT text FROM texts WHERE digest = ?", (digest,)).fetchone()
            if row is not None and text_digest(row[0]) == digest:
                return str(row[0])
        raise self._changed()

    def _entry(self, book: Book) -> StudyEntry:
        with explained(self._path):
            self._check_usable()
            account = self._account(book).settled
            digests = last_digests(self._db, account, MOST_KEPT)
        if digests is None:
            raise self._changed()
        return book.entry(account, self._text, digests)

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
                f"the study asks for epsilon {in_short(epsilon)}, but "
                f"{in_short(max(left, Fraction(0)))} of the lifetime budget is left; ask for less"
            )

    def open_study(
        self,
        terms: StudyTerms,
        *,
        learner: str,
        noise_scale: float,
        insecure_noise: bool,
        lifetime: Fraction,
    ) -> None:
        """Reserve a study's epsilon out of the lifetime budget.

        Raises:
          BudgetSpentError: The lifetime budget has not so much left; nothing is reserved.
          LedgerError: It could not be written, or the study is there already.
        """
        if terms.study_id in self._books.studies:
            raise LedgerError(f"study {terms.study_id}: it is in the ledger; give a new name")
        number = len(self._books.studies) + 1
        study = _study_row(number, terms, learner, noise_scale, insecure_noise=insecure_noise)
        account = AccountRow(study.number, terms.responses)
        self._make_room()
        with self._transaction():
            self.check_left(terms.epsilon, lifetime=lifetime)
            insert_text(self._db, terms_to_text(terms))
            insert_text(self._db, terms.feature_map)
            checksum = insert_study(self._db, study, self._books.last_checksum)
            opened = Charged(account, insert_account(self._db, account, checksum))
            book = Book.of(study, checksum, opened)
            self._reach([book], self._books.meta)
        self._keep(book)

    def charge(self, *, study_id: str, sequence: int, digest: str, response: bytes) -> None:
        """Charge one response and keep it for a retry; the charge is synced to the disk.

        Raises:
          OrderError: The number is not the next one, all were given, or the study is closed.
          LedgerError: It could not be written: nothing is charged, nothing may be released.
        """
        book, charged = self._books.studies.get(study_id), self._charged.get(study_id)
        # The owner's next_step has asked this before; here nothing can pass it.
        given = charged.given if charged else book.answered if book else 0
        if book is None or book.closed or not sequence == given + 1 <= book.promised:
            raise OrderError(f"sequence number {sequence} is not the next one of this study")
        record = charge_record(digest, time.time_ns() // 10**6)
        if charged is not None and charged.left:
            self._give(book, charged, record, response)
        elif self._block == 1:
            self._charge_next(study_id, record, response)
        else:
            self._charge_block(book, record)
            self._give(book, self._charged[study_id], record, response)

    def _give(self, book: Book, charged: Charged, record: bytes, response: bytes) -> None:
        """Give the next response that was charged before, which the next start must find."""
        study_id = book.study.study_id
        with explained(self._path):
            self._check_sound()
            self._files.check_names()
            if self._block == 1:
                self._check_unchanged()
                try:
                    self._log.give(charged.checksum, record, response)
                except BaseException:
                    # Whether it is there, only the disk can tell.
                    self._unsound = True
                    raise
        self._charged[study_id] = charged = charged.gave(record, response)
        if self._block == 1:
            self._keep(book.after(charged))

    def _check_unchanged(self) -> None:
        """Look again at the accounts that are charged ahead, if anybody else has written since."""
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            for study_id in self._charged:
                self._account(self._books.studies[study_id])
            self._version = version

    def _charge_next(self, study_id: str, record: bytes, response: bytes) -> None:
        """Charge the next response, and some after it that will be noted in the log."""
        size = len(response)
        count = given_at_once(size)
        self._make_room(count, size)
        book = self._books.studies[study_id]
        with self._transaction():
            before = self._charged.get(study_id) or self._account(book)
            row, begun = charge_next(self._db, before.settled, record, response, count=count)
            checksum = self._write(book, before, row)
            charged = Charged(row, checksum, begun, responses=Kept(row.responses))
            after = book.after(charged)
            if begun:
                generation = self._books.generation_after([after], self._books.meta)
                self._log.begin(checksum, begun, size, generation=generation)
            else:
                self._reach([after], self._books.meta)
        if begun:
            self._charged[study_id] = charged
        else:
            # All of it stands in the ledger.
            self._charged.pop(study_id, None)
        self._keep(after)

    def _charge_block(self, book: Book, record: bytes) -> None:
        """Charge a block of responses that will be noted nowhere."""
        study_id = book.study.study_id
        with self._transaction():
            before = self._charged.get(study_id) or self._account(book)
            settled = before.settled
            row, begun = charge_block(self._db, settled, record, count=self._block)
            checksum = self._write(book, before, row)
        self._charged[study_id] = Charged(row, checksum, begun, responses=Kept(settled.responses))
        # What was charged is spent, as nobody else can tell what was given of it.
        self._keep(book.after(Charged(row, checksum)))

    def close_study(self, study_id: str) -> None:
        """Close a study; what it did not use returns to the lifetime budget."""
        book = self._books.studies.get(study_id)
        if book is not None and not book.closed:
            self._make_room()
            self._settle([self._books.studies[study_id]], now())

    def close(self) -> None:
        """Write down what was given of blocks, and release the files."""
        # What cannot be written stays as it is: in the log, or spent.
        with contextlib.suppress(LedgerError), explained(self._path):
            self._settle_all()
            self._files.drop_log()
        # From here on nothing may be given of what was taken back.
        self._over = True
        self._charged.clear()
        self._opened.close()


def _study_row(
    number: int, terms: StudyTerms, learner: str, noise_scale: float, *, insecure_noise: bool
) -> StudyRow:
    """The row of a study that is opened now."""
    return StudyRow(
        number=number,
        study_id=terms.study_id,
        learner=learner,
        epsilon=str(terms.epsilon),
        noise_scale=float(noise_scale),
        insecure_noise=int(insecure_noise),
        opened=now(),
        terms=text_digest(terms_to_text(terms)),
        feature_map=text_digest(terms.feature_map),
    )
