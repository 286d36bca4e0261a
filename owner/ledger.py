"""The durable budget: what this shard has promised, spent and answered.

Every charge and its response are on the disk before the caller may send a byte: the charge in one
SQLite file, the response there or in a log beside it. Amounts are exact rationals kept as text;
counts are integers.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from common.errors import BudgetSpentError, OrderError
from common.privacy import in_short
from common.terms import StudyTerms
from owner.account import MOST_KEPT
from owner.ledger_ahead import Charged
from owner.ledger_books import Book
from owner.ledger_charges import Charges
from owner.ledger_held import HeldLedger
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
)

log = logging.getLogger("copriv.owner")


class Ledger:
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
        self._held = HeldLedger(path, owner=owner, fingerprint=fingerprint)
        self._books = self._held.books
        try:
            self._charges = Charges(self._held, block=block)
        except BaseException:
            self._held.close()
            raise

    @property
    def works(self) -> bool:
        """Whether it did not fail when it was last used."""
        return self._held.works

    @property
    def fault(self) -> LedgerError | None:
        """Why only another start can use it, if that is so."""
        return self._held.fault

    def study(self, study_id: str) -> StudyEntry | None:
        """One study, or None."""
        self._held.check_sound()
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
        self._held.check_sound()
        return self._books.held

    def epsilon_spent(self) -> Fraction:
        """What all responses ever given have spent of the lifetime budget."""
        self._held.check_sound()
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

    def _entry(self, book: Book) -> StudyEntry:
        """A study's book as a typed record, if the disk agrees."""
        with self._held.used():
            self._held.check_usable()
            account = self._charges.account(book).settled
            digests = last_digests(self._held.db, account, MOST_KEPT)
            if digests is None:
                raise self._held.changed()
        return book.entry(account, self._held.text, digests)

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

        Args:
          terms: The agreed terms.
          learner: Who enrolled.
          noise_scale: The scale b that was promised, in gradient units.
          insecure_noise: Whether the noise comes from a seed.
          lifetime: The most that the records ever spend.

        Raises:
          BudgetSpentError: The lifetime budget has not so much left; nothing is reserved.
          LedgerError: It could not be written, or the study is there already.
        """
        if terms.study_id in self._books.studies:
            raise LedgerError(f"study {terms.study_id}: it is in the ledger; give a new name")
        number = len(self._books.studies) + 1
        study = _study_row(number, terms, learner, noise_scale, insecure_noise=insecure_noise)
        account = AccountRow(study.number, terms.responses)
        self._charges.make_room()
        with self._held.transaction():
            self.check_left(terms.epsilon, lifetime=lifetime)
            insert_text(self._held.db, terms_to_text(terms))
            insert_text(self._held.db, terms.feature_map)
            checksum = insert_study(self._held.db, study, self._books.last_checksum)
            opened = Charged(account, insert_account(self._held.db, account, checksum))
            book = Book.of(study, checksum, opened)
            self._charges.reach([book], self._books.meta)
        self._held.keep(book)

    def charge(self, *, study_id: str, sequence: int, digest: str, response: bytes) -> None:
        """Charge one response and keep it for a retry; the charge is synced to the disk.

        Args:
          study_id: The study.
          sequence: The response's number, from 1.
          digest: SHA-256 of the query's model.
          response: The response's bytes.

        Raises:
          OrderError: The number is not the next one, all were given, or the study is closed.
          LedgerError: It could not be written: nothing is charged, nothing may be released.
        """
        book = self._books.studies.get(study_id)
        # The owner's next_step has asked this before; here nothing can pass it.
        if book is None or book.closed or not self._charges.is_next(book, sequence):
            raise OrderError(f"sequence number {sequence} is not the next one of this study")
        self._charges.charge(book, charge_record(digest, time.time_ns() // 10**6), response)

    def try_again(self) -> None:
        """Write to a ledger that failed, as a charge would; nothing is charged.

        Raises:
          LedgerError: It cannot be written, or is not what this process knows.
        """
        if self.works:
            return
        for book in [each for each in self._books if not each.closed]:
            self._entry(book)
        self._charges.try_again()
        log.info("%s: the ledger can be written again", self._held.path)

    def close_study(self, study_id: str) -> None:
        """Close a study; what it did not use returns to the lifetime budget."""
        book = self._books.studies.get(study_id)
        if book is not None and not book.closed:
            self._charges.make_room()
            self._charges.settle([self._books.studies[study_id]], now())

    def close(self) -> None:
        """Write down what was given of blocks, and release the files."""
        # What cannot be written stays as it is: in the log, or spent.
        with contextlib.suppress(LedgerError), explained(self._held.path):
            self._held.check_sound()
            self._charges.settle_all()
            self._held.files.drop_log()
        # From here on nothing may be given of what was taken back.
        self._held.close()


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
