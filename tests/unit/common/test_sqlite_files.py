"""A stranger's SQLite file makes us delete and change no other file."""

import os
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest

from common.errors import InputError
from common.sqlite_files import MAGIC, check_sqlite
from common.tables import TableSource, read_table
from learner.training.journal import Journal
from owner.ledger import Ledger
from owner.ledger_reading import read_studies, verify_ledger
from owner.ledger_rows import LedgerError

# A database of one small table has as many.
PAGE, PAGES, SECTOR = 4096, 2, 512


def journal_naming(another):
    """The rollback journal of a transaction that changed nothing here, and another database."""
    name = bytes(another)
    head = MAGIC + struct.pack(">5I", 0, 0, PAGES, SECTOR, PAGE)
    checksum = sum(struct.unpack(f"{len(name)}b", name)) & 0xFFFFFFFF
    lock_page = 2**30 // PAGE + 1
    tail = struct.pack(">I", lock_page) + name + struct.pack(">2I", len(name), checksum) + MAGIC
    return head.ljust(SECTOR, b"\0") + tail


@pytest.fixture
def precious(tmp_path):
    path = tmp_path.resolve() / "precious.txt"
    path.write_text("kept\n")
    return path


@pytest.fixture
def database(tmp_path, precious):
    """A database whose journal names a file."""
    path = tmp_path / "foreign.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table t (a)")
    beside(path).write_bytes(journal_naming(precious))
    return path


def beside(path):
    return path.with_name(f"{path.name}-journal")


# It is what check_sqlite is for: owners and learners run whatever SQLite their Python has.
@pytest.mark.skipif(sqlite3.sqlite_version_info >= (3, 53, 3), reason="this SQLite does not")
def test_sqlite_itself_deletes_what_a_journal_names(database, precious):
    with closing(sqlite3.connect(database)) as db:
        db.execute("select * from sqlite_master").fetchall()
    assert not precious.exists()


def test_a_journal_that_names_another_file_is_refused(database, precious):
    with pytest.raises(sqlite3.DatabaseError, match="names another file"):
        check_sqlite(database)
    beside(database).unlink()
    os.mkfifo(beside(database))
    with pytest.raises(sqlite3.DatabaseError, match="cannot be read"):
        check_sqlite(database)


def test_a_transaction_that_was_cut_off_is_undone(tmp_path):
    """Its journal names nothing."""
    path = tmp_path / "ours.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("create table t (a)")
        db.execute("pragma cache_size = 1")
        db.execute("begin")
        for _ in range(100):
            db.execute("insert into t values (zeroblob(5000))")
        copy = tmp_path / "copy.sqlite"
        copy.write_bytes(path.read_bytes())
        beside(copy).write_bytes(beside(path).read_bytes())
    assert beside(copy).stat().st_size > SECTOR
    check_sqlite(copy)
    with closing(sqlite3.connect(copy)) as db:
        assert db.execute("select count(*) from t").fetchone() == (0,)


def serve(path):
    Ledger(path, owner="a", fingerprint="f").close()


@pytest.mark.parametrize("use", [Journal, read_studies, verify_ledger, serve])
@pytest.mark.parametrize("is_empty", [False, True])
def test_no_run_folder_and_no_ledger_deletes_another_file(use, is_empty, database, precious):
    if is_empty:
        database.write_bytes(b"")
    with pytest.raises(InputError, match=r"names another file|not a ledger of copriv"):
        use(database)
    assert precious.read_text() == "kept\n"


def test_no_table_that_is_read_deletes_another_file(database, precious):
    source = TableSource(path=database.name, query="select * from t")
    with pytest.raises(InputError, match="readonly"):
        read_table(source, base=database.parent)
    assert precious.read_text() == "kept\n"


def test_a_run_folder_changes_no_database_elsewhere(tmp_path):
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as db:
        db.execute("create table t (a)")
    before = other.read_bytes()
    run = tmp_path / "run"
    run.mkdir()
    (run / "journal.sqlite").symlink_to(other)
    with pytest.raises(InputError, match="it is a link"):
        Journal(run / "journal.sqlite")
    assert other.read_bytes() == before
    assert [path.name for path in run.iterdir()] == ["journal.sqlite"]


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
@pytest.mark.parametrize(
    ("use", "kind"), [(Journal, InputError), (serve, LedgerError), (verify_ledger, LedgerError)]
)
def test_what_lies_beside_as_a_link_is_not_written_through(use, kind, suffix, tmp_path, precious):
    path = tmp_path / "ours.sqlite"
    if use is Journal:
        Journal(path).close()
    else:
        serve(path)
    Path(f"{path}{suffix}").symlink_to(precious)
    with pytest.raises(kind):
        use(path)
    assert precious.read_text() == "kept\n"


def read_noted(path):
    with closing(Journal(path)) as journal:
        journal.noted("study_id")


@pytest.mark.parametrize("use", [read_noted, read_studies, verify_ledger, serve])
def test_a_text_larger_than_any_of_ours_takes_no_memory(use, tmp_path, monkeypatch):
    """SQLite itself lets one text have a gigabyte, which takes memory several times over."""
    monkeypatch.setattr("common.sqlite_files.LARGEST_ROW", most := 2**20)
    path = tmp_path / "ours.sqlite"
    (read_noted if use is read_noted else serve)(path)
    table = "meta VALUES ('study_id'," if use is read_noted else "texts VALUES ('digest',"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"INSERT INTO {table} CAST(zeroblob({most + 1}) AS TEXT))")
    with pytest.raises(InputError, match=r"cannot be used \(string or blob too big\)") as told:
        use(path)
    assert "\n" not in str(told.value)
