"""A ledger of schema version 2 opens, goes on, and means the same."""

import hashlib
import json
import sqlite3
from fractions import Fraction

import pytest
from ledgers import open_ledger

from common.errors import BudgetSpentError, OrderError
from common.terms import StudyTerms
from owner.ledger_reading import read_for_shard, read_history, read_studies, verify_ledger
from owner.ledger_rows import LedgerError
from owner.ledger_tables import charges_of
from owner.ledger_upgrade import OLD_SCHEMA

MAP = '{"columns":["a"]}' + "x" * 5000
TIME = "2026-01-02T03:04:05.678+00:00"
# Name: promised, answered, closed.
STUDIES = {"whole": (200, 200, True), "under-way": (150, 129, False), "unasked": (9, 0, True)}


def theta(study, sequence):
    return hashlib.sha256(f"{study} {sequence}".encode()).hexdigest()


def old_terms(study, promised):
    """Terms as version 0.1 wrote them: every field, the whole map."""
    return {
        "clip": None,
        "epsilon": "1/3",
        "feature_map": MAP,
        "horizon": 200,
        "kappa": 1,
        "loss": "squared",
        "release": "gradient",
        "responses": promised,
        "study_id": study,
        "theta_max": 1.0,
    }


def terms(study):
    values = old_terms(study, STUDIES[study][0])
    return StudyTerms(**values | {"epsilon": Fraction(1, 3)})


@pytest.fixture
def path(tmp_path):
    """A ledger of version 2, as its program left it."""
    path = tmp_path / "ledger.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(OLD_SCHEMA)
        meta = {"schema_version": "2", "owner": "a", "shard_fingerprint": "shard", "created": TIME}
        db.executemany("INSERT INTO meta VALUES (?, ?)", (meta | {"last_opened": TIME}).items())
        for number, (study, (promised, answered, closed)) in enumerate(STUDIES.items()):
            text = json.dumps(old_terms(study, promised), sort_keys=True, separators=(",", ":"))
            opened = f"2026-01-0{number + 1}T00:00:00.000+00:00"
            row = (study, "ann", "1/3", 0.1 + number, 0, opened, text)
            db.execute("INSERT INTO studies VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            last = theta(study, answered) if answered else ""
            account = (
                study,
                promised,
                answered,
                TIME if closed else None,
                last,
                b"last" * answered,
            )
            db.execute("INSERT INTO accounts VALUES (?, ?, ?, ?, ?, ?)", account)
            db.executemany(
                "INSERT INTO charges VALUES (?, ?, ?, ?)",
                ((study, k, theta(study, k), TIME) for k in range(1, answered + 1)),
            )
    db.close()
    path.with_name("ledger.sqlite.lock").write_text(f"{329:>20}\n")
    return path


def check_meaning(entries):
    for entry, (study, (promised, answered, closed)) in zip(entries, STUDIES.items(), strict=True):
        assert (entry.study_id, entry.learner, entry.epsilon) == (study, "ann", Fraction(1, 3))
        assert entry.noise_scale == 0.1 + list(STUDIES).index(study)
        account = entry.account
        assert (account.promised, account.answered) == (promised, answered)
        assert account.responses.joined == b"last" * answered
        assert entry.closed == (TIME if closed else None)
        assert entry.agrees_with(terms(study))
        assert entry.epsilon_spent == Fraction(1, 3) * answered / promised
        if answered:
            assert entry.agreed_terms == terms(study)


def test_a_ledger_of_the_version_before_goes_on(path):
    ledger = open_ledger(path)
    check_meaning(list(ledger.studies()))
    assert ledger.responses == 329
    assert ledger.epsilon_held() == Fraction(2, 3)
    for sequence in (129, 131):
        with pytest.raises(OrderError):
            ledger.charge(
                study_id="under-way", sequence=sequence, digest=theta("", 1), response=b""
            )
    ledger.charge(study_id="under-way", sequence=130, digest=theta("", 130), response=b"r")
    with pytest.raises(BudgetSpentError, match="1/3 of the lifetime budget"):
        ledger.check_left(Fraction(1, 2), lifetime=Fraction(1))
    ledger.close()
    assert verify_ledger(path) == []
    ledger = open_ledger(path)
    assert ledger.study("under-way").account.answered == 130
    ledger.close()
    for study, records in read_history(path).studies:
        answered = STUDIES[study.study_id][1]
        found = list(charges_of(records))[:answered]
        assert found == [(theta(study.study_id, k), TIME) for k in range(1, answered + 1)]


def test_a_ledger_of_the_version_before_is_read_without_a_change(path):
    before = path.read_bytes()
    meta, entries = read_studies(path)
    assert (meta["owner"], meta["created"]) == ("a", TIME)
    check_meaning(entries)
    check_meaning(read_for_shard(path, fingerprint="shard"))
    assert verify_ledger(path) == []
    assert path.read_bytes() == before


def test_a_map_is_kept_once_after_the_upgrade(path):
    open_ledger(path).close()
    with sqlite3.connect(path) as db:
        texts = [text for (text,) in db.execute("SELECT text FROM texts")]
    db.close()
    assert len(texts) == 3
    assert texts.count(MAP) == 1


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE accounts SET answered = 128 WHERE answered = 129", "128 responses counted, 129"),
        ("DELETE FROM charges WHERE sequence = 2", "responses counted, .* charges listed"),
        ("DELETE FROM accounts WHERE answered = 129", "1 studies have no accounts"),
        ("UPDATE accounts SET promised = 151 WHERE promised = 150", "151 responses for epsilon"),
        ("UPDATE studies SET epsilon = '1/4'", "its terms say 200 for 1/3"),
        ("UPDATE studies SET terms = '{'", "its terms cannot be read"),
        ("UPDATE charges SET theta_digest = 'd'", "cannot be used"),
        ("UPDATE charges SET theta_digest = 'dd'", "is no digest of a query"),
        ("UPDATE charges SET charged = 'now'", "cannot be used"),
        ("UPDATE accounts SET last_digest = 'd'", "not that of its last response"),
        ("UPDATE meta SET value = 'others' WHERE key = 'shard_fingerprint'", "other records"),
        ("CREATE TABLE more (a)", "its tables are not those"),
    ],
)
def test_a_damaged_ledger_of_the_version_before_is_not_upgraded(path, damage, words):
    with sqlite3.connect(path) as db:
        db.execute(damage)
    db.close()
    with pytest.raises(LedgerError, match=words):
        open_ledger(path)
    with sqlite3.connect(path) as db:
        version = db.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        assert version == ("2",)
        assert "old_meta" not in {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    db.close()


def test_an_old_ledger_that_lost_responses_is_not_upgraded(path):
    path.with_name("ledger.sqlite.lock").write_text(f"{330:>20}\n")
    for look in (open_ledger, read_studies, verify_ledger):
        with pytest.raises(LedgerError, match="lost responses"):
            look(path)
