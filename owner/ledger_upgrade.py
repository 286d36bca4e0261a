"""A ledger of schema version 2 becomes one of this version, in one transaction.

Version 2 kept every study's terms with the whole feature map, every charge as a row, and no
checksums. What was promised, answered and spent, and the last response, stay as they were.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from common.privacy import noted_amount
from common.terms import StudyTerms
from common.texts import brief, printable
from owner.ledger_ahead import charge_next
from owner.ledger_checks import check_layout, page_faults
from owner.ledger_rows import UNREADABLE, LedgerError, terms_to_text, text_digest
from owner.ledger_tables import (
    SCHEMA_VERSION,
    AccountRow,
    StudyRow,
    as_milliseconds,
    charge_record,
    create_tables,
    insert_account,
    insert_study,
    insert_text,
    last_digests,
    write_meta,
)

OLD_VERSION = "2"
OLD_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE studies (
  study_id TEXT PRIMARY KEY,
  learner TEXT NOT NULL,
  epsilon TEXT NOT NULL,
  noise_scale REAL NOT NULL,
  insecure_noise INTEGER NOT NULL,
  opened TEXT NOT NULL,
  terms TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE accounts (
  study_id TEXT PRIMARY KEY REFERENCES studies,
  promised INTEGER NOT NULL CHECK (promised > 0),
  answered INTEGER NOT NULL DEFAULT 0 CHECK (answered BETWEEN 0 AND promised),
  closed TEXT,
  last_digest TEXT NOT NULL DEFAULT '',
  last_response BLOB NOT NULL DEFAULT x''
) WITHOUT ROWID;
CREATE TABLE charges (
  study_id TEXT NOT NULL REFERENCES studies,
  sequence INTEGER NOT NULL,
  theta_digest TEXT NOT NULL,
  charged TEXT NOT NULL,
  PRIMARY KEY (study_id, sequence)
) WITHOUT ROWID;
"""
TABLES = ("meta", "studies", "accounts", "charges")


def check_old(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a ledger of version 2 that is damaged, by all that it holds.

    Raises:
      LedgerError: The sentence names the first fault.
    """
    check_layout(db, path, OLD_SCHEMA)
    faults = page_faults(db) + _miscounted(db)
    if faults:
        raise LedgerError(
            f"{path}: the ledger is damaged ({printable(faults[0])}); restore it from a copy"
        )


def upgrade(db: sqlite3.Connection, path: Path) -> None:
    """Write the tables of this version in place of those of version 2, within a transaction.

    Raises:
      ValueError: What a study was charged and what it was answered do not agree.
    """
    for table in TABLES:
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    create_tables(db)
    meta = dict(db.execute("SELECT key, value FROM old_meta"))
    write_meta(db, {"last_opened": meta["created"]} | meta | {"schema_version": SCHEMA_VERSION})
    before = b""
    rows = db.execute(
        "SELECT study_id, learner, epsilon, noise_scale, insecure_noise, opened, terms, promised, "
        "closed, last_digest, last_response FROM old_studies JOIN old_accounts USING (study_id) "
        "ORDER BY opened, study_id"
    )
    for number, row in enumerate(rows, start=1):
        study_id, learner, epsilon, noise_scale, insecure_noise, opened, text, *account = row
        promised, closed, last_digest, last_response = account
        terms, digest = _terms(study_id, text, path)
        values = (learner, epsilon, noise_scale, insecure_noise, opened, digest)
        study = StudyRow(number, study_id, *values, text_digest(terms.feature_map))
        before = insert_study(db, study, before)
        moved = AccountRow(number, promised, closed=closed)
        moved = _move_charges(db, moved, study_id)
        moved = moved._replace(responses=last_response)
        if (last_digests(db, moved, 1) or ("",)) != (last_digest,):
            raise ValueError(f"study {study_id}: its last charge is not that of its last response")
        insert_account(db, moved, before)
        if moved.answered or not moved.closed:
            insert_text(db, terms_to_text(terms))
            insert_text(db, terms.feature_map)
    for table in reversed(TABLES):
        db.execute(f"DROP TABLE old_{table}")


def _terms(study_id: str, text: str, path: Path) -> tuple[StudyTerms, str]:
    """A study's terms, and the digest of their text as this version writes it."""
    try:
        values = json.loads(text)
        terms = StudyTerms(**values | {"epsilon": noted_amount(values["epsilon"])})
        return terms, text_digest(terms_to_text(terms))
    except UNREADABLE:
        raise LedgerError(
            f"{path}: the ledger is damaged (study {brief(study_id)}: its terms "
            "cannot be read); restore it from a copy"
        ) from None


def _move_charges(db: sqlite3.Connection, row: AccountRow, study_id: str) -> AccountRow:
    """Write a study's charges as this version keeps them; returns its account after them."""
    charges = db.execute(
        "SELECT theta_digest, charged FROM old_charges WHERE study_id = ? ORDER BY sequence",
        (study_id,),
    )
    for theta, charged in charges:
        record = charge_record(theta, as_milliseconds(charged))
        row, _ = charge_next(db, row, record, b"", count=1)
    return row


def _miscounted(db: sqlite3.Connection) -> list[str]:
    """Studies that do not count every charge once."""
    rows = db.execute(
        "SELECT study_id, answered, count(c.sequence), coalesce(min(c.sequence), 1), "
        "coalesce(max(c.sequence), 0) FROM accounts a LEFT JOIN charges c USING (study_id) "
        "GROUP BY study_id"
    )
    faults = [
        f"study {study_id}: {answered} responses counted, {count} charges listed"
        for study_id, answered, count, first, last in rows
        if not (answered == count == last and first == 1)
    ]
    for table, other in (("studies", "accounts"), ("accounts", "studies"), ("charges", "accounts")):
        strangers = db.execute(
            f"SELECT count(*) FROM {table} WHERE study_id NOT IN (SELECT study_id FROM {other})"  # noqa: S608
        ).fetchone()[0]
        if strangers:
            faults.append(f"{strangers} {table} have no {other}")
    return faults
