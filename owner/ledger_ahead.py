"""Charges made ahead of their responses: what is known of an account beyond its row.

An owner charges a block of responses at once, before the first of them leaves. On the disk each is
a charge of no known query. A log beside the ledger says which of them were given: each is noted
there before it leaves. With `ledger.block` above 1 there is no such log. If a crash leaves charges
that no log explains, nobody can know which were answered: all are spent, and none of their numbers
is ever answered again, so no number is answered for two models. A process that ends in order, or
that finds a log, writes down what was given and takes the rest of the block back.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

from owner.account import Kept
from owner.ledger_given import Given
from owner.ledger_tables import (
    CHARGES_PER_BLOCK,
    RECORD_BYTES,
    AccountRow,
    ahead_records,
    ends_ahead,
    with_room,
)


@dataclass(frozen=True)
class Charged:
    """One study's account, as far as it is known.

    Args:
      row: The account as it stands in the ledger.
      checksum: The row's checksum.
      begun: How many of the row's last charges were made ahead, and are known to be given or not.
      records: The charges' records of those that were given since, which are not in the row.
      responses: The last that were given, of this block and before.
    """

    row: AccountRow
    checksum: bytes
    begun: int = 0
    records: bytes = b""
    responses: Kept = field(default_factory=Kept)

    @classmethod
    def of(cls, row: AccountRow, checksum: bytes, given: Given | None) -> Charged:
        """An account as a process left it, with what the log says of it."""
        if given is None:
            return cls(row, checksum)
        responses = Kept(row.responses)
        for response in given.responses:
            responses = responses.and_then(response)
        return cls(row, checksum, given.charged, given.records, responses)

    @property
    def given(self) -> int:
        """The last number that is spent: answered, or lost."""
        return self.row.answered - self.left

    @property
    def left(self) -> int:
        """How many responses are charged that nobody was given."""
        return self.begun - self.noted

    @property
    def is_ahead(self) -> bool:
        """Whether the row has charges whose queries are not in it."""
        return self.begun > 0 or ends_ahead(self.row)

    @property
    def is_lost(self) -> bool:
        """Whether a log was to hold what was given of the row's last charges, and none does."""
        return not self.begun and ends_ahead(self.row) and bool(self.row.responses)

    @property
    def noted(self) -> int:
        """How many of those that were charged ahead were given."""
        return len(self.records) // RECORD_BYTES

    def gave(self, record: bytes, response: bytes) -> Charged:
        """One more of the responses that were charged ahead."""
        records, responses = self.records + record, self.responses.and_then(response)
        return Charged(self.row, self.checksum, self.begun, records, responses)

    @property
    def settled(self) -> AccountRow:
        """The account with what was given in place of what was charged ahead."""
        if not self.begun:
            # The responses are of the numbers before those that nobody knows.
            lost = ends_ahead(self.row)
            return self.row.with_last(self.row.answered, b"", self.row.recent) if lost else self.row
        known = self.row.recent[: -self.begun * RECORD_BYTES]
        return self.row.with_last(self.given, self.responses.joined, known + self.records)


def charge_next(
    db: sqlite3.Connection, row: AccountRow, record: bytes, response: bytes, *, count: int
) -> tuple[AccountRow, int]:
    """An account after the charge of the next response, and of some after it that will be noted.

    Args:
      db: The ledger, within a transaction.
      row: The account, settled.
      record: The charge's record of the next response.
      response: That response.
      count: How many to charge at once.

    Returns:
      The account, in which the next charge and its response stand, and how many charges after it
      are ahead of their queries.
    """
    row, count = _room(db, row, count)
    recent = row.recent + record + ahead_records(record, count - 1)
    responses = Kept(row.responses).and_then(response).joined
    return row.with_last(row.answered + count, responses, recent), count - 1


def charge_block(
    db: sqlite3.Connection, row: AccountRow, record: bytes, *, count: int
) -> tuple[AccountRow, int]:
    """An account after the charge of a block whose responses will be noted nowhere.

    Args:
      db: The ledger, within a transaction.
      row: The account, settled.
      record: The charge's record of the next response.
      count: How many to charge at once.

    Returns:
      The account, and how many charges after the next one are ahead of their queries.
    """
    row, count = _room(db, row, count)
    # After a crash no response of the block is repeated, so none has to be kept.
    recent = row.recent + ahead_records(record, count)
    return row.with_last(row.answered + count, b"", recent), count


def _room(db: sqlite3.Connection, row: AccountRow, count: int) -> tuple[AccountRow, int]:
    """An account with room for a charge, and for how many there is room and promise."""
    row = with_room(db, row)
    room = CHARGES_PER_BLOCK - len(row.recent) // RECORD_BYTES
    return row, min(count, room, row.promised - row.answered)
