"""The durable budget: what this shard has promised, spent and answered.

Every charge and its response are on the disk before the caller may send a byte: the charge in one
SQLite file, the response there or in a log beside it. Amounts are exact rationals kept as text;
counts are integers.
"""

from __future__ import annotations

import contextlib
import logging
import time
from fractions import Fraction
from pathlib import Path

from common.errors import OrderError
from common.terms import StudyTerms
from owner.account import Kept
from owner.ledger_ahead import Charged, charge_block, charge_next
from owner.ledger_books import Book
from owner.ledger_given import given_at_once
from owner.ledger_rows import LedgerError, explained, terms_to_text, text_digest
from owner.ledger_settling import SettlingLedger
from owner.ledger_start import now
from owner.ledger_tables import (
    AccountRow,
    StudyRow,
    charge_record,
    insert_account,
    insert_study,
    insert_text,
    write_meta,
)

log = logging.getLogger("copriv.owner")


class Ledger(SettlingLedger):
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
        super().__init__(path, owner=owner, fingerprint=fingerprint, block=block)
        # SQLite's count of what others wrote, when all was last looked at.
        self._version = -1
        # Bytes of the response that was charged last, or that a charge had no room for.
        self._size = 0

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

        Args:
          study_id: The study.
          sequence: The response's number, from 1.
          digest: SHA-256 of the query's model.
          response: The response's bytes.

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

    def try_again(self) -> None:
        """Write to a ledger that failed, as a charge would; nothing is charged.

        Raises:
          LedgerError: It cannot be written, or is not what this process knows.
        """
        if self.works:
            return
        for book in [each for each in self._books if not each.closed]:
            self._entry(book)
        count = given_at_once(self._size)
        self._make_room(count, self._size)
        meta = self._books.meta | {"last_opened": now()}
        with self._transaction():
            if self._block == 1:
                self._log.lengthen(count - 1, self._size)
            write_meta(self._db, meta)
        self._books.meta = meta
        log.info("%s: the ledger can be written again", self._path)

    def _give(self, book: Book, charged: Charged, record: bytes, response: bytes) -> None:
        """Give the next response that was charged before, which the next start must find."""
        study_id = book.study.study_id
        with self._used():
            self._check_sound()
            self._files.check_names()
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
                    self._unsound = True
                    raise
            self._charged[study_id] = gave
            self.works = True
        if self._block == 1:
            self._keep(after)

    def _check_unchanged(self) -> None:
        """Look again at the accounts that are charged ahead, if anybody else has written since."""
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            for study_id in self._charged:
                self._account(self._books.studies[study_id])
            self._version = version

    def _charge_next(self, study_id: str, record: bytes, response: bytes) -> None:
        """Charge the next response, and some after it that will be noted in the log."""
        size = self._size = len(response)
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
        # What was charged is spent, since nobody else knows what was given of it.
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
            self._check_sound()
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
