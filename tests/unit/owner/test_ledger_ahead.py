"""Charges in blocks: before a response leaves, and never for two queries."""

import shutil
import sqlite3
from contextlib import closing, contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path

import ledgers
import numpy as np
import pytest
from ledgers import charge, digest, open_ledger, response

from common.errors import OrderError
from common.terms import Query
from owner.ledger_reading import read_history, read_studies, verify_ledger
from owner.ledger_rows import LedgerError
from owner.ledger_tables import charges_of

PROMISED = 200
opened = partial(open_ledger, block=64)
enroll = partial(ledgers.enroll, responses=PROMISED, epsilon=Fraction(1), lifetime=Fraction(2))


@contextmanager
def killed_with(path, numbers):
    """A ledger as a process leaves it that is killed after these charges."""
    with closing(opened(path)) as ledger:
        if not ledger.responses:
            enroll(ledger)
        charge(ledger, *numbers)
        left = path.with_name(f"left-{numbers.stop}")
        left.mkdir()
        for file in path.parent.glob(f"{path.name}*"):
            shutil.copy2(file, left / file.name)
    yield left / path.name


def test_a_block_is_on_the_disk_before_its_first_response_and_costs_no_other_write(path):
    with closing(opened(path)) as ledger:
        enroll(ledger)
        statements = []
        for number in range(1, PROMISED + 1):
            ledger._held.db.set_trace_callback(statements.append)
            charge(ledger, number)
            ledger._held.db.set_trace_callback(None)
            assert read_studies(path)[1][0].account.answered >= number
        writes = sum(statement.startswith("UPDATE") for statement in statements)
        assert writes == 4
        assert statements.count("COMMIT") == 4


def test_what_a_killed_owner_charged_is_spent_and_never_answered(path):
    with killed_with(path, range(1, 11)) as left, closing(opened(left)) as ledger:
        entry = ledger.study("s")
        assert entry.account.answered == 64
        assert (entry.account.digests[-1], entry.account.responses.joined) == ("", b"")
        for number in (10, 11, 64, 66):
            with pytest.raises(OrderError):
                charge(ledger, number)
        charge(ledger, 65)
    assert verify_ledger(left) == []
    (told, records) = read_history(left).studies[0]
    digests = [each for each, _ in charges_of(records)]
    # The second process ended in order: it took back what it had not given.
    assert told.account.answered == len(digests) == 65
    assert digests == [*[""] * 64, digest(65)]
    assert told.epsilon_spent == Fraction(65, PROMISED)


def test_an_owner_that_ends_in_order_loses_nothing(path):
    with closing(opened(path)) as ledger:
        enroll(ledger)
        charge(ledger, *range(1, 71))
    entry = read_studies(path)[1][0]
    assert entry.account.answered == 70
    # All of one length, as the responses of a study are: the last sixteen.
    assert entry.account.responses.joined == b"".join(map(response, range(55, 71)))
    with closing(opened(path)) as ledger:
        entry = ledger.study("s")
        assert entry.account.digests == tuple(map(digest, range(55, 71)))
    for block in (64, 1, 7):
        with closing(opened(path, block=block)) as ledger:
            first = ledger.responses + 1
            charge(ledger, *range(first, first + 40))
    assert verify_ledger(path) == []
    records = read_history(path).studies[0][1]
    assert [each for each, _ in charges_of(records)] == list(map(digest, range(1, 191)))


def test_a_closed_study_gets_the_rest_of_its_block_back(path):
    with closing(opened(path)) as ledger:
        enroll(ledger)
        charge(ledger, 1, 2, 3)
        ledger.close_study("s")
        assert ledger.epsilon_held() == Fraction(3, PROMISED)
    assert read_studies(path)[1][0].epsilon_held == Fraction(3, PROMISED)
    assert verify_ledger(path) == []


def test_what_was_given_since_cannot_be_undone_by_an_older_copy(path):
    with closing(opened(path)) as ledger:
        enroll(ledger)
        charge(ledger, *range(1, 11))
    before = path.read_bytes()
    with closing(opened(path)) as ledger:
        charge(ledger, 11)
    with killed_with(path, range(12, 13)) as left:
        left.write_bytes(before)
        Path(f"{left}-wal").unlink()
        with pytest.raises(LedgerError, match="has lost responses"):
            opened(left)


@pytest.mark.parametrize("ends", ["stops", "closes"])
def test_what_was_taken_back_hides_no_charge_from_an_older_copy(path, ends):
    """A copy with a whole block charged has come no farther than a ledger that took it back."""
    older = path.with_name("older")
    older.mkdir()
    files = [f"{path}{suffix}" for suffix in ("", "-wal", "-shm")]
    ledger = opened(path)
    enroll(ledger, "one")
    enroll(ledger, "two")
    charge(ledger, 1, study="one")
    for file in files:
        shutil.copy2(file, older)
    charge(ledger, *range(1, 31), study="two")
    if ends == "closes":
        ledger.close_study("one")
    ledger.close()
    for file in files:
        shutil.copy2(older / Path(file).name, file)
    # The second study's thirty numbers would be answered again, for other models.
    with pytest.raises(LedgerError, match="has lost responses"):
        opened(path)


def test_a_ledger_that_is_moved_gives_no_more_of_its_block(path):
    with closing(opened(path)) as ledger:
        enroll(ledger)
        charge(ledger, 1)
        path.rename(path.with_name("elsewhere"))
        with pytest.raises(LedgerError, match="moved or replaced"):
            charge(ledger, 2)


def test_nothing_is_given_of_a_block_whose_end_may_be_on_the_disk(path, monkeypatch):
    """SQLite undoes a commit whose sync fails; after a kill its log may bring it back."""
    ledger = opened(path)
    enroll(ledger)
    charge(ledger, *range(1, 11))

    @contextmanager
    def failing(db):
        yield
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr("owner.ledger_held.transaction", failing)
        with pytest.raises(LedgerError, match="disk I/O error"):
            ledger.close_study("s")
    with pytest.raises(LedgerError, match="an earlier failure could not be undone"):
        charge(ledger, 11)
    ledger.close()


@pytest.mark.parametrize(
    "change", ["UPDATE charges SET records = zeroblob(2560)", "DELETE FROM charges"]
)
def test_older_charges_that_were_changed_in_use_are_not_believed(path, change):
    with closing(opened(path, block=1)) as ledger:
        enroll(ledger)
        charge(ledger, *range(1, 131))
        assert ledger.study("s") is not None
        with sqlite3.connect(path) as db:
            db.execute(change)
        db.close()
        with pytest.raises(LedgerError, match="changed while in use"):
            ledger.study("s")


def test_nothing_is_given_of_a_block_after_the_end(path):
    ledger = opened(path)
    enroll(ledger)
    charge(ledger, 1)
    ledger.close()
    with pytest.raises((LedgerError, OrderError)):
        charge(ledger, 2)
    assert read_studies(path)[1][0].account.answered == 1


def test_a_retry_is_replayed_while_the_owner_lives_and_refused_after_it_was_killed(
    fast_folder, open_owner, make_terms
):
    first = open_owner(block=64)
    terms = make_terms(horizon=100, responses=100)
    first.enroll(terms, learner="l")
    query = Query(study_id=terms.study_id, sequence=1, theta=np.zeros(4))
    answer = first.answer(query, learner="l")
    assert np.array_equal(first.answer(query, learner="l").gradient, answer.gradient)
    left = fast_folder / "left"
    left.mkdir()
    for file in fast_folder.glob("ledger.sqlite*"):
        shutil.copy2(file, left / file.name)
    second = open_owner(ledger="left/ledger.sqlite", block=64)
    assert second.enroll(terms, learner="l").answered == 64
    with pytest.raises(OrderError, match="next one is 65"):
        second.answer(query, learner="l")
    last = Query(study_id=terms.study_id, sequence=64, theta=np.zeros(4))
    with pytest.raises(OrderError, match="may have been answered; it is spent, the next one is 65"):
        second.answer(last, learner="l")
    fresh = Query(study_id=terms.study_id, sequence=65, theta=np.zeros(4))
    assert second.answer(fresh, learner="l").sequence == 65
