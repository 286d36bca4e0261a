"""The tables of a journal: what a new one gets, and how one of an earlier version is taken over."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from common.errors import InputError

# Of the tables below.
VERSION = 2

# Rows stand in the order in which they were appended. By a key of position and owner, as before
# version 2, SQLite finds a row's place by reading a dozen others, answers and all.
_RESPONSES = """
CREATE TABLE IF NOT EXISTS responses (
  position INTEGER NOT NULL REFERENCES ticks,
  owner INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  gradient BLOB NOT NULL
);
"""
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ticks (
  position INTEGER PRIMARY KEY,
  time REAL NOT NULL,
  wall_seconds REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS unanswered (
  owner INTEGER PRIMARY KEY,
  sequence INTEGER NOT NULL,
  theta BLOB NOT NULL
);{_RESPONSES}"""
_FORMER = """\
CREATE TABLE responses (
  position INTEGER NOT NULL REFERENCES ticks,
  owner INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  gradient BLOB NOT NULL,
  PRIMARY KEY (position, owner)
) WITHOUT ROWID"""
_RENEW = (
    "BEGIN; ALTER TABLE responses RENAME TO former;",
    _RESPONSES,
    "INSERT INTO responses SELECT * FROM former ORDER BY position, owner;",
    "DROP TABLE former; COMMIT;",
)


def make_tables(db: sqlite3.Connection, path: Path, damaged: Callable[[str], InputError]) -> None:
    """Make what is missing; a name of ours that stands for a query, which may have no end, is none.

    Responses of an earlier version are taken over, in the order of their ticks.

    Raises:
      InputError: The journal is damaged, or of a later version.
    """
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise InputError(f"{path}: a later version of copriv wrote it; use that version to go on")
    ours = set(_SCHEMA.replace("IF NOT EXISTS ", "").strip("\n;").split(";\n"))
    if _tables(db) - ours == {_FORMER}:
        db.executescript("".join(_RENEW))
    db.executescript(f"{_SCHEMA}PRAGMA user_version = {VERSION};" if version < VERSION else _SCHEMA)
    if _tables(db) != ours:
        raise damaged("tables")


def _tables(db: sqlite3.Connection) -> set[str]:
    """How what is in it was made: tables, and whatever else somebody put there."""
    return {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master")}
