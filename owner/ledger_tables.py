"""The ledger's tables, and the checksum that each of their rows carries.

A row's checksum covers all its fields and the checksum of the row before it: of a study the one
opened before, of an account its study, of a block of charges the block before.
"""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from owner.ledger_rows import text_digest

SCHEMA_VERSION = "3"
# How the table that says the version is made in every version: of columns that are stored.
META_BEGINNINGS = tuple(
    f"CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL{end}" for end in ",)"
)
META_KEYS = {"schema_version", "owner", "shard_fingerprint", "created", "last_opened"}
# Only where something was: how many responses that were charged ahead were taken back, and how
# often.
TAKEN_BACK = "taken_back"

# An account, its newest charges and the last responses of a small model fit one page, so that a
# charge changes one page; older charges stand in blocks of a page each, which are checked as fast
# as they are read. Rows are found by their number: an index would be a second copy that no checksum
# covers.
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE texts (digest TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE studies (
  number INTEGER PRIMARY KEY,
  study_id TEXT NOT NULL,
  learner TEXT NOT NULL,
  epsilon TEXT NOT NULL,
  noise_scale REAL NOT NULL,
  insecure_noise INTEGER NOT NULL,
  opened TEXT NOT NULL,
  terms TEXT NOT NULL,
  feature_map TEXT NOT NULL,
  checksum BLOB NOT NULL
);
CREATE TABLE accounts (
  number INTEGER PRIMARY KEY REFERENCES studies,
  promised INTEGER NOT NULL CHECK (promised > 0),
  answered INTEGER NOT NULL CHECK (answered BETWEEN 0 AND promised),
  closed TEXT,
  last_response BLOB NOT NULL,
  recent BLOB NOT NULL,
  blocks_checksum BLOB NOT NULL,
  checksum BLOB NOT NULL
);
CREATE TABLE charges (position INTEGER PRIMARY KEY, records BLOB NOT NULL, checksum BLOB NOT NULL)
"""

# A charge's record: SHA-256 of theta, and milliseconds since 1970. One that was made ahead of its
# query has zeros in place of the digest.
RECORD = struct.Struct(">32sq")
RECORD_BYTES = RECORD.size
CHARGES_PER_BLOCK = 64
BLOCK_BYTES = CHARGES_PER_BLOCK * RECORD_BYTES
AHEAD = bytes(hashlib.sha256().digest_size)
# Block b of study s stands at position s BLOCKS + b.
BLOCKS = 2**32
CHECKSUM_BYTES = 16
_NAMES = {kind: kind.__name__.encode() for kind in (str, bytes, int, float, type(None))}


def row_checksum(*values: str | bytes | float | None) -> bytes:
    """A checksum over values, their types and where each of them ends."""
    parts: list[bytes] = []
    for value in values:
        data = value if isinstance(value, bytes) else repr(value).encode()
        parts += (b"%b %d:" % (_NAMES[type(value)], len(data)), data)
    return hashlib.sha256(b"".join(parts)).digest()[:CHECKSUM_BYTES]


def block_checksum(before: bytes, position: int, records: bytes) -> bytes:
    """The checksum of a block of charges; one call, since a ledger may have many."""
    return hashlib.sha256(b"%b%d:%b" % (before, position, records)).digest()[:CHECKSUM_BYTES]


class StudyRow(NamedTuple):
    """A row of ``studies`` without its checksum: what was agreed on; it never changes.

    ``terms`` and ``feature_map`` are digests of texts.
    """

    number: int
    study_id: str
    learner: str
    epsilon: str
    noise_scale: float
    insecure_noise: int
    opened: str
    terms: str
    feature_map: str

    def checksum(self, before: bytes) -> bytes:
        """The row's checksum, after that of the study opened before."""
        return row_checksum("studies", before, *self)


class AccountRow(NamedTuple):
    """A row of ``accounts`` without its checksum: what was promised, given and charged last.

    ``responses`` are the last ones, all of one length, one after another.
    """

    number: int
    promised: int
    answered: int = 0
    closed: str | None = None
    responses: bytes = b""
    recent: bytes = b""
    blocks_checksum: bytes = b""

    def with_last(self, answered: int, responses: bytes, recent: bytes) -> AccountRow:
        """The account with other charges at its end."""
        return self._replace(answered=answered, responses=responses, recent=recent)

    @property
    def blocks(self) -> int:
        """The number of full blocks of older charges."""
        return (self.answered - len(self.recent) // RECORD_BYTES) // CHARGES_PER_BLOCK

    @property
    def position(self) -> int:
        """Where the recent charges will stand once they fill a block."""
        return self.number * BLOCKS + self.blocks

    def checksum(self, study: bytes) -> bytes:
        """The row's checksum, after that of its study."""
        return row_checksum("accounts", study, *self)


def charge_record(digest: str, milliseconds: int) -> bytes:
    """A charge as the ledger keeps it.

    Raises:
      ValueError: The digest is no SHA-256 in hexadecimal digits.
    """
    theta = bytes.fromhex(digest)
    if len(theta) != hashlib.sha256().digest_size or theta.hex() != digest:
        raise ValueError(f"{digest!r} is no digest of a query")
    return RECORD.pack(theta, milliseconds)


def ahead_records(record: bytes, count: int) -> bytes:
    """This many charges at the time of a record, ahead of their queries."""
    return (AHEAD + record[len(AHEAD) :]) * count


def ends_ahead(row: AccountRow) -> bool:
    """Whether the last charge of an account is ahead of its query."""
    return row.recent[-RECORD_BYTES:].startswith(AHEAD)


def charges_of(records: bytes) -> Iterator[tuple[str, str]]:
    """The digest of theta and the time of each charge of a block; "" for a query nobody knows."""
    for theta, milliseconds in RECORD.iter_unpack(records):
        yield "" if theta == AHEAD else theta.hex(), as_time(milliseconds)


def last_digests(db: sqlite3.Connection, row: AccountRow, count: int) -> tuple[str, ...] | None:
    """SHA-256 of the last thetas, the newest at the end; "" for a query nobody knows.

    Args:
      db: The ledger.
      row: The study's account.
      count: How many, at most a block.

    Returns:
      None if the last block is not what the account was written with.
    """
    records = row.recent
    if len(records) < count * RECORD_BYTES and row.blocks:
        block, before = _last_block(db, row)
        if block_checksum(before, row.position - 1, block) != row.blocks_checksum:
            return None
        records = block + records
    parts = (theta for theta, _ in RECORD.iter_unpack(records[-count * RECORD_BYTES :]))
    return tuple("" if theta == AHEAD else theta.hex() for theta in parts)


def _last_block(db: sqlite3.Connection, row: AccountRow) -> tuple[bytes, bytes]:
    """An account's last full block of charges, and the checksum of the one before."""
    rows = db.execute(
        "SELECT records, checksum FROM charges WHERE position BETWEEN ? AND ? ORDER BY position",
        (max(row.position - 2, row.number * BLOCKS), row.position - 1),
    ).fetchall()
    before = rows[-2][1] if len(rows) > 1 else b""
    return (rows[-1][0] if rows else b""), before


def as_milliseconds(time: str) -> int:
    """Milliseconds since 1970 of a time as the ledger writes it."""
    return round(datetime.fromisoformat(time).timestamp() * 1000)


def as_time(milliseconds: int) -> str:
    """A time as the ledger writes it: ISO 8601, UTC.

    >>> as_time(as_milliseconds("2026-01-02T03:04:05.678+00:00"))
    '2026-01-02T03:04:05.678+00:00'
    """
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def statements(schema: str) -> list[str]:
    """The statements of a schema, as SQLite keeps them."""
    return schema.strip().removesuffix(";").split(";\n")


def create_tables(db: sqlite3.Connection) -> None:
    """Make the tables of this version; unlike ``executescript`` it commits nothing."""
    for statement in statements(SCHEMA):
        db.execute(statement)


def write_meta(db: sqlite3.Connection, meta: dict[str, str]) -> None:
    """Write all meta data, each row chained to the one before."""
    db.execute("DELETE FROM meta")
    before = b""
    for key in sorted(meta):
        before = row_checksum("meta", before, key, meta[key])
        db.execute("INSERT INTO meta VALUES (?, ?, ?)", (key, meta[key], before))


def insert_study(db: sqlite3.Connection, row: StudyRow, before: bytes) -> bytes:
    """Add a study after the one opened before; returns the row's checksum."""
    checksum = row.checksum(before)
    db.execute("INSERT INTO studies VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, checksum))
    return checksum


def insert_account(db: sqlite3.Connection, row: AccountRow, study: bytes) -> bytes:
    """Add a study's account; returns the row's checksum."""
    checksum = row.checksum(study)
    db.execute("INSERT INTO accounts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, checksum))
    return checksum


def insert_text(db: sqlite3.Connection, text: str) -> None:
    """Keep a text by its digest, once."""
    db.execute("INSERT OR IGNORE INTO texts VALUES (?, ?)", (text_digest(text), text))


def with_room(db: sqlite3.Connection, row: AccountRow) -> AccountRow:
    """An account with room for a charge: its recent charges move to a block when they are full."""
    if len(row.recent) < BLOCK_BYTES:
        return row
    checksum = block_checksum(row.blocks_checksum, row.position, row.recent)
    db.execute("INSERT INTO charges VALUES (?, ?, ?)", (row.position, row.recent, checksum))
    return row._replace(recent=b"", blocks_checksum=checksum)


def update_account(
    db: sqlite3.Connection, row: AccountRow, study: bytes, *, before: AccountRow, checksum: bytes
) -> bytes | None:
    """Write a study's account again, over the row that stands there.

    Args:
      db: The ledger.
      row: The account as it is to be.
      study: The checksum of its study.
      before: The account as it was written last.
      checksum: The checksum of that row.

    Returns:
      The new row's checksum; None, and nothing is written, if another row stands there.
    """
    written = row.checksum(study)
    changed = db.execute(
        "UPDATE accounts SET promised = ?, answered = ?, closed = ?, last_response = ?, "
        "recent = ?, blocks_checksum = ?, checksum = ? WHERE number = ? AND promised = ? AND "
        "answered = ? AND closed IS ? AND last_response = ? AND recent = ? AND "
        "blocks_checksum = ? AND checksum = ?",
        (*row[1:], written, *before, checksum),
    ).rowcount
    return written if changed == 1 else None
