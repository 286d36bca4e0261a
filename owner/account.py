"""One study's account at an owner: which query is answered, which is repeated, which is refused."""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass, field

import numpy as np

from common.arrays import Vector
from common.errors import BudgetSpentError, OrderError

# Responses that are kept to be given again, the last one however long it is. An account is written
# once for many charges, so they may take more than one page of the ledger.
KEPT_BYTES, MOST_KEPT = 2**18, 16


def theta_digest(theta: Vector) -> str:
    """SHA-256 of a query's bytes: a retry has the same, a new question has another.

    >>> theta_digest(np.array([0.0])) == theta_digest(np.array([-0.0]))
    False
    """
    return hashlib.sha256(np.ascontiguousarray(theta, dtype="<f8").data).hexdigest()


class Step(enum.Enum):
    """What an owner does with a query."""

    ANSWER = enum.auto()
    REPLAY = enum.auto()


def repeats(size: int) -> int:
    """How many of its last responses an owner gives again for the same queries, at least 1.

    Args:
      size: Bytes of one response.

    >>> repeats(8 * 10), repeats(8 * 10_000), repeats(8 * 100_000)
    (16, 3, 1)
    """
    return max(1, min(MOST_KEPT, KEPT_BYTES // max(size, 1)))


@dataclass(frozen=True, slots=True)
class Kept:
    """The last responses of a study, all of one length, for who asks again.

    Args:
      older: Those that the ledger's account had, one after another.
      newest: Those after them; kept apart, so that one more copies none.

    >>> kept = Kept(b"ab").and_then(b"cd").and_then(b"ef")
    >>> kept.joined, kept.response(1, size=2), kept.response(3, size=2)
    (b'abcdef', b'cd', b'')
    """

    older: bytes = b""
    newest: tuple[bytes, ...] = ()

    def and_then(self, response: bytes) -> Kept:
        """With one more, and without those that need not be kept any more."""
        newest = (*self.newest, response)[-repeats(len(response)) :]
        return Kept(self.older, newest)

    def response(self, back: int, *, size: int) -> bytes:
        """One of the last, b"" where it is not kept.

        Args:
          back: How many came after it.
          size: Bytes of one response.
        """
        if not 0 <= back < repeats(size):
            return b""
        if back < len(self.newest):
            return self.newest[-1 - back]
        end = len(self.older) - (back - len(self.newest)) * size
        return self.older[end - size : end] if size <= end else b""

    @property
    def joined(self) -> bytes:
        """All of them, one after another."""
        if not self.newest:
            return self.older
        size = len(self.newest[-1])
        return (self.older + b"".join(self.newest))[-repeats(size) * size :]


@dataclass(frozen=True, kw_only=True)
class Account:
    """One study's account: what was promised and given, and the last responses for retries.

    Args:
      promised: Responses of the whole study.
      answered: The last number that is spent.
      digests: SHA-256 of the last queries, the newest at the end; "" for one that nobody knows.
      responses: The last responses.
      closed: Whether the study is over.
    """

    promised: int
    answered: int = 0
    digests: tuple[str, ...] = ()
    responses: Kept = field(default_factory=Kept)
    closed: bool = False

    def charged(self, *, digest: str, response: bytes) -> Account:
        """The account after one more response."""
        return Account(
            promised=self.promised,
            answered=self.answered + 1,
            digests=(*self.digests, digest)[-MOST_KEPT:],
            responses=self.responses.and_then(response),
            closed=self.closed,
        )

    def digest(self, sequence: int) -> str:
        """Of the query of one of the last numbers, "" where nobody knows it."""
        back = self.answered - sequence
        return self.digests[-1 - back] if 0 <= back < len(self.digests) else ""

    def response(self, sequence: int, *, size: int) -> bytes:
        """The response of one of the last numbers, b"" where it is not kept.

        >>> account = Account(promised=9).charged(digest="a", response=b"12")
        >>> account.charged(digest="b", response=b"34").response(1, size=2)
        b'12'
        """
        return self.responses.response(self.answered - sequence, size=size)


def next_step(account: Account, *, sequence: int, digest: str, size: int) -> Step:
    """Answer, replay, or refuse: the order of queries that keeps every charge single.

    The next number is answered and charged; one of the last numbers again, with the theta that it
    was given for, is replayed without a charge; everything else is refused without a charge.

    Args:
      account: What was promised and given.
      sequence: The query's number.
      digest: Of the query's theta.
      size: Bytes of one response.

    Raises:
      OrderError: The study is closed, or the number is not the next one.
      BudgetSpentError: All promised responses were given.

    >>> account = Account(promised=1)
    >>> next_step(account, sequence=1, digest="a", size=1)
    <Step.ANSWER: 1>
    >>> next_step(account.charged(digest="a", response=b"1"), sequence=1, digest="a", size=1)
    <Step.REPLAY: 2>
    """
    if account.closed:
        raise OrderError("the study is closed; enrol for a new study")
    if account.response(sequence, size=size):
        if digest == account.digest(sequence):
            return Step.REPLAY
        raise OrderError(
            f"response {sequence} was given for another theta; it is not given for a second one"
        )
    if sequence == account.answered and sequence > 0:
        raise OrderError(
            f"number {sequence} was charged in a block before this owner was killed, and may "
            f"have been answered; it is spent, the next one is {sequence + 1}"
        )
    if account.answered >= account.promised:
        raise BudgetSpentError(
            f"all {account.promised} promised responses were given; 0 are left in this study"
        )
    if sequence != account.answered + 1:
        raise OrderError(
            f"sequence number {sequence} is out of order; the next one is {account.answered + 1}"
        )
    return Step.ANSWER
