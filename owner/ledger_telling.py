"""What a ledger that is held tells: its studies, and what of the budget is held and spent."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from common.errors import BudgetSpentError
from common.privacy import in_short
from owner.account import MOST_KEPT
from owner.ledger_ahead import Charged
from owner.ledger_books import Book
from owner.ledger_checks import read_account
from owner.ledger_held import HeldFile
from owner.ledger_rows import StudyEntry, explained, text_digest
from owner.ledger_tables import last_digests

__all__ = ["TellingLedger"]


class TellingLedger(HeldFile):
    """A ledger that this process holds, and what it tells.

    Guarantees:
      * What is told is what this process last wrote or checked, or nothing is told at all.
    """

    def __init__(self, path: Path, *, owner: str, fingerprint: str) -> None:
        super().__init__(path, owner=owner, fingerprint=fingerprint)
        # Of studies that were charged by this process.
        self._charged: dict[str, Charged] = {}

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
                f"the study asks for epsilon {in_short(epsilon, up=True)}, but "
                f"{in_short(max(left, Fraction(0)))} of the lifetime budget is left; ask for less"
            )

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
