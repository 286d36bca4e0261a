import json
import multiprocessing
import os
import sqlite3
from dataclasses import replace
from fractions import Fraction

import pytest
from click.testing import CliRunner
from ledgers import charge, digest, enroll, open_ledger

from common.errors import BudgetSpentError, OrderError
from owner.cli import cli
from owner.ledger_reading import read_studies, verify_ledger
from owner.ledger_rows import LedgerError, terms_from_text, terms_to_text, text_digest


def test_charges_survive_a_reopening(path):
    ledger = open_ledger(path)
    enroll(ledger)
    charge(ledger, 1)
    charge(ledger, 2)
    ledger.close()
    ledger = open_ledger(path)
    entry = ledger.study("s")
    assert (entry.account.answered, entry.account.digests) == (2, (digest(1), digest(2)))
    assert entry.epsilon_spent == Fraction(2, 9)
    charge(ledger, 3)
    with pytest.raises(OrderError):
        charge(ledger, 4)
    ledger.close()


def test_every_charge_is_synced_to_the_disk(path):
    """In WAL mode only FULL syncs at each commit; no test here can cut the power."""
    ledger = open_ledger(path)
    settings = ("journal_mode", "synchronous", "foreign_keys")
    found = [ledger._held.db.execute(f"PRAGMA {name}").fetchone()[0] for name in settings]
    ledger.close()
    assert found == ["wal", 2, 1]


def test_the_log_says_when_a_ledger_is_new(path, caplog):
    """A disk that is not mounted gives all epsilon back: the line is what shows it."""
    for _ in range(2):
        with caplog.at_level("INFO", "copriv.owner"):
            open_ledger(path).close()
    assert caplog.text.count(f"{path}: a new ledger is made") == 1


@pytest.mark.parametrize("sequence", [0, 2, 3, -1])
def test_a_charge_out_of_order_changes_nothing(path, sequence):
    ledger = open_ledger(path)
    enroll(ledger)
    with pytest.raises(OrderError):
        charge(ledger, sequence)
    assert ledger.study("s").account.answered == 0
    ledger.close()
    assert verify_ledger(path) == []


def test_lifetime_budget(path):
    ledger = open_ledger(path)
    for index in range(3):
        enroll(ledger, f"s{index}")
    assert ledger.epsilon_held() == 1
    with pytest.raises(BudgetSpentError, match="0 of the lifetime budget"):
        enroll(ledger, "s3", epsilon=Fraction(1, 10**9))
    charge(ledger, 1, study="s1")
    ledger.close_study("s1")
    # Two thirds of the closed study's third came back.
    assert ledger.epsilon_held() == 1 - Fraction(2, 9)
    enroll(ledger, "s4", epsilon=Fraction(2, 9))
    assert ledger.epsilon_held() == 1
    ledger.close()


def test_what_is_held_is_what_is_on_the_disk_after_failures(path):
    ledger = open_ledger(path)
    enroll(ledger, "s0")
    with pytest.raises(LedgerError, match="it is in the ledger"):
        enroll(ledger, "s0")
    with pytest.raises(BudgetSpentError):
        enroll(ledger, "s1", epsilon=Fraction(2, 3) + Fraction(1, 10**12))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    ledger._held.db.execute("PRAGMA busy_timeout = 1")
    for change in (lambda: enroll(ledger, "s1"), lambda: ledger.close_study("s0")):
        with pytest.raises(LedgerError, match="locked"):
            change()
    other.execute("ROLLBACK")
    other.close()
    assert ledger.epsilon_held() == Fraction(1, 3)
    ledger.close()
    ledger = open_ledger(path)
    assert [entry.study_id for entry in ledger.studies()] == ["s0"]
    assert ledger.epsilon_held() == Fraction(1, 3)
    ledger.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE accounts SET answered = 0",
        "UPDATE accounts SET promised = 300",
        "UPDATE accounts SET closed = '2026-01-01T00:00:00.000+00:00'",
        "UPDATE accounts SET last_response = x'00'",
        "UPDATE accounts SET checksum = x'00'",
        "DELETE FROM accounts",
    ],
)
def test_what_another_process_wrote_is_not_believed(path, change):
    """Nothing is charged, closed or given back on its word."""
    ledger = open_ledger(path)
    enroll(ledger)
    charge(ledger, 1)
    with sqlite3.connect(path) as db:
        db.execute(change)
    db.close()
    for call in (lambda: charge(ledger, 2), lambda: ledger.close_study("s")):
        with pytest.raises(LedgerError, match="changed while in use"):
            call()
    with pytest.raises(LedgerError, match="changed while in use"):
        ledger.study("s")
    assert ledger.epsilon_held() == Fraction(1, 3)
    with pytest.raises(LedgerError, match="changed while in use"):
        ledger.try_again()
    assert not ledger.works
    ledger.close()


def test_a_closed_study_gives_no_response(path):
    ledger = open_ledger(path)
    enroll(ledger)
    ledger.close_study("s")
    with pytest.raises(OrderError):
        charge(ledger, 1)
    ledger.close()


def test_ledger_belongs_to_the_shard(path):
    open_ledger(path, "old records").close()
    with pytest.raises(LedgerError, match="other records"):
        open_ledger(path, "new records")


def _try_to_open(path, answers):
    try:
        open_ledger(path).close()
        answers.put("opened")
    except LedgerError as error:
        answers.put(str(error))


def test_a_second_process_on_the_same_ledger_is_refused(path):
    ledger = open_ledger(path)
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_try_to_open, args=(path, answers))
    process.start()
    assert "another process holds this ledger" in answers.get(timeout=30)
    process.join()
    ledger.close()


def test_a_truncated_ledger_is_refused(path):
    ledger = open_ledger(path)
    for index in range(200):
        enroll(ledger, f"s{index}", lifetime=Fraction(1000), feature_map="x" * 500)
    ledger.close()
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(LedgerError, match=r"ledger\.sqlite"):
        open_ledger(path)


def test_a_corrupt_ledger_is_refused(path):
    ledger = open_ledger(path)
    enroll(ledger)
    ledger.close()
    content = bytearray(path.read_bytes())
    content[5000:9000] = os.urandom(4000)
    path.write_bytes(bytes(content))
    with pytest.raises(LedgerError, match="ledger"):
        open_ledger(path)


def test_a_file_that_is_no_ledger_is_refused(path):
    path.write_text("these are not the records you are looking for" * 100)
    advice = r"or is damaged; restore the ledger from a copy, or give the path of the right file"
    with pytest.raises(LedgerError, match=advice):
        open_ledger(path)


def test_a_ledger_of_another_schema_is_refused(path):
    open_ledger(path).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    db.close()
    with pytest.raises(LedgerError, match="schema version 99"):
        open_ledger(path)


def test_a_folder_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(LedgerError, match="its folder is not there; mount the disk"):
        open_ledger(tmp_path / "absent" / "ledger.sqlite")


def test_export_leaves_the_fingerprint_out(path):
    """Who guesses a shard could check the guess by it."""
    open_ledger(path, "the fingerprint").close()
    exported = CliRunner().invoke(cli, ["ledger", "export", str(path)]).stdout
    assert json.loads(exported)["meta"]["owner"] == "a"
    assert "the fingerprint" not in exported


def test_export_lists_every_charge_and_each_map_once(path):
    ledger = open_ledger(path)
    for study in ("s", "t"):
        enroll(ledger, study, feature_map="the map", responses=200)
    for sequence in range(1, 131):
        charge(ledger, sequence)
    enroll(ledger, "unasked", epsilon=Fraction(1, 9))
    ledger.close_study("unasked")
    ledger.close()
    exported = json.loads(CliRunner().invoke(cli, ["ledger", "export", str(path)]).stdout)
    (name,) = exported["feature_maps"]
    assert exported["feature_maps"][name] == "the map"
    one, other, unasked = exported["studies"]
    assert one["terms"]["feature_map"] == other["terms"]["feature_map"] == name
    assert unasked["terms"] is None
    assert [found["theta_digest"] for found in one["charges"]] == list(map(digest, range(1, 131)))
    assert [found["sequence"] for found in one["charges"]] == list(range(1, 131))
    assert one["opened"] <= one["charges"][0]["charged"] <= one["charges"][-1]["charged"]


def test_maps_of_studies_that_gave_nothing_do_not_fill_the_disk(path):
    """A large map is kept once, and not after the last study that answered with it or might."""
    ledger = open_ledger(path)
    large = "x" * 2**20
    sizes = []
    for turn in range(12):
        enroll(ledger, f"s{turn}", feature_map=large + str(turn % 2))
        ledger.close_study(f"s{turn}")
        ledger._held.db.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        sizes.append(path.stat().st_size)
    assert sizes[-1] < sizes[1] + 2**16
    assert ledger._held.db.execute("SELECT count(*) FROM texts").fetchone()[0] == 0
    for study in ("asked", "open"):
        enroll(ledger, study, feature_map=large)
    charge(ledger, 1, study="asked")
    ledger.close_study("asked")
    ledger.close_study("open")
    assert ledger.study("asked").agreed_terms.feature_map == large
    assert ledger._held.db.execute("SELECT count(*) FROM texts").fetchone()[0] == 2
    ledger.close()
    assert verify_ledger(path) == []


def test_people_can_read_a_ledger_in_use(path):
    ledger = open_ledger(path)
    enroll(ledger)
    meta, studies = read_studies(path)
    assert meta["owner"] == "a"
    assert [entry.study_id for entry in studies] == ["s"]
    ledger.close()
    with pytest.raises(LedgerError, match="there is no ledger"):
        read_studies(path.with_name("absent.sqlite"))


def test_what_a_closed_study_spent_is_held_after_a_reopening(path):
    ledger = open_ledger(path)
    enroll(ledger)
    charge(ledger, 1)
    ledger.close_study("s")
    enroll(ledger, "unused")
    ledger.close_study("unused")
    ledger.close()
    ledger = open_ledger(path)
    assert ledger.epsilon_held() == ledger.epsilon_spent() == Fraction(1, 9)
    enroll(ledger, "later")
    ledger.close()
    assert verify_ledger(path) == []


def test_a_link_to_a_ledger_is_the_ledger(path):
    """SQLite follows the link: its files and their marks are beside what it leads to."""
    open_ledger(path).close()
    link = path.with_name("link.sqlite")
    link.symlink_to(path)
    ledger = open_ledger(link)
    enroll(ledger)
    charge(ledger, 1)
    ledger.close()
    assert {file.name for file in path.parent.iterdir()} == {
        path.name,
        f"{path.name}.lock",
        "link.sqlite",
    }
    ledger = open_ledger(path)
    assert ledger.responses == 1
    ledger.close()


def test_what_a_study_does_not_use_is_not_in_its_terms_text(make_terms):
    """So terms of an earlier version keep their text, and a new field is agreed on where used."""
    before = terms_to_text(make_terms())
    assert terms_to_text(make_terms(curvature_scale=None, delta=None)) == before
    assert "curvature_scale" not in before
    newton = make_terms(release="newton", responses=1, curvature_scale=0.1)
    text = terms_to_text(newton)
    assert json.loads(text)["curvature_scale"] == 0.1
    assert terms_from_text(text) == replace(newton, feature_map=text_digest(newton.feature_map))
    assert terms_to_text(replace(newton, curvature_scale=0.2)) != text


@pytest.mark.parametrize("command", ["show", "verify", "export"])
def test_a_ledger_whose_owner_ended_before_it_served_holds_nothing(path, command):
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.close()
    # An owner makes it before the ledger.
    path.with_name(f"{path.name}.lock").touch()
    result = CliRunner().invoke(cli, ["ledger", command, str(path)])
    assert isinstance(result.exception, LedgerError)
    assert "the ledger holds nothing yet" in str(result.exception)
    open_ledger(path).close()
