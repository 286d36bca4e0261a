"""A ledger that is not what was written, or not all of it, is refused in one sentence."""

import errno
import fcntl
import json
import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from ledgers import charge, enroll, open_ledger
from waiting import killed_at_its_end

from owner.ledger import Ledger
from owner.ledger_books import Books
from owner.ledger_checks import check_mark, schema_version
from owner.ledger_files import ATTRIBUTE, READ_BYTES, LedgerFiles, Mark, read_mark
from owner.ledger_reading import read_history, read_studies, verify_ledger
from owner.ledger_rows import LedgerError
from owner.ledger_tables import (
    BLOCK_BYTES,
    AccountRow,
    StudyRow,
    block_checksum,
    insert_account,
    insert_study,
    row_checksum,
    update_account,
    write_meta,
)

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def filled(path):
    """Two studies of 150 responses, one of them asked 130 times, and one that was closed."""
    ledger = open_ledger(path)
    for study in ("s", "t"):
        enroll(ledger, study, responses=150)
    for sequence in range(1, 131):
        charge(ledger, sequence)
    charge(ledger, 1, study="t")
    ledger.close_study("t")
    ledger.close()


DAMAGE = {
    "UPDATE studies SET epsilon = '1/4' WHERE number = 1": "study 's': its row is not what",
    "UPDATE studies SET noise_scale = 0.5 WHERE number = 2": "study 't': its row is not what",
    "UPDATE studies SET learner = 'm' WHERE number = 2": "study 't': its row is not what",
    "UPDATE studies SET epsilon = '1/0'": "cannot be used",
    "UPDATE studies SET epsilon = '1e5'": "cannot be used",
    "UPDATE studies SET number = 3 WHERE number = 2": "study 't': its row is not what",
    "DELETE FROM studies WHERE number = 2": "account number 2 has no study",
    "UPDATE accounts SET answered = 66 WHERE number = 1": "study s: its account is not what",
    "UPDATE accounts SET closed = NULL": "study t: its account is not what",
    "UPDATE accounts SET promised = 300": "study s: its account is not what",
    "UPDATE accounts SET last_response = x'00' WHERE number = 2": "study t: its account is not",
    "UPDATE accounts SET recent = recent || recent": "cannot be used",
    "DELETE FROM accounts WHERE number = 1": "study s: its account is missing",
    "UPDATE charges SET records = zeroblob(2560)": "a block of its charges is not what",
    "UPDATE charges SET position = position + 10": "a block of its charges is not what",
    "DELETE FROM charges WHERE position % 2 = 0": "a block of its charges is not what",
    "DELETE FROM charges": "study s: 130 responses counted, 2 charges listed",
    "UPDATE texts SET text = text || ' '": "is not what was written",
    "DELETE FROM texts": "3 texts of studies are missing",
    "INSERT INTO texts VALUES ('a', 'b')": "the text 'a' is not what was written",
    "UPDATE meta SET value = 'b' WHERE key = 'owner'": "the note 'owner' is not what",
    "DELETE FROM meta WHERE key = 'created'": "a note about the ledger is missing",
    "CREATE TABLE more (a)": "its tables are not those of version 3",
    "ALTER TABLE charges RENAME COLUMN checksum TO sum": "its tables are not those of version 3",
    "UPDATE studies SET study_id = CAST(x'ff' AS TEXT) WHERE number = 1": "cannot be used",
    "UPDATE texts SET text = zeroblob(3)": "cannot be used",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_row_that_is_not_what_was_written_is_refused(path, damage):
    filled(path)
    with sqlite3.connect(path) as db:
        db.execute(damage)
    db.close()
    with pytest.raises(LedgerError) as refused:
        open_ledger(path)
    found = [str(refused.value)]
    for look in (verify_ledger, read_studies):
        try:
            found += map(str, look(path))
        except LedgerError as error:
            found.append(str(error))
    assert any(DAMAGE[damage] in sentence for sentence in found), found
    assert len(found) > 2
    assert all("\n" not in sentence for sentence in found)


def test_rows_of_two_ledgers_do_not_mix(path):
    """An account of the same study, from another ledger where less was answered."""
    filled(path)
    other = path.with_name("other.sqlite")
    ledger = open_ledger(other)
    enroll(ledger, responses=150)
    ledger.close()
    with sqlite3.connect(path) as db:
        db.execute("ATTACH ? AS other", (str(other),))
        db.execute("REPLACE INTO accounts SELECT * FROM other.accounts")
    db.close()
    with pytest.raises(LedgerError, match="study s: its account is not what was written"):
        open_ledger(path)


def test_studies_of_two_ledgers_do_not_mix(path):
    """A whole study, which another ledger holds in the same place and asked less of."""
    for name, first in ((path, "s"), (path.with_name("other.sqlite"), "r")):
        ledger = open_ledger(name)
        enroll(ledger, first)
        enroll(ledger, "t")
        if name == path:
            charge(ledger, 1, study="t")
        ledger.close()
    with sqlite3.connect(path) as db:
        db.execute("ATTACH ? AS other", (str(path.with_name("other.sqlite")),))
        for table in ("studies", "accounts"):
            db.execute(f"REPLACE INTO {table} SELECT * FROM other.{table} WHERE number = 2")
    db.close()
    with pytest.raises(LedgerError, match="study 't': its row is not what was written"):
        open_ledger(path)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (0, "a block of its charges is not what was written"),
        (1, "its charges are not those that its account was written with"),
    ],
)
def test_blocks_of_other_charges_are_refused(path, block, words):
    """Each with the checksum that it would have in its place."""
    filled(path)
    with sqlite3.connect(path) as db:
        rows = db.execute("SELECT position, checksum FROM charges ORDER BY position").fetchall()
        before = rows[block - 1][1] if block else b""
        position, records = rows[block][0], bytes(BLOCK_BYTES)
        checksum = block_checksum(before, position, records)
        db.execute(
            "UPDATE charges SET records = ?, checksum = ? WHERE position = ?",
            (records, checksum, position),
        )
    db.close()
    with pytest.raises(LedgerError, match=words):
        open_ledger(path)


def test_a_checksum_tells_where_a_value_ends_and_of_which_type_it_is():
    assert row_checksum(b"a", b"b") != row_checksum(b"abytes:b")
    assert row_checksum(b"a", b"bc") != row_checksum(b"ab", b"c")
    assert row_checksum("a") != row_checksum(b"'a'")


def test_an_older_account_put_back_in_use_is_not_believed(path):
    """It has the checksum that it was written with."""
    ledger = open_ledger(path)
    enroll(ledger)
    with sqlite3.connect(path) as db:
        older = db.execute("SELECT * FROM accounts").fetchone()
    charge(ledger, 1)
    charge(ledger, 2)
    with db:
        db.execute("REPLACE INTO accounts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", older)
    db.close()
    for call in (lambda: charge(ledger, 3), lambda: ledger.study("s")):
        with pytest.raises(LedgerError, match="changed while in use"):
            call()
    ledger.close()


def test_a_text_that_was_changed_in_use_is_not_believed(path):
    ledger = open_ledger(path)
    enroll(ledger)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE texts SET text = text || ' '")
    db.close()
    with pytest.raises(LedgerError, match="changed while in use"):
        ledger.study("s")
    ledger.close()


def forge(path, **changes):
    """Change the first account and write the checksum that belongs to it."""
    with sqlite3.connect(path) as db:
        *values, checksum = db.execute("SELECT * FROM studies").fetchone()
        assert StudyRow(*values).checksum(b"") == checksum
        account = AccountRow(*db.execute("SELECT * FROM accounts").fetchone()[:-1])
        changed, before = account._replace(**changes), account.checksum(checksum)
        assert update_account(db, changed, checksum, before=account, checksum=before)
    db.close()


def test_verify_finds_a_charge_that_is_not_counted(path):
    ledger = open_ledger(path)
    enroll(ledger)
    charge(ledger, 1)
    ledger.close()
    assert verify_ledger(path) == []
    forge(path, answered=0)
    assert verify_ledger(path) == ["study s: 0 responses counted, 1 charges listed"]


def test_verify_finds_a_promise_that_is_not_the_studys(path):
    ledger = open_ledger(path)
    enroll(ledger)
    ledger.close()
    forge(path, promised=300)
    (finding,) = verify_ledger(path)
    assert "300 responses for epsilon 1/3 are noted, its terms say 3 for 1/3" in finding
    with pytest.raises(LedgerError, match="300 responses for epsilon 1/3 are noted"):
        open_ledger(path)


@pytest.mark.parametrize("value", ["x\x1b[2J\u202e\nall is well", b"\xff"], ids=["text", "bytes"])
@pytest.mark.parametrize(
    ("row", "name"),
    [
        ("meta", "owner"),
        ("meta", "created"),
        ("meta", "schema_version"),
        ("study", "study_id"),
        ("study", "learner"),
        ("study", "opened"),
        ("account", "closed"),
        ("account", "promised"),
    ],
)
def test_a_ledger_that_a_stranger_made_moves_no_cursor_though_its_checksums_fit(
    path, row, name, value
):
    ledger = open_ledger(path)
    enroll(ledger)
    ledger.close()
    change = {name: value}
    with sqlite3.connect(path) as db:
        study = StudyRow(*db.execute("SELECT * FROM studies").fetchone()[:-1])
        account = AccountRow(*db.execute("SELECT * FROM accounts").fetchone()[:-1])
        for table in ("studies", "accounts"):
            db.execute(f"DELETE FROM {table}")
        if row == "meta":
            write_meta(db, dict(db.execute("SELECT key, value FROM meta")) | change)
        before = insert_study(db, study._replace(**change) if row == "study" else study, b"")
        insert_account(db, account._replace(**change) if row == "account" else account, before)
    db.close()
    for look in (read_studies, read_history, verify_ledger, open_ledger):
        try:
            said = look(path)
        except LedgerError as error:
            said = [str(error)]
        assert isinstance(said, list)
        assert said
        assert all(sentence.isprintable() for sentence in said)


@pytest.mark.parametrize(
    "change",
    [
        # A query without an end would not be refused but waited for, by whoever reads it.
        "ALTER TABLE meta RENAME TO told; CREATE VIEW meta AS SELECT * FROM told",
        "CREATE TRIGGER more AFTER UPDATE ON accounts BEGIN SELECT 1; END",
        # Nor would a value that is computed as it is read, a gigabyte for each row of some bytes.
        "ALTER TABLE meta RENAME TO told; CREATE TABLE meta (key TEXT, value AS (zeroblob(9)))",
        "ALTER TABLE meta RENAME TO told; CREATE TABLE Meta (key TEXT, value AS (zeroblob(9)))",
    ],
)
def test_a_ledger_with_queries_of_somebody_is_refused_before_they_are_asked(path, change):
    ledger = open_ledger(path)
    enroll(ledger)
    ledger.close()
    with closing(sqlite3.connect(path)) as db:
        db.executescript(change)
    asked = []
    with closing(sqlite3.connect(path)) as db:
        db.set_trace_callback(asked.append)
        with pytest.raises(LedgerError, match="its tables are not those of version 3"):
            schema_version(db, path)
    assert not any("FROM meta" in one for one in asked)
    for read in (read_studies, verify_ledger, open_ledger):
        with pytest.raises(LedgerError, match="its tables are not those of version 3"):
            read(path)


def test_a_ledger_that_is_refused_is_left_as_it_is(path):
    """Its log included, though SQLite would move it into the ledger and delete it."""

    def live():
        ledger = open_ledger(path)
        enroll(ledger)
        charge(ledger, 1)

    killed_at_its_end(live)
    log = Path(f"{path}-wal")
    content = bytearray(log.read_bytes())
    content[-3000] ^= 1
    log.write_bytes(content)
    kept = path.read_bytes()
    for _ in range(2):
        with pytest.raises(LedgerError, match="has lost responses or studies"):
            open_ledger(path)
    assert (log.read_bytes(), path.read_bytes()) == (content, kept)
    content[-3000] ^= 1
    log.write_bytes(content)
    ledger = open_ledger(path)
    assert ledger.responses == 1
    ledger.close()


def test_a_ledger_that_lost_responses_is_refused(path):
    ledger = open_ledger(path)
    enroll(ledger)
    charge(ledger, 1)
    ledger.close()
    old = path.read_bytes()
    ledger = open_ledger(path)
    charge(ledger, 2)
    ledger.close()
    path.write_bytes(old)
    for look in (open_ledger, verify_ledger, read_studies):
        with pytest.raises(LedgerError, match="lost responses"):
            look(path)
    path.unlink()
    with pytest.raises(LedgerError, match="responses were given before"):
        open_ledger(path)
    assert not path.exists()


def test_a_ledger_that_lost_one_change_is_refused(path):
    books = Books({}, changes=4, responses=2)
    assert books.generation == 4
    check_mark(books, Mark(4, responses=2), path)
    for ahead in (Mark(5), Mark(responses=3)):
        with pytest.raises(LedgerError, match="lost responses"):
            check_mark(books, ahead, path)


def has_attributes(folder):
    try:
        os.setxattr(folder, ATTRIBUTE, b"1")
    except OSError:
        return False
    return True


@pytest.mark.parametrize("survivor", ["", "-wal", "-shm", "-given", ".lock"])
def test_each_file_alone_tells_how_far_the_ledger_has_come(path, survivor):
    if not has_attributes(path.parent):
        pytest.skip("this file system keeps no extended attributes")
    ledger = open_ledger(path)
    enroll(ledger)
    charge(ledger, 1)
    ledger._held.db.execute("PRAGMA wal_checkpoint").fetchall()
    charge(ledger, 2)
    assert read_mark(path) == Mark(4, noted=1)
    ledger.close_study("s")
    copies = path.parent / "copies"
    copies.mkdir()
    shutil.copy2(f"{path}{survivor}", copies)
    ledger.close()
    assert not Path(f"{path}-given").exists()
    # Opened, charged three times, one of them taken back, closed.
    assert read_mark(copies / path.name) == Mark(6)
    with pytest.raises(LedgerError, match=r"lost responses|given before|cannot be used"):
        Ledger(copies / path.name, owner="a", fingerprint="shard")


def test_a_copy_of_its_file_alone_is_no_new_ledger(path, caplog):
    """Until it is written down, all that was promised and spent stands in the -wal alone."""
    caplog.set_level("WARNING")
    ledger = open_ledger(path)
    assert not caplog.records
    enroll(ledger)
    charge(ledger, 1)
    (path.parent / "copies").mkdir()
    copy = path.parent / "copies" / path.name
    shutil.copy(path, copy)
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"without the files beside it; restore it with all"):
            Ledger(copy, owner="a", fingerprint="shard")
    assert [file.name for file in copy.parent.iterdir()] == [path.name]
    ledger.close()


def test_a_copy_of_its_file_alone_that_may_lack_charges_is_warned_of(path, caplog):
    """A copy of after an orderly end is whole; nothing tells it from one of a running owner."""
    caplog.set_level("WARNING")
    ledger = open_ledger(path)
    enroll(ledger)
    ledger.close()
    open_ledger(path).close()
    assert not caplog.records
    (path.parent / "copies").mkdir()
    copy = path.parent / "copies" / path.name
    shutil.copy(path, copy)
    Ledger(copy, owner="a", fingerprint="shard").close()
    assert f"{copy}: nothing beside it shows how far it had come" in caplog.text
    caplog.clear()
    Ledger(copy, owner="a", fingerprint="shard").close()
    assert not caplog.records


@pytest.mark.parametrize("behind", ["the lock", "the ledger"])
def test_the_furthest_of_the_marks_counts(path, behind):
    if not has_attributes(path.parent):
        pytest.skip("this file system keeps no extended attributes")
    ledger = open_ledger(path)
    enroll(ledger)
    older = Path(f"{path}.lock").read_bytes()
    charge(ledger, 1)
    ledger.close()
    if behind == "the lock":
        Path(f"{path}.lock").write_bytes(older)
    else:
        os.setxattr(path, ATTRIBUTE, older)
    # Opened, charged three times at once, two of them taken back.
    assert read_mark(path) == Mark(5)


def test_without_attributes_the_lock_tells_and_the_log_warns(path, monkeypatch, caplog):
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "setxattr", unsupported)
    ledger = open_ledger(path)
    old = path.read_bytes()
    enroll(ledger)
    charge(ledger, 1)
    ledger.close()
    assert caplog.text.count("keeps no extended attributes") == 1
    path.write_bytes(old)
    with pytest.raises(LedgerError, match="given before"):
        open_ledger(path)


def test_a_ledger_is_kept_on_a_disk_whose_flock_takes_every_byte(path, monkeypatch):
    """NFS makes such a lock of flock; SQLite found each of its own bytes taken, by its owner."""

    def as_nfs(handle, operation):
        assert operation == fcntl.LOCK_EX | fcntl.LOCK_NB
        whole = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, whole)

    monkeypatch.setattr(fcntl, "flock", as_nfs)
    filled(path)
    ledger = open_ledger(path)
    with pytest.raises(LedgerError, match="another process holds this ledger"):
        open_ledger(path)
    # Under another name there is another lock file, and the database is held all the same.
    other = path.with_name("other.sqlite")
    os.link(path, other)
    with pytest.raises(LedgerError, match="another process holds this ledger"):
        open_ledger(other)
    ledger.close()


def test_where_the_system_has_no_locks_on_bytes_of_open_files_the_whole_is_locked(
    path, monkeypatch
):
    def unknown(*_):
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(fcntl, "fcntl", unknown)
    ledger = open_ledger(path)
    other = path.with_name("other.sqlite")
    os.link(path, other)
    with pytest.raises(LedgerError, match="another process holds this ledger"):
        open_ledger(other)
    ledger.close()


def test_locks_that_other_machines_do_not_see_are_warned_of(path, mounted, caplog):
    mounted("nfs", "rw,vers=3,local_lock=none")
    open_ledger(path).close()
    assert "hides" not in caplog.text
    mounted("nfs", "rw,nolock,vers=3")
    open_ledger(path).close()
    assert f"{path}: its disk (nfs, nolock) hides this machine's locks from others" in caplog.text


def test_a_mark_that_is_damaged_is_refused(path):
    filled(path)
    lock = Path(f"{path}.lock")
    whole = lock.read_bytes()
    for content in (whole[:-2], whole.replace(b"1", b"0"), b"generation 3", b"\xff" * 42):
        lock.write_bytes(content)
        with pytest.raises(LedgerError, match=r"\.lock: the mark .* is damaged"):
            open_ledger(path)
    # What a power failure leaves of a file that was not synced: the others tell.
    lock.write_bytes(b"\0" * len(whole))
    open_ledger(path).close()
    assert lock.read_bytes() == whole


def moved(path, suffix, *, replaced):
    """Where a file of the ledger is now; another may be in its place."""
    file = Path(f"{path}{suffix}")
    away = file.rename(path.with_name("away"))
    if replaced:
        shutil.copy2(away, file)
    return away


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-given", ".lock"])
def test_a_ledger_that_was_moved_takes_no_charge(path, suffix, replaced):
    ledger = open_ledger(path)
    enroll(ledger)
    charge(ledger, 1)
    away = moved(path, suffix, replaced=replaced)
    for _ in range(2):
        for call in (lambda: charge(ledger, 2), lambda: enroll(ledger, "other")):
            with pytest.raises(LedgerError, match="moved or replaced while in use"):
                call()
    away.replace(f"{path}{suffix}")
    charge(ledger, 2)
    ledger.close()
    assert verify_ledger(path) == []


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-given", ".lock"])
def test_a_ledger_that_is_moved_after_long_takes_no_charge(path, suffix, replaced, monkeypatch):
    """While nothing changes in its folder, its files are not looked at one by one."""
    looked = []
    look = LedgerFiles.check_in_place

    def looks(files):
        looked.append(1)
        look(files)

    monkeypatch.setattr("owner.ledger_files.SURELY_OLD", 0)
    monkeypatch.setattr(LedgerFiles, "check_in_place", looks)
    ledger = open_ledger(path)
    enroll(ledger, responses=50)
    # Longer than a tick of the clock that folders have their times from.
    time.sleep(0.05)
    for sequence in range(1, 21):
        charge(ledger, sequence)
    before = len(looked)
    charge(ledger, 21)
    assert len(looked) == before < 10
    away = moved(path, suffix, replaced=replaced)
    for _ in range(2):
        with pytest.raises(LedgerError, match="moved or replaced while in use"):
            charge(ledger, 22)
    away.replace(f"{path}{suffix}")
    charge(ledger, 22)
    ledger.close()
    assert verify_ledger(path) == []


def test_a_ledger_whose_folder_is_moved_takes_no_charge(tmp_path):
    folder = tmp_path / "here"
    folder.mkdir()
    ledger = open_ledger(folder / "ledger.sqlite")
    enroll(ledger, responses=9)
    charge(ledger, 1)
    folder.rename(tmp_path / "there")
    for copied in (False, True):
        if copied:
            shutil.copytree(tmp_path / "there", folder)
        with pytest.raises(LedgerError, match="moved or replaced while in use"):
            charge(ledger, 2)
    ledger.close()


def test_a_ledger_that_was_cut_short_takes_no_charge(path):
    ledger = open_ledger(path)
    enroll(ledger)
    log = Path(f"{path}-wal")
    content = log.read_bytes()
    os.truncate(log, 4096)
    with pytest.raises(LedgerError, match="cut short"):
        charge(ledger, 1)
    log.write_bytes(content)
    charge(ledger, 1)
    ledger.close()
    assert verify_ledger(path) == []


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize(
    "gone", [[".lock"], ["", ".lock"], ["", "-wal", ".lock"], ["-shm"], ["-given"]]
)
def test_files_that_are_gone_let_no_second_owner_in(path, gone, copied):
    """Whichever file both would share, deleted or replaced by a copy of its own."""
    ledger = open_ledger(path)
    enroll(ledger)
    for suffix in gone:
        moved(path, suffix, replaced=copied)
    with pytest.raises(LedgerError, match=r"another process holds|given before"):
        open_ledger(path)
    ledger.close()


# What may become of a ledger with a flipped bit.
KINDS = ("nothing changed", "refused", "spent to the end")


def test_a_flipped_bit_is_refused_or_changes_nothing():
    command = [sys.executable, str(TOOLS / "flip_ledger.py"), "--flips", "300", "--serves", "1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr[-3000:] + result.stdout
    counted = json.loads(result.stdout)
    for look in ("served", "shown"):
        kinds = [counted[f"{look}: {kind}"] for kind in KINDS]
        assert sum(kinds) == 300
        assert min(kinds) > 15


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("suffix", ["-given", ".lock"])
def test_what_is_no_file_in_the_place_of_one_is_refused_and_not_waited_for(path, suffix, make):
    filled(path)
    beside = Path(f"{path}{suffix}")
    beside.unlink(missing_ok=True)
    make(beside)
    told = rf"\(ledger.sqlite{suffix} is no regular file\); move that away, or restore the"
    for use in (open_ledger, read_studies, verify_ledger):
        with pytest.raises(LedgerError, match=told):
            use(path)


@pytest.mark.parametrize("is_ledger", [False, True])
def test_a_hole_of_a_terabyte_is_not_read_through(path, is_ledger, monkeypatch):
    if is_ledger:
        filled(path)
    else:
        path.touch()
    held = path.stat().st_blocks * 512
    os.truncate(path, 2**40)
    read, preadv = [], os.preadv

    def counted(*arguments):
        read.append(preadv(*arguments))
        assert sum(read) <= held + READ_BYTES
        return read[-1]

    monkeypatch.setattr("os.preadv", counted)
    # SQLite knows how long its file is.
    if is_ledger:
        open_ledger(path).close()
    else:
        with pytest.raises(LedgerError, match="this file is not a ledger of copriv"):
            open_ledger(path)


def test_a_loop_of_links_and_a_pipe_are_no_ledger(path):
    path.symlink_to("other.sqlite")
    path.with_name("other.sqlite").symlink_to(path.name)
    with pytest.raises(LedgerError, match="cannot be written"):
        open_ledger(path)
    with pytest.raises(LedgerError, match="there is no ledger"):
        verify_ledger(path)
    pipe = path.with_name("pipe.sqlite")
    os.mkfifo(pipe)
    with pytest.raises(LedgerError, match=r"restore it|regular file"):
        open_ledger(pipe)
