"""What a process knows of the ledger it holds: every study's small numbers, in memory.

Read and checked once when the ledger is opened; from then on the disk must agree with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from common.privacy import exact_sum, noted_amount
from owner.account import Account, Kept
from owner.ledger_ahead import Charged
from owner.ledger_files import Mark
from owner.ledger_given import Given
from owner.ledger_rows import StudyEntry
from owner.ledger_tables import TAKEN_BACK, AccountRow, StudyRow


@dataclass(frozen=True, slots=True)
class Book:
    """One study: its row, what its account came to, and both rows' checksums.

    Args:
      study: The study's row.
      study_checksum: Its checksum.
      epsilon: What all promised responses together spend.
      promised: How many.
      answered: The last number that is spent: given, or of a block of which nobody knows.
      left: How many are charged beyond it, and known not to be given.
      noted: How many of those charged with them were given.
      closed: Whether the study is over.
      account_checksum: The checksum of the account that stands in the ledger.
    """

    study: StudyRow
    study_checksum: bytes
    epsilon: Fraction
    promised: int
    answered: int
    left: int
    noted: int
    closed: bool
    account_checksum: bytes

    @classmethod
    def of(cls, study: StudyRow, study_checksum: bytes, account: Charged) -> Book:
        """The book of a study and its account."""
        epsilon, promised = noted_amount(study.epsilon), account.row.promised
        unknown = cls(study, study_checksum, epsilon, promised, 0, 0, 0, False, b"")
        return unknown.after(account)

    def after(self, account: Charged) -> Book:
        """The book once the study's account is this one."""
        return replace(
            self,
            answered=account.given,
            left=account.left,
            noted=account.noted,
            closed=account.row.closed is not None,
            account_checksum=account.checksum,
        )

    def spent_to_the_end(self) -> Book:
        """The book where nobody knows what was given of the account's last charges."""
        return replace(self, answered=self.answered + self.left, left=0, noted=0)

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
        return 1 + self.answered + self.left + self.closed

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
                responses=Kept(account.responses),
                closed=account.closed is not None,
            ),
        )


@dataclass
class Books:
    """All studies, oldest first, and sums over them.

    ``given`` is what the log holds of charges ahead, by the checksum of the account that has them.
    ``generation`` counts studies opened, responses charged and studies closed, and once more each
    response that was charged ahead and taken back. So it never goes back, and a ledger of the same
    generation is the same ledger; of two logs of it the one is newer that has ``noted`` more.
    """

    meta: dict[str, str]
    studies: dict[str, Book] = field(default_factory=dict)
    last_checksum: bytes = b""
    changes: int = 0
    noted: int = 0
    responses: int = 0
    held: Fraction = Fraction(0)
    needed: Counter[str] = field(default_factory=Counter)
    given: dict[bytes, Given] = field(default_factory=dict)

    @classmethod
    def of(cls, meta: dict[str, str], books: list[Book], given: dict[bytes, Given]) -> Books:
        """The books of all studies, in the order in which they were opened."""
        return cls(
            meta,
            {book.study.study_id: book for book in books},
            books[-1].study_checksum if books else b"",
            sum(book.generation for book in books),
            sum(book.noted for book in books),
            sum(book.answered for book in books),
            exact_sum(book.held for book in books),
            Counter(text for book in books for text in book.texts),
            given,
        )

    def __iter__(self) -> Iterator[Book]:
        """Every study's book, oldest first."""
        return iter(self.studies.values())

    @property
    def generation(self) -> int:
        """How many changes the ledger has come through."""
        return self.changes + _taken_back(self.meta)

    @property
    def mark(self) -> Mark:
        """How far the ledger and its log have come."""
        return Mark(self.generation, self.noted)

    def without_log(self) -> Books:
        """The books where the log holds nothing: what it may have noted is spent."""
        return Books.of(self.meta, [book.spent_to_the_end() for book in self], {})

    def generation_after(self, books: Iterable[Book], meta: dict[str, str]) -> int:
        """The generation once these books are kept, and the meta data is this."""
        more = (
            book.generation - (before.generation if before else 0)
            for book in books
            for before in [self.studies.get(book.study.study_id)]
        )
        return self.changes + sum(more) + _taken_back(meta)

    def with_taken_back(self, count: int) -> dict[str, str]:
        """The meta data once this many more responses were taken back."""
        # One more: what is taken back is a change itself, and so is a log that is not needed.
        return self.meta | {TAKEN_BACK: str(_taken_back(self.meta) + count + 1)}

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
            self.noted += book.noted - before.noted
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


def _taken_back(meta: dict[str, str]) -> int:
    """How many responses that were charged ahead were taken back, and how often."""
    return int(meta.get(TAKEN_BACK, "0"))
