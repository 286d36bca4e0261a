"""The journal lets go of what it cannot use, and a resume reads it once."""

import os
import queue
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from waiting import wait_until

from common.errors import InputError
from common.wire import PROGRAM_VERSION
from learner.training import journal as journal_module
from learner.training.closing import open_promises
from learner.training.enrolment import noted_enrollments
from learner.training.journal import Journal
from learner.training.journal_values import TickEntry, whole_number


def test_a_journal_that_is_none_is_let_go_of(tmp_path):
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"this is no journal" * 100)
    with pytest.raises(InputError, match="cannot be used"):
        Journal(path)
    # Moved away by whoever read the sentence, in the same process.
    path.unlink()
    with closing(Journal(path)) as journal:
        assert list(journal.entries()) == []


@pytest.mark.parametrize("study", ["STUDY.toml ", ""])
def test_what_goes_on_with_a_run_names_the_study_until_its_settings_are_there(tmp_path, study):
    """A disk that was full from the start: what was advised knew of no run."""
    folder = tmp_path / "a run"
    folder.mkdir()
    if not study:
        (folder / "study.toml").touch()
    (folder / "journal.sqlite").write_bytes(b"this is no journal" * 100)
    with pytest.raises(InputError) as told:
        Journal(folder / "journal.sqlite")
    assert f"; copriv train {study}--resume '{folder}' then goes on" in str(told.value)


def test_a_run_folder_that_cannot_be_written_is_no_reason_to_spend_twice(tmp_path):
    """Whoever resumes a run on a disk that is read-only now is not sent to another folder."""
    (tmp_path / "journal.sqlite.lock").mkdir()
    with pytest.raises(InputError, match=r"make it writable, or begin another run with --out"):
        Journal(tmp_path / "journal.sqlite")


def entry(position, owner=0):
    responses = {owner: (position + 1, np.full(2, float(position)))}
    return TickEntry(position=position, time=float(position), wall_seconds=0.0, responses=responses)


def test_a_journal_of_a_later_version_is_left_to_that_version(tmp_path):
    path = tmp_path / "journal.sqlite"
    Journal(path).close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        db.execute("PRAGMA user_version = 3")
        db.execute("ALTER TABLE ticks ADD COLUMN more")
    kept = path.read_bytes()
    with pytest.raises(InputError, match="a later version of copriv wrote it; use that version"):
        Journal(path)
    assert path.read_bytes() == kept


def test_what_another_version_noted_is_not_told_as_damage(tmp_path):
    """Whoever begins a new run for it spends the owners' budgets twice."""
    path = tmp_path / "journal.sqlite"
    with closing(Journal(path)) as journal:
        journal.note("seed", "as 2.0 writes it")
        with pytest.raises(InputError, match=r"it is damaged \(seed\)"):
            journal.read("seed", whole_number)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE meta SET value = '2.0' || char(27) WHERE key = 'version'")
    with closing(Journal(path)) as journal, pytest.raises(InputError) as told:
        journal.read("seed", whole_number)
    assert str(told.value) == (
        f"{path}: copriv 2.0  began it, and this version, {PROGRAM_VERSION}, cannot read all of it "
        "(seed); use that version to go on"
    )


BEFORE_VERSION_2 = """
CREATE TABLE former (
  position INTEGER NOT NULL REFERENCES ticks,
  owner INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  gradient BLOB NOT NULL,
  PRIMARY KEY (position, owner)
) WITHOUT ROWID;
INSERT INTO former SELECT * FROM responses;
DROP TABLE responses;
ALTER TABLE former RENAME TO responses;
PRAGMA writable_schema = 1;
UPDATE sqlite_master SET sql = replace(sql, '"responses"', 'responses');
PRAGMA user_version = {version};
"""


@pytest.mark.parametrize("version", [0, 1])
def test_a_journal_of_an_earlier_version_goes_on_where_it_was(tmp_path, version):
    path = tmp_path / "journal.sqlite"
    with closing(Journal(path)) as journal:
        # As two owners of one tick may be written.
        for position in range(5):
            both = entry(position, 1).responses | entry(position, 0).responses
            journal.append(replace(entry(position), responses=both))
    with closing(sqlite3.connect(path)) as db:
        db.executescript(BEFORE_VERSION_2.format(version=version))
    for known in (5, 6):
        with closing(Journal(path)) as journal:
            assert [past.position for past in journal.past] == list(range(known))
            assert {owner for past in journal.past[:5] for owner in past.responses} == {0, 1}
            for past in journal.past:
                for sequence, gradient in past.responses.values():
                    assert (sequence, *gradient) == (past.position + 1, *[past.position] * 2)
            journal.append(entry(known))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)


def test_an_earlier_journal_that_somebody_added_to_is_left_as_it_was(tmp_path):
    path = tmp_path / "journal.sqlite"
    kept(path)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(BEFORE_VERSION_2.format(version=1))
        db.execute("CREATE TRIGGER more AFTER INSERT ON responses BEGIN DELETE FROM meta; END")
        content = list(db.iterdump())
    with pytest.raises(InputError, match=r"it is damaged \(tables\)"):
        Journal(path)
    with closing(sqlite3.connect(path)) as db:
        assert list(db.iterdump()) == content


@pytest.mark.parametrize("repeats", [1, 4, 16])
def test_an_owner_is_asked_again_only_while_it_repeats_all_that_a_crash_could_lose(
    tmp_path, repeats
):
    path = tmp_path / "journal.sqlite"
    late = []
    with closing(Journal(path)) as journal, closing(sqlite3.connect(path)) as other:
        for position in range(100):
            owner = position % 2
            journal.settle({owner: repeats})
            durable = other.execute("SELECT position FROM ticks").fetchall()
            assert durable == [(each,) for each in range(len(durable))]
            late.append(sum(each % 2 == owner for each in range(len(durable), position)))
            journal.append(entry(position, owner))
        journal.settle()
        assert other.execute("SELECT count(*) FROM ticks").fetchone() == (100,)
    assert max(late) <= repeats - 1
    # Many ticks are written at once where there is room for them.
    assert (max(late) > 0) == (repeats > 1)


def test_a_tick_is_on_the_disk_after_a_moment_also_if_nobody_needs_it(tmp_path):
    path = tmp_path / "journal.sqlite"
    with closing(Journal(path)) as journal, closing(sqlite3.connect(path)) as other:
        journal.settle({0: 16})
        journal.append(entry(0))
        wait_until(lambda: other.execute("SELECT * FROM ticks").fetchall())
        assert other.execute("SELECT position FROM ticks").fetchall() == [(0,)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("ending", [MemoryError, SystemExit])
def test_nobody_waits_for_a_writer_that_ended(tmp_path, monkeypatch, ending):
    """As where memory runs out: the learner waited for ever for what nobody wrote any more."""

    class Ends(journal_module.Counter):
        def subtract(self, *given):
            raise ending

    monkeypatch.setattr(journal_module, "Counter", Ends)
    journal, told = Journal(tmp_path / "journal.sqlite"), queue.SimpleQueue()

    def settle():
        try:
            told.put(journal.settle({0: 1}))
        except MemoryError as error:
            told.put(error)

    journal.append(entry(0))
    threading.Thread(target=settle, daemon=True).start()
    assert isinstance(told.get(timeout=20), MemoryError)
    journal.close()


def test_threads_take_turns_at_the_connection(tmp_path, monkeypatch):
    """Owners of one tick are away at the same time, while ticks are written."""
    busy, overlaps = threading.Lock(), []

    class Watched(sqlite3.Connection):
        def execute(self, *given):
            return self.watched(super().execute, *given)

        def executemany(self, *given):
            return self.watched(super().executemany, *given)

        def watched(self, call, *given):
            if not busy.acquire(blocking=False):
                overlaps.append(given[0])
                return call(*given)
            try:
                time.sleep(0.001)
                return call(*given)
            finally:
                busy.release()

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Watched))
    theta = np.ones(2)

    def work(owner):
        for sequence in range(1, 6):
            journal.append(entry(5 * owner + sequence, owner))
            journal.keep_unanswered(owner, sequence=sequence, theta=theta)
            journal.note(f"of {owner}", str(sequence))
            assert journal.noted(f"of {owner}") == str(sequence)
            assert journal.unanswered()[owner][0] == sequence

    with closing(Journal(tmp_path / "journal.sqlite")) as journal, ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert overlaps == []


def test_a_start_knows_the_ticks_of_earlier_ones_not_its_own(tmp_path):
    path = tmp_path / "journal.sqlite"
    with closing(Journal(path)) as journal:
        assert journal.past == ()
        journal.append(entry(0))
        assert journal.past == ()
    with closing(Journal(path)) as journal:
        assert [past.position for past in journal.past] == [0]


def kept(path):
    """Three ticks of two owners, and what else is noted."""
    with closing(Journal(path)) as journal:
        for position in range(3):
            journal.append(entry(position, position % 2))
        journal.keep_unanswered(1, sequence=9, theta=np.zeros(2))
        journal.note("seed", "7")


def everything(journal):
    """Whatever a resumed run reads."""
    journal.read("seed", whole_number)
    journal.check(largest=[1e6, 1e6], length=2)


VALUES = ("x", b"\0", -1, 2**62, 1e308)
PLACES = (
    *("meta.value", "ticks.position", "ticks.time", "ticks.wall_seconds"),
    *("responses.position", "responses.owner", "responses.sequence", "responses.gradient"),
    *("unanswered.owner", "unanswered.sequence", "unanswered.theta"),
)
# SQLite itself keeps anything but whole numbers out of a key that is one.
IMPOSSIBLE = {
    (place, value)
    for place in ("ticks.position", "unanswered.owner")
    for value in ("x", b"\0", 1e308)
}
# What a run may have left.
HARMLESS = {("ticks.time", -1), ("ticks.time", 2**62), ("ticks.time", 1e308)} | {
    ("ticks.wall_seconds", value) for value in (-1, 2**62, 1e308)
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", VALUES)
def test_a_damaged_value_is_one_sentence(tmp_path, place, value):
    path = tmp_path / "journal.sqlite"
    kept(path)
    table, column = place.split(".")
    with closing(sqlite3.connect(path)) as db:
        change = f"UPDATE OR IGNORE {table} SET {column} = ?"
        if column == "value":
            change += " WHERE key = 'seed'"
        if (place, value) in IMPOSSIBLE:
            with pytest.raises(sqlite3.IntegrityError):
                db.execute(change, (value,))
            return
        db.execute(change, (value,))
        db.commit()
    with closing(Journal(path)) as journal:
        if (place, value) in HARMLESS:
            everything(journal)
            return
        with pytest.raises(InputError, match=r"journal\.sqlite: it is damaged \(.*\); start a new"):
            everything(journal)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1.7e308, -2e6])
def test_a_response_that_was_never_taken_is_one_sentence(tmp_path, value):
    """Before, a resumed run computed with it: it ended in a traceback, or in a wrong model."""
    path = tmp_path / "journal.sqlite"
    kept(path)
    with closing(sqlite3.connect(path)) as db:
        gradient = np.array([0.0, value]).tobytes()
        db.execute("UPDATE responses SET gradient = ? WHERE position = 1", (gradient,))
        db.commit()
    with closing(Journal(path)) as journal, pytest.raises(InputError, match=r"damaged \(ticks\)"):
        everything(journal)


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM responses",
        "DELETE FROM ticks WHERE position = 1",
        "DELETE FROM ticks WHERE position = 0",
        "DELETE FROM responses WHERE position = 1; DELETE FROM ticks WHERE position = 1",
        "UPDATE responses SET gradient = zeroblob(24) WHERE position = 2",
        "INSERT INTO responses SELECT * FROM responses WHERE position = 2",
        "UPDATE responses SET rowid = -rowid",
    ],
)
def test_a_journal_that_lacks_something_is_one_sentence(tmp_path, damage):
    path = tmp_path / "journal.sqlite"
    kept(path)
    with closing(Journal(path)) as journal:
        everything(journal)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(damage)
    with closing(Journal(path)) as journal, pytest.raises(InputError, match="it is damaged"):
        everything(journal)


WITHOUT_END = "WITH RECURSIVE t(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM t)"


@pytest.mark.parametrize("left", [0.3, 0.9])
def test_a_journal_that_was_cut_is_restored_not_only_given_room(tmp_path, left):
    path = tmp_path / "journal.sqlite"
    with closing(Journal(path)) as journal:
        for position in range(200):
            journal.append(entry(position))
    os.truncate(path, int(path.stat().st_size * left))
    with (
        pytest.raises(InputError, match="restore it from a backup") as told,
        closing(Journal(path)) as journal,
    ):
        list(journal.entries())
    assert told.value.exit_status == 2


@pytest.mark.parametrize(
    "change",
    [
        f"DROP TABLE ticks; CREATE VIEW ticks AS {WITHOUT_END} "
        "SELECT x AS position, 0.5 AS time, 0.5 AS wall_seconds FROM t",
        f"CREATE TRIGGER more BEFORE DELETE ON meta BEGIN SELECT count(*) FROM ({WITHOUT_END} "
        "SELECT x FROM t); END",
        "CREATE TABLE more (x)",
    ],
)
def test_a_journal_of_other_tables_is_refused_before_they_are_read(tmp_path, change, monkeypatch):
    path = tmp_path / "journal.sqlite"
    kept(path)
    with closing(sqlite3.connect(path)) as db:
        db.executescript(change)
    began = []
    # What stands there instead may never end.
    monkeypatch.setattr(Journal, "_take_end", lambda journal: began.append("read"))
    with pytest.raises(InputError, match=r"it is damaged \(tables\)"):
        Journal(path)
    assert not began


@pytest.mark.parametrize("text", ["x", "[]", "{}", "null", '"x"', "-1", "1e400", "[" * 5000])
def test_a_note_that_is_not_what_was_written_is_one_sentence(tmp_path, text):
    meanings = {
        "seed": whole_number,
        "enrollments": partial(noted_enrollments, owners=2),
    }
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        for key, meaning in meanings.items():
            journal.note(key, text)
            with pytest.raises(InputError, match=rf"it is damaged \({key}\)"):
                journal.read(key, meaning)
    with closing(Journal(tmp_path / "other.sqlite")) as journal:
        journal.note("closed", text)
        if text != "[]":
            with pytest.raises(InputError, match=r"it is damaged \(closed\)"):
                open_promises(["a"], journal)
