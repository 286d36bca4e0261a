from __future__ import annotations

import json
import multiprocessing
import os
import sqlite3
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from common.errors import BudgetSpentError, OrderError
from common.terms import StudyTerms
from owner.cli import cli
from owner.ledger import Ledger
from owner.ledger_rows import LedgerError, read_studies, terms_to_text, verify_ledger


def open_ledger(path: Path, fingerprint: str = "shard") -> Ledger:
    return Ledger(path, owner="a", fingerprint=fingerprint)


def terms(**changes: Any) -> str:
    values: dict[str, Any] = {
        "study_id": "s",
        "loss": "squared",
        "theta_max": 1.0,
        "feature_map": "{}",
        "horizon": 3,
        "responses": 3,
        "epsilon": Fraction(1, 3),
    }
    return terms_to_text(StudyTerms(**(values | changes)))


def enroll(ledger: Ledger, study: str = "s", **changes: Any) -> None:
    values: dict[str, Any] = {
        "study_id": study,
        "learner": "l",
        "terms": terms(),
        "epsilon": Fraction(1, 3),
        "promised": 3,
        "noise_scale": 1.0,
        "insecure_noise": False,
        "lifetime": Fraction(1),
    }
    ledger.open_study(**(values | changes))


def charge(ledger: Ledger, sequence: int, study: str = "s") -> None:
    ledger.charge(study_id=study, sequence=sequence, digest=f"d{sequence}", response=b"r")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def test_charges_survive_a_reopening(path: Path) -> None:
    ledger = open_ledger(path)
    enroll(ledger)
    charge(ledger, 1)
    charge(ledger, 2)
    ledger.close()
    ledger = open_ledger(path)
    entry = ledger.study("s")
    assert entry is not None
    assert (entry.account.answered, entry.account.last_digest) == (2, "d2")
    assert entry.epsilon_spent == Fraction(2, 9)
    charge(ledger, 3)
    with pytest.raises(OrderError):
        charge(ledger, 4)
    ledger.close()


def test_every_charge_is_synced_to_the_disk(path: Path) -> None:
    """In WAL mode only FULL syncs at each commit; no test here can cut the power."""
    ledger = open_ledger(path)
    settings = ("journal_mode", "synchronous", "foreign_keys")
    found = [ledger._db.execute(f"PRAGMA {name}").fetchone()[0] for name in settings]
    ledger.close()
    assert found == ["wal", 2, 1]


@pytest.mark.parametrize("sequence", [0, 2, 3, -1])
def test_a_charge_out_of_order_changes_nothing(path: Path, sequence: int) -> None:
    ledger = open_ledger(path)
    enroll(ledger)
    with pytest.raises(OrderError):
        charge(ledger, sequence)
    assert ledger.study("s").account.answered == 0  # type: ignore[union-attr]
    ledger.close()
    assert verify_ledger(path) == []


def test_lifetime_budget(path: Path) -> None:
    ledger = open_ledger(path)
    for index in range(3):
        enroll(ledger, f"s{index}")
    assert ledger.epsilon_held() == 1
    with pytest.raises(BudgetSpentError, match="0 of the lifetime budget"):
        enroll(ledger, "s3", epsilon=Fraction(1, 10**9))
    charge(ledger, 1, "s1")
    ledger.close_study("s1")
    # Two thirds of the closed study's third came back.
    assert ledger.epsilon_held() == 1 - Fraction(2, 9)
    enroll(ledger, "s4", epsilon=Fraction(2, 9))
    assert ledger.epsilon_held() == 1
    ledger.close()


def test_what_is_held_is_counted_again_when_it_may_have_changed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum kept in memory equals the disk's: after failures, and after another writer."""
    ledger = open_ledger(path)
    enroll(ledger, "s0")
    with pytest.raises(LedgerError, match="UNIQUE"):
        enroll(ledger, "s0")
    assert ledger.epsilon_held() == Fraction(1, 3)
    with pytest.raises(BudgetSpentError):
        enroll(ledger, "s1", epsilon=Fraction(2, 3) + Fraction(1, 10**12))
    assert ledger.epsilon_held() == Fraction(1, 3)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE studies SET epsilon = '5/6'")
    db.close()
    assert ledger.epsilon_held() == Fraction(5, 6)
    with pytest.raises(BudgetSpentError, match="1/6 of the lifetime"):
        enroll(ledger, "s1")
    ledger.close()


def test_a_closed_study_gives_no_response(path: Path) -> None:
    ledger = open_ledger(path)
    enroll(ledger)
    ledger.close_study("s")
    with pytest.raises(OrderError):
        charge(ledger, 1)
    ledger.close()


def test_ledger_belongs_to_the_shard(path: Path) -> None:
    open_ledger(path, "old records").close()
    with pytest.raises(LedgerError, match="other records"):
        open_ledger(path, "new records")


def _try_to_open(path: Path, answers: Any) -> None:
    try:
        open_ledger(path).close()
        answers.put("opened")
    except LedgerError as error:
        answers.put(str(error))


def test_a_second_process_on_the_same_ledger_is_refused(path: Path) -> None:
    ledger = open_ledger(path)
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_try_to_open, args=(path, answers))
    process.start()
    assert "another process holds this ledger" in answers.get(timeout=30)
    process.join()
    ledger.close()


def test_a_truncated_ledger_is_refused(path: Path) -> None:
    ledger = open_ledger(path)
    for index in range(200):
        enroll(ledger, f"s{index}", lifetime=Fraction(1000), terms=terms(feature_map="x" * 500))
    ledger.close()
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(LedgerError, match=r"ledger\.sqlite"):
        open_ledger(path)


def test_a_corrupt_ledger_is_refused(path: Path) -> None:
    ledger = open_ledger(path)
    enroll(ledger)
    ledger.close()
    content = bytearray(path.read_bytes())
    content[5000:9000] = os.urandom(4000)
    path.write_bytes(bytes(content))
    with pytest.raises(LedgerError, match="ledger"):
        open_ledger(path)


def test_a_file_that_is_no_ledger_is_refused(path: Path) -> None:
    path.write_text("these are not the records you are looking for" * 100)
    with pytest.raises(LedgerError, match="restore the ledger"):
        open_ledger(path)


def test_a_ledger_that_lost_responses_is_refused(path: Path, tmp_path: Path) -> None:
    ledger = open_ledger(path)
    enroll(ledger)
    charge(ledger, 1)
    ledger.close()
    old = path.read_bytes()
    ledger = open_ledger(path)
    charge(ledger, 2)
    ledger.close()
    path.write_bytes(old)
    with pytest.raises(LedgerError, match="lost responses"):
        open_ledger(path)
    path.unlink()
    with pytest.raises(LedgerError, match="responses were given before"):
        open_ledger(path)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_ledger_that_was_moved_takes_no_charge(path: Path, replaced: bool) -> None:
    ledger = open_ledger(path)
    enroll(ledger)
    charge(ledger, 1)
    away = path.with_name("away.sqlite")
    path.rename(away)
    if replaced:
        path.write_bytes(away.read_bytes())
    for _ in range(2):
        with pytest.raises(LedgerError, match="moved or replaced while in use"):
            charge(ledger, 2)
        with pytest.raises(LedgerError, match="moved or replaced while in use"):
            enroll(ledger, "other")
    away.rename(path)
    charge(ledger, 2)
    ledger.close()
    assert verify_ledger(path) == []


def test_a_ledger_of_another_schema_is_refused(path: Path) -> None:
    open_ledger(path).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    db.close()
    with pytest.raises(LedgerError, match="schema version 99"):
        open_ledger(path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot be written"):
        open_ledger(tmp_path / "absent" / "ledger.sqlite")


def test_verify_finds_a_charge_that_is_not_counted(path: Path) -> None:
    ledger = open_ledger(path)
    enroll(ledger)
    charge(ledger, 1)
    ledger.close()
    assert verify_ledger(path) == []
    with sqlite3.connect(path) as db:
        db.execute("UPDATE accounts SET answered = 0")
    db.close()
    assert verify_ledger(path) == [
        "study s: 0 responses counted, 1 charges listed, numbered 1 to 1"
    ]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE accounts SET promised = 300", "300 responses for epsilon 1/3 are noted"),
        ("UPDATE studies SET epsilon = '1/30'", "its terms say 3 for 1/3"),
        ("UPDATE studies SET terms = '{'", "the terms in the ledger cannot be read"),
        ("UPDATE studies SET terms = '{}'", "the terms in the ledger cannot be read"),
    ],
)
def test_verify_finds_a_promise_that_is_not_the_studys(path: Path, damage: str, words: str) -> None:
    ledger = open_ledger(path)
    enroll(ledger)
    ledger.close()
    with sqlite3.connect(path) as db:
        db.execute(damage)
    db.close()
    (finding,) = verify_ledger(path)
    assert words in finding


def test_an_amount_that_is_no_number_is_refused(path: Path) -> None:
    ledger = open_ledger(path)
    enroll(ledger)
    ledger.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE studies SET epsilon = '1/0'")
    db.close()
    with pytest.raises(LedgerError, match="which is no number"):
        read_studies(path)


def test_export_leaves_the_fingerprint_out(path: Path) -> None:
    """Who guesses a shard could check the guess by it."""
    open_ledger(path, "the fingerprint").close()
    exported = CliRunner().invoke(cli, ["ledger", "export", str(path)]).stdout
    assert json.loads(exported)["meta"]["owner"] == "a"
    assert "the fingerprint" not in exported


def test_people_can_read_a_ledger_in_use(path: Path) -> None:
    ledger = open_ledger(path)
    enroll(ledger)
    meta, studies = read_studies(path)
    assert meta["owner"] == "a"
    assert [entry.study_id for entry in studies] == ["s"]
    ledger.close()
    with pytest.raises(LedgerError, match="there is no ledger"):
        read_studies(path.with_name("absent.sqlite"))


def test_what_a_closed_study_spent_is_held_after_a_reopening(path: Path) -> None:
    ledger = open_ledger(path)
    enroll(ledger)
    charge(ledger, 1)
    ledger.close_study("s")
    enroll(ledger, "unused")
    ledger.close_study("unused")
    ledger.close()
    ledger = open_ledger(path)
    assert ledger.epsilon_held() == ledger.epsilon_spent() == Fraction(1, 9)
    ledger.close()
