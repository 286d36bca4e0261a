"""Which charged responses were given: a log beside the ledger, synced for each of them.

A commit of SQLite takes twice as long as one sync of an existing file. So an owner charges the next
responses of a study at once, and notes each one with its query in NAME-given before it leaves.
After a crash the log says which of these charges were given; the others are taken back. If the log
is lost, all of its charges are spent.

The log begins with a mark of how far the ledger has come (:mod:`owner.ledger_files`). Entries
follow, each its length, a checksum that is chained to the entry before, and its content, one of

* the checksum of an account, how many charges are written with it, and the generation of the ledger
  by that; or, of any other change while it is needed, the generation alone: both are here before
  the ledger is changed, so a log that does not know the ledger's generation is an old copy;
* the checksum of an account, and the record and the response of its next charge.

Once nothing in it is needed any more, the log is overwritten from its first entry; what remains
beyond its new end belongs to another chain.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from common.files import open_regular, real_path
from owner.ledger_tables import CHARGES_PER_BLOCK, CHECKSUM_BYTES, RECORD_BYTES

# Stands after the ledger's own name.
GIVEN = "-given"
# Room for the mark, before the entries.
MARK_BYTES = 64

LENGTH, GENERATION, COUNT = struct.Struct(">I"), struct.Struct(">Q"), struct.Struct(">IQ")
HEAD_BYTES = LENGTH.size + CHECKSUM_BYTES
BEGIN_BYTES = CHECKSUM_BYTES + COUNT.size
# A file that grows is synced twice as slowly, so it is made longer by this much at a time.
STEP_BYTES, LARGEST_BYTES = 2**18, 2**22


@dataclass(frozen=True)
class Given:
    """What the log says of one account's charges.

    Args:
      charged: How many of the account's last charges were to be noted here.
      records: The charges' records of those that were given.
      responses: Their responses.
    """

    charged: int
    records: bytes = b""
    responses: tuple[bytes, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all of them were given."""
        return len(self.responses) >= self.charged

    def and_then(self, record: bytes, response: bytes) -> Given:
        """One more that was given."""
        return Given(self.charged, self.records + record, (*self.responses, response))


@dataclass
class LogContent:
    """What the log says.

    Args:
      generation: The last of the ledger that it knows of.
      given: What was given of the charges of each account, by the account's checksum.
    """

    generation: int = 0
    given: dict[bytes, Given] = field(default_factory=dict)


def given_at_once(size: int) -> int:
    """How many responses are charged at once, so that the log has room for two such blocks.

    Args:
      size: Bytes of one response.

    >>> given_at_once(8 * 10), given_at_once(8 * 10_000), given_at_once(8 * 1_000_000)
    (64, 26, 1)
    """
    return max(1, min(CHARGES_PER_BLOCK, LARGEST_BYTES // 2 // _entry_bytes(size)))


def read_given(path: Path) -> LogContent:
    """What the log of a ledger says.

    Args:
      path: The ledger, or a link to it. Where it has no log, or one that is damaged, less is known
        of it, and what is not known is spent.
    """
    try:
        with open_regular(Path(f"{real_path(path)}{GIVEN}")) as file:
            content = file.read(LARGEST_BYTES + STEP_BYTES)
    except FileNotFoundError:
        return LogContent()
    found = LogContent()
    for entry in _entries(content):
        account, said = entry[:CHECKSUM_BYTES], entry[CHECKSUM_BYTES:]
        if len(entry) == GENERATION.size:
            (found.generation,) = GENERATION.unpack(entry)
        elif len(entry) == BEGIN_BYTES:
            count, found.generation = COUNT.unpack(said)
            found.given[account] = Given(count)
        else:
            given = found.given.get(account)
            if given is None or given.is_whole or len(said) < RECORD_BYTES:
                # Nobody here wrote that; nothing behind it is believed.
                break
            found.given[account] = given.and_then(said[:RECORD_BYTES], said[RECORD_BYTES:])
    return found


def _entry_bytes(size: int) -> int:
    """Bytes of the entry of a response."""
    return HEAD_BYTES + CHECKSUM_BYTES + RECORD_BYTES + size


def _entries(content: bytes) -> Iterator[bytes]:
    """The entries of a log, from its start to the first that is not chained to the one before."""
    position, before = MARK_BYTES, b""
    while position + HEAD_BYTES <= len(content):
        begin = position + HEAD_BYTES
        end = begin + LENGTH.unpack_from(content, position)[0]
        before = _chained(before, content[begin:end])
        if end > len(content) or before != content[position + LENGTH.size : begin]:
            return
        yield content[begin:end]
        position = end


def _chained(before: bytes, entry: bytes) -> bytes:
    """The checksum of an entry."""
    digest = hashlib.sha256(b"%b%d:" % (before, len(entry)))
    digest.update(entry)
    return digest.digest()[:CHECKSUM_BYTES]


class GivenLog:
    """The log of a ledger that this process holds.

    Guarantees:
      * What a call writes is on the disk when the call returns.
      * Every response that was begun has its place in the file, whatever comes between; a file
        that has no room says so before anything is charged.

    Args:
      handle: The open file; nothing that stands in it is needed any more.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._length = max(os.fstat(handle).st_size, MARK_BYTES)
        os.truncate(handle, self._length)
        self.restart()

    def restart(self) -> None:
        """Write over all that it says from here on."""
        self._end, self._before = MARK_BYTES, b""
        # Bytes of responses that were begun and not given yet.
        self._reserved = 0

    def has_room(self, count: int, size: int) -> bool:
        """Whether this many more responses of this many bytes have room, and two changes."""
        return self._end_after(count, size) + HEAD_BYTES + BEGIN_BYTES <= LARGEST_BYTES

    def lengthen(self, count: int, size: int) -> None:
        """Write zeros, so that this many more responses have their place on the disk."""
        needed = self._end_after(count, size)
        if needed > self._length:
            length = -(-needed // STEP_BYTES) * STEP_BYTES
            _write(self._handle, bytes(length - self._length), self._length)
            os.fsync(self._handle)
            self._length = length

    def begin(self, account: bytes, count: int, size: int, *, generation: int) -> None:
        """This many responses of this many bytes are to be charged, and will be noted here.

        Args:
          account: The checksum of the account that will be written with these charges.
          count: How many charges.
          size: Bytes of one response.
          generation: The ledger's by that.
        """
        self.lengthen(count, size)
        self._append(account + COUNT.pack(count, generation))
        self._reserved += count * _entry_bytes(size)

    def reach(self, generation: int) -> None:
        """The ledger is to have this generation by another change, while the log is needed."""
        self.lengthen(0, 0)
        self._append(GENERATION.pack(generation))

    def give(self, account: bytes, record: bytes, response: bytes) -> None:
        """Note the next of an account's charges and the response that is given for it."""
        self._append(account + record + response)
        self._reserved -= _entry_bytes(len(response))

    def _end_after(self, count: int, size: int) -> int:
        begun = self._end + self._reserved
        return begun + HEAD_BYTES + BEGIN_BYTES + count * _entry_bytes(size)

    def _append(self, entry: bytes) -> None:
        checksum = _chained(self._before, entry)
        _write(self._handle, LENGTH.pack(len(entry)) + checksum + entry, self._end)
        os.fdatasync(self._handle)
        self._end += HEAD_BYTES + len(entry)
        self._before = checksum


def _write(handle: int, content: bytes, position: int) -> None:
    """Write all of it.

    Raises:
      OSError: The disk has no room for it, or fails.
    """
    left = memoryview(content)
    while left:
        written = os.pwrite(handle, left, position)
        left, position = left[written:], position + written
