"""What a process knows of the ledger it holds: every study's small numbers, in memory.

Read and checked once when the ledger is opened; from then on the disk must agree with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from common.privacy import exact_sum
from owner.account import Account
from owner.ledger_rows import StudyEntry
from owner.ledger_tables import TAKEN_BACK, AccountRow, StudyRow

__all__ = ["Book", "Books"]


@dataclass(frozen=True, slots=True)
class Book:
    """One study: its row, what its account said last, and both rows' checksums."""

    study: StudyRow
    study_checksum: bytes
    epsilon: Fraction
    promised: int
    answered: int
    closed: bool
    account_checksum: bytes

    @classmethod
    def of(
        cls, study: StudyRow, study_checksum: bytes, account: AccountRow, account_checksum: bytes
    ) -> Book:
        """The book of two rows."""
        return cls(
            study,
            study_checksum,
            Fraction(study.epsilon),
            account.promised,
            account.answered,
            account.closed is not None,
            account_checksum,
        )

    def after(self, account: AccountRow, checksum: bytes) -> Book:
        """The book once the study's account is this row."""
        return Book(
            self.study,
            self.study_checksum,
            self.epsilon,
            self.promised,
            account.answered,
            account.closed is not None,
            checksum,
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """Digests of the texts that the study still needs."""
        if self.closed and not self.answered:
            return ()
        return self.study.terms, self.study.feature_map

    @property
    def spent(self) -> Fraction:
        """What the responses given so far have spent."""
        return self.epsilon * self.answered / self.promised

    @property
    def held(self) -> Fraction:
        """What the study takes of the lifetime budget."""
        return self.spent if self.closed else self.epsilon

    @property
    def generation(self) -> int:
        """How many changes of the ledger the study is."""
        return 1 + self.answered + self.closed

    def entry(
        self,
        account: AccountRow,
        read_text: Callable[[str], str],
        digests: tuple[str, ...] = (),
    ) -> StudyEntry:
        """The study as a typed record; its terms are read now, its feature map when asked for.

        Args:
          account: Its account.
          read_text: Reads the text of a digest.
          digests: Of its last queries, for who answers more.
        """
        return StudyEntry(
            study_id=self.study.study_id,
            learner=self.study.learner,
            terms=read_text(self.study.terms) if self.texts else "",
            terms_digest=self.study.terms,
            read_text=read_text,
            epsilon=self.epsilon,
            noise_scale=self.study.noise_scale,
            insecure_noise=bool(self.study.insecure_noise),
            opened=self.study.opened,
            closed=account.closed,
            account=Account(
                promised=account.promised,
                answered=account.answered,
                digests=digests,
                responses=account.responses,
                closed=account.closed is not None,
            ),
        )


@dataclass
class Books:
    """All studies, oldest first, and sums over them.

    ``generation`` counts studies opened, responses charged and studies closed, and once more each
    response that was charged ahead and taken back. So it never goes back, and a ledger of the same
    generation is the same ledger.
    """

    meta: dict[str, str]
    studies: dict[str, Book] = field(default_factory=dict)
    last_checksum: bytes = b""
    changes: int = 0
    responses: int = 0
    held: Fraction = Fraction(0)
    needed: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, meta: dict[str, str], books: list[Book]) -> Books:
        """The books of all studies, in the order in which they were opened."""
        return cls(
            meta,
            {book.study.study_id: book for book in books},
            books[-1].study_checksum if books else b"",
            sum(book.generation for book in books),
            sum(book.answered for book in books),
            exact_sum(book.held for book in books),
            Counter(text for book in books for text in book.texts),
        )

    def __iter__(self) -> Iterator[Book]:
        """Every study's book, oldest first."""
        return iter(self.studies.values())

    @property
    def generation(self) -> int:
        """How many changes the ledger has come through."""
        return self.changes + int(self.meta.get(TAKEN_BACK, "0"))

    def with_taken_back(self, count: int) -> dict[str, str]:
        """The meta data once so many more responses were taken back."""
        if not count:
            return self.meta
        # One more: what is taken back is a change itself.
        return self.meta | {TAKEN_BACK: str(int(self.meta.get(TAKEN_BACK, "0")) + count + 1)}

    def keep(self, book: Book) -> None:
        """Note what a study is after a change that is on the disk."""
        before = self.studies.get(book.study.study_id)
        if before is None:
            self.last_checksum = book.study_checksum
            self.changes += book.generation
            self.held += book.held
            self.needed.update(book.texts)
        else:
            self.changes += book.generation - before.generation
            self.responses += book.answered - before.answered
            # While a study is open nothing of what it holds and needs changes.
            if book.closed:
                self.held += book.held - before.held
                if book.texts != before.texts:
                    self.needed.subtract(before.texts)
        self.studies[book.study.study_id] = book

    def unneeded_after(self, book: Book) -> list[str]:
        """Which texts no study needs once this one is closed without a response."""
        return [text for text in book.texts if self.needed[text] == 1]

    def spent(self) -> Fraction:
        """What all responses ever given have spent."""
        return exact_sum(book.spent for book in self if book.answered)
