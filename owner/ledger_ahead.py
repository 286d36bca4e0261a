"""Charges made ahead of their responses: what a process knows of an account beyond its row.

An owner may charge a block of responses at once, before the first of them leaves; the others then
leave without a write. On the disk each is a charge of no known query. Whoever finds such charges
at the end of an account after a crash cannot tell which of them were answered: all are spent, and
none of their numbers is ever answered again, so no number is answered for two models. A process
that ends in order writes down what it gave, and takes the rest of the block back.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from owner.account import kept
from owner.ledger_tables import (
    CHARGES_PER_BLOCK,
    RECORD_BYTES,
    AccountRow,
    ahead_records,
    with_room,
)

__all__ = ["Charged", "charge_more"]


@dataclass(frozen=True)
class Charged:
    """One study's account in this process.

    Args:
      row: The account as it stands on the disk.
      checksum: The row's checksum.
      begun: How many of the row's last charges this process made ahead; 0 for those of others.
      records: The charges' records of those that were given since, which are not on the disk.
      responses: The last that were given, of this block and before.
    """

    row: AccountRow
    checksum: bytes
    begun: int = 0
    records: bytes = b""
    responses: bytes = b""

    @property
    def given(self) -> int:
        """The last number that is spent: answered, or lost."""
        return self.row.answered - self.left

    @property
    def left(self) -> int:
        """How many responses are charged that nobody was given."""
        return self.begun - len(self.records) // RECORD_BYTES

    def gave(self, record: bytes, response: bytes) -> Charged:
        """One more of the responses that were charged ahead."""
        records, responses = self.records + record, kept(self.responses, response)
        return Charged(self.row, self.checksum, self.begun, records, responses)

    @property
    def settled(self) -> AccountRow:
        """The account with what was given in place of what was charged ahead."""
        if not self.begun:
            return self.row
        known = self.row.recent[: -self.begun * RECORD_BYTES]
        return self.row.with_last(self.given, self.responses, known + self.records)


def charge_more(
    db: sqlite3.Connection, row: AccountRow, record: bytes, response: bytes, *, block: int
) -> tuple[AccountRow, int]:
    """An account after the charge of the next response, and of as many as a block has.

    Args:
      db: The ledger, within a transaction.
      row: The account, settled.
      record: The charge's record of the next response.
      response: That response.
      block: How many responses to charge at once.

    Returns:
      The account, and how many of its last charges are ahead of their queries: 0 if the charge
      and its response stand in it.
    """
    row = with_room(db, row)
    room = CHARGES_PER_BLOCK - len(row.recent) // RECORD_BYTES
    count = min(block, room, row.promised - row.answered)
    if block == 1:
        recent = row.recent + record
        return row.with_last(row.answered + 1, kept(row.responses, response), recent), 0
    # After a crash no response of the block is repeated, so none has to be kept.
    recent = row.recent + ahead_records(record, count)
    return row.with_last(row.answered + count, b"", recent), count
