"""Is a ledger as it was written? Every row against its checksum, every count against its rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from common.texts import brief, printable
from owner.ledger_ahead import Charged
from owner.ledger_books import Book, Books
from owner.ledger_files import Mark
from owner.ledger_given import Given, read_given
from owner.ledger_rows import LedgerError, promise_faults, text_digest
from owner.ledger_tables import (
    BLOCK_BYTES,
    BLOCKS,
    META_BEGINNINGS,
    META_KEYS,
    RECORD_BYTES,
    SCHEMA,
    SCHEMA_VERSION,
    TAKEN_BACK,
    AccountRow,
    StudyRow,
    block_checksum,
    row_checksum,
    statements,
)

Found = Callable[[str], None]

# The types of what stands in a row, without its checksum; None may stand where a table lets it.
_STUDY_TYPES = (int, str, str, str, float, int, str, str, str)
_ACCOUNT_TYPES = (int, int, int, str, bytes, bytes, bytes)


def schema_version(db: sqlite3.Connection, path: Path) -> str | None:
    """The version of a ledger's tables; None where there are none yet.

    Raises:
      LedgerError: A name stands for a query, which may have no end, a change sets off others, or
        what says the version is computed as it is read, which may take all time and memory.
    """
    kinds = {kind for (kind,) in db.execute("SELECT type FROM sqlite_master")}
    if not kinds <= {"table", "index"}:
        raise _other_tables(path)
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    if not tables and pages <= 1:
        return None
    # By what they say, since a name beside it may be another.
    made = [str(sql) for (sql,) in db.execute("SELECT sql FROM sqlite_master")]
    if not any(sql.startswith(META_BEGINNINGS) for sql in made):
        raise _other_tables(path)
    rows = dict(db.execute("SELECT key, value FROM meta"))
    return str(rows.get("schema_version"))


def check_layout(db: sqlite3.Connection, path: Path, schema: str) -> None:
    """Refuse tables that are not this program's: nothing read from them means anything."""
    if {row[0] for row in db.execute("SELECT sql FROM sqlite_master")} != set(statements(schema)):
        raise _other_tables(path)


def _other_tables(path: Path) -> LedgerError:
    return LedgerError(
        f"{path}: the ledger is damaged (its tables are not those of version {SCHEMA_VERSION}); "
        "restore it from a copy"
    )


def check_shard(meta: dict[str, str], path: Path, *, fingerprint: str) -> None:
    """Refuse the ledger of other records: the budget is theirs.

    Raises:
      LedgerError: The fingerprint is another.
    """
    if meta.get("shard_fingerprint") != fingerprint:
        whose = brief(meta.get("owner", ""))
        raise LedgerError(
            f"{path}: the ledger belongs to other records than the shard (it was begun for the "
            f"owner {whose}); where it is another owner's, give the right path; the budget is of "
            "the records, so restore them, and in [data] what says how they are read (dates, "
            "decimal, encoding, missing_target); where rows were added, data.rows or data.where "
            "selects those it belongs to; where rows were erased or corrected, begin a new ledger "
            "and lower policy.epsilon_lifetime for good by what this one shows as spent"
        )


def check_mark(books: Books, mark: Mark, path: Path) -> None:
    """Refuse a ledger that is older than the marks on its files.

    Raises:
      LedgerError: It holds fewer studies or responses than a mark says.
    """
    if books.generation < mark.generation or books.responses < mark.responses:
        raise LedgerError(
            f"{path}: the ledger has lost responses or studies that were noted (its -wal file may "
            "be missing or damaged, or it is an old copy); restore the newest copy of it "
            "and of the files beside it"
        )


def sound(db: sqlite3.Connection, path: Path, mark: Mark) -> Books:
    """The books of a ledger without a fault.

    Raises:
      LedgerError: It is damaged; the sentence names the first fault.
    """
    books, faults = examined(db, path, mark)
    if faults:
        raise LedgerError(f"{path}: the ledger is damaged ({faults[0]}); restore it from a copy")
    return books


def examined(db: sqlite3.Connection, path: Path, mark: Mark) -> tuple[Books, list[str]]:
    """A ledger's books and what is wrong with it, one sentence for each finding.

    Of a log that is missing, damaged, or older than its mark nothing is believed: what it may have
    noted is spent.

    Raises:
      LedgerError: The tables are of another version.
    """
    check_layout(db, path, SCHEMA)
    # After the first look: what is given from now on is noted behind what the ledger knows.
    noted = read_given(path)
    faults = page_faults(db)
    meta = _meta(db, faults.append)
    studies = _studies(db, faults.append)
    blocks = _blocks(db, faults.append)
    books = _accounts(db, studies, blocks, noted.given, faults.append)
    faults += [f"charges of study number {number} have no account" for number in sorted(blocks)]
    found = Books.of(meta, books, noted.given)
    texts = _texts(db, found, faults.append)
    for book in books:
        account = AccountRow(book.study.number, book.promised, book.answered)
        if book.study.terms in texts:
            faults += promise_faults(book.entry(account, texts.__getitem__))
    is_newest = noted.generation >= found.generation and found.mark >= mark
    faults = [printable(fault) for fault in faults]
    return found if is_newest else found.without_log(), faults


def page_faults(db: sqlite3.Connection) -> list[str]:
    """What SQLite finds wrong with the file: pages lost or used twice, keys out of order."""
    rows = [" ".join(str(row[0]).split()) for row in db.execute("PRAGMA quick_check")]
    return [row for row in rows if row != "ok"]


def _can_be_shown(values: Sequence[object], types: Sequence[type]) -> bool:
    """Whether values are of these types, and texts have nothing that moves a terminal's cursor.

    Whoever makes a ledger for others to read makes checksums that fit.
    """
    return all(
        value is None or (type(value) is kind and (kind is not str or str(value).isprintable()))
        for value, kind in zip(values, types, strict=True)
    )


def _meta(db: sqlite3.Connection, found: Found) -> dict[str, str]:
    """The meta data; all of it is there, and chained."""
    meta, before = {}, b""
    for key, value, checksum in db.execute("SELECT * FROM meta ORDER BY key"):
        before = row_checksum("meta", before, key, value)
        if before != checksum or not _can_be_shown((key, value), (str, str)):
            found(f"the note {key!r} is not what was written")
        meta[key] = value
    if set(meta) - {TAKEN_BACK} != META_KEYS or not meta.get(TAKEN_BACK, "0").isdecimal():
        found("a note about the ledger is missing")
    return meta


def _studies(db: sqlite3.Connection, found: Found) -> dict[int, tuple[StudyRow, bytes]]:
    """Every study's row by its number: none is missing, none was changed."""
    studies: dict[int, tuple[StudyRow, bytes]] = {}
    names, before = set(), b""
    for *values, checksum in db.execute("SELECT * FROM studies ORDER BY number"):
        row = StudyRow(*values)
        before = row.checksum(before)
        is_ours = before == checksum and _can_be_shown(values, _STUDY_TYPES)
        if not is_ours or row.number != len(studies) + 1 or row.study_id in names:
            found(f"study {row.study_id!r}: its row is not what was written")
        names.add(row.study_id)
        studies[row.number] = row, before
    return studies


def _blocks(db: sqlite3.Connection, found: Found) -> dict[int, tuple[int, bytes]]:
    """How many blocks of charges each study has, and the checksum of the last."""
    last: dict[int, tuple[int, bytes]] = {}
    study, count, before, broken = -1, 0, b"", False
    for position, records, checksum in db.execute("SELECT * FROM charges ORDER BY position"):
        if position // BLOCKS != study:
            study, count, before, broken = position // BLOCKS, 0, b"", False
        before = block_checksum(before, position, records)
        wrong = before != checksum or position % BLOCKS != count or len(records) != BLOCK_BYTES
        if wrong and not broken:
            # What follows in the chain is wrong as well; once is enough.
            found(f"study number {study}: a block of its charges is not what was written")
            broken = True
        count += 1
        last[study] = count, before
    return last


def read_account(values: tuple[object, ...], study: bytes) -> tuple[AccountRow, bytes, bool]:
    """An account's row, its checksum, and whether it is what was written."""
    row = AccountRow(*values[:-1])  # type: ignore[arg-type]
    checksum = row.checksum(study)
    is_ours = checksum == values[-1] and _can_be_shown(values[:-1], _ACCOUNT_TYPES)
    return row, checksum, is_ours


def _accounts(
    db: sqlite3.Connection,
    studies: dict[int, tuple[StudyRow, bytes]],
    blocks: dict[int, tuple[int, bytes]],
    given: dict[bytes, Given],
    found: Found,
) -> list[Book]:
    """Every study's book, from its row and its account; takes the blocks that belong to one."""
    books, missing = [], dict(studies)
    for values in db.execute("SELECT * FROM accounts ORDER BY number"):
        if values[0] not in missing:
            found(f"account number {values[0]} has no study")
            continue
        study, study_checksum = missing.pop(values[0])
        row, checksum, whole = read_account(values, study_checksum)
        if not whole:
            found(f"study {study.study_id}: its account is not what was written")
        _count(study.study_id, row, blocks.pop(row.number, (0, b"")), found)
        account = Charged.of(row, checksum, given.get(checksum))
        books.append(Book.of(study, study_checksum, account))
    for study, _ in missing.values():
        found(f"study {study.study_id}: its account is missing")
    return books


def _count(study_id: str, row: AccountRow, blocks: tuple[int, bytes], found: Found) -> None:
    """Every charge is counted once, and the last block is the one that the account knows."""
    listed = (blocks[0] * BLOCK_BYTES + len(row.recent)) // RECORD_BYTES
    if listed != row.answered or len(row.recent) % RECORD_BYTES or len(row.recent) > BLOCK_BYTES:
        found(f"study {study_id}: {row.answered} responses counted, {listed} charges listed")
    elif row.blocks_checksum != blocks[1]:
        found(f"study {study_id}: its charges are not those that its account was written with")


def _texts(db: sqlite3.Connection, books: Books, found: Found) -> dict[str, str]:
    """The terms' texts by digest; every text is whole, and those that are needed are there."""
    terms, missing = {}, set(+books.needed)
    wanted = {book.study.terms for book in books}
    for digest, text in db.execute("SELECT digest, text FROM texts"):
        if text_digest(text) != digest:
            found(f"the text {str(digest)[:12]!r} is not what was written")
        if digest not in missing:
            found(f"the text {str(digest)[:12]!r} belongs to no study")
        missing.discard(digest)
        if digest in wanted:
            terms[digest] = text
    if missing:
        found(f"{len(missing)} texts of studies are missing")
    return terms
