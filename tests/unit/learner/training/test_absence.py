"""Owners that are away: a schedule waits for one that hears it, a round goes on without."""

import math
import re
import time
from dataclasses import replace

import numpy as np
import pytest
from waiting import wait_until

import learner.training.line
from common.errors import (
    OrderError,
    OwnerFailedError,
    RefusedError,
    UnreachableError,
    UntrustedError,
)
from common.losses import Regulariser
from common.terms import Query
from learner.algorithms.clocks import Tick
from learner.algorithms.protocol import weighted_gradient
from learner.algorithms.synchronous import SynchronousAverage
from learner.training.line import OwnerLine
from learner.training.memory_owner import MemoryOwner
from learner.training.pace import Pace
from learner.training.runner import run

AWAY_SECONDS = 0.6


class ComesBack(MemoryOwner):
    """Unreachable from its second query on, for a while."""

    away_seconds = AWAY_SECONDS
    gone_until = None

    def answer(self, query):
        if query.sequence == 2 and self.gone_until is None:
            self.gone_until = time.monotonic() + self.away_seconds
        self._check()
        return super().answer(query)

    def enroll(self, terms):
        self._check()
        return super().enroll(terms)

    def _check(self):
        if self.gone_until is not None and time.monotonic() < self.gone_until:
            raise UnreachableError("away")


def positions(lines, owners, pace):
    """The ticks that were answered in a run of one owner at each tick."""
    horizon, seen = len(owners), []
    algorithm = SynchronousAverage(
        weights=np.ones(len(lines)) / len(lines),
        num_features=4,
        theta_max=2.0,
        regulariser=Regulariser(coefficient=1e-5),
        initial_step=0.1,
        horizon=horizon,
    )
    run(
        algorithm,
        [Tick(float(k), (owner,)) for k, owner in enumerate(owners)],
        lines,
        journal=None,
        horizon=horizon,
        pace=pace,
        on_applied=lambda now: seen.append(now.entry.position),
    )
    for line in lines:
        line.stop()
    return seen


class IsGone(ComesBack):
    """Unreachable for good from its second query on."""

    away_seconds = math.inf


@pytest.mark.parametrize("order", [(0, 1, 0, 1, 0, 1), (0, 1, 0, 1, 1, 0)])
def test_what_all_others_gave_is_not_lost_by_one_that_is_gone_for_good(
    order, few_records, make_terms, monkeypatch, caplog
):
    """Whoever has the last tick of the schedule."""
    monkeypatch.setattr(learner.training.line, "SHORTEST_WAIT_SECONDS", 0.001)
    terms = make_terms(responses=3, horizon=6)
    owners = [MemoryOwner("stays", few_records, seed=1), IsGone("goes", few_records, seed=2)]
    lines = [OwnerLine(owner, terms) for owner in owners]
    for line in lines:
        line.enroll()
    seen = positions(lines, order, Pace(time_scale=0.0, patience=0.2))
    assert seen == [0, 1, 2, order.index(0, 3)]
    said = [each.getMessage() for each in caplog.records if each.name == "copriv.learner"]
    told = "the others gave all that they promised; the run ends without goes"
    assert said.count(told) == (order[-1] == 1)


def test_a_run_is_not_ended_by_who_is_gone_before_another_has_given_all(
    few_records, make_terms, monkeypatch
):
    monkeypatch.setattr(learner.training.line, "SHORTEST_WAIT_SECONDS", 0.001)
    owners = [IsGone(name, few_records, seed=1) for name in ("north", "south")]
    lines = [OwnerLine(owner, make_terms(responses=2, horizon=4)) for owner in owners]
    for line in lines:
        line.enroll()
    with pytest.raises(UnreachableError, match=r"no owner answered for 0\.2 seconds"):
        positions(lines, (0, 1, 0, 1), Pace(time_scale=0.0, patience=0.2))


def test_no_tick_of_a_schedule_is_used_up_and_the_wait_is_told_once(
    few_records, make_terms, caplog
):
    line = OwnerLine(ComesBack("north", few_records, seed=1), make_terms(responses=6, horizon=6))
    line.enroll()
    seen = positions([line], [0] * 6, Pace(time_scale=0.0, patience=20.0))
    # The one tick at which it left is missed, no other.
    assert seen == [0, 2, 3, 4, 5]
    said = [record.getMessage() for record in caplog.records]
    waits, backs = ([text for text in said if word in text] for word in ("waiting for", "is back"))
    assert len(waits) == len(backs) == 1, said
    assert re.fullmatch(
        r"waiting for north away since \d\d:\d\d:\d\d; gives up after 20 s", waits[0]
    )
    assert said.index(waits[0]) < said.index(backs[0])


@pytest.mark.parametrize("change", [{"insecure_noise": False}, {"num_records": 51}])
def test_an_owner_that_comes_back_as_another_has_left(few_records, make_terms, change):
    """What it agreed to stands in the report, and decides how much its answers count."""

    class Changed(ComesBack):
        def enroll(self, terms):
            agreed = super().enroll(terms)
            return agreed if self.gone_until is None else replace(agreed, **change)

    line = OwnerLine(Changed("north", few_records, seed=1), make_terms(responses=6, horizon=6))
    line.enroll()
    with pytest.raises(RefusedError, match="all owners have left the study; the last: owner north"):
        positions([line], [0] * 6, Pace(time_scale=0.0, patience=20.0))
    assert "came back with other records or another noise than it agreed to" in line.left
    # No question of the ticks after that reached it.
    assert line.answered == 1


def test_an_owner_that_comes_back_and_never_answers_fills_no_log(few_records, make_terms, caplog):
    """Its disk may be full: it enrols as before, and every answer fails."""

    class Failing(MemoryOwner):
        full = True

        def answer(self, query):
            if self.full:
                raise OwnerFailedError("the owner failed")
            return super().answer(query)

    owner = Failing("north", few_records, seed=1)
    line = OwnerLine(owner, make_terms(responses=6, horizon=6), retries=0)
    line.enroll()
    ask_in_vain(line, seconds=2.0)
    absences = [record for record in caplog.records if "away since" in record.getMessage()]
    # Waits of 0.05, 0.1, 0.2, ... seconds, each less up to a half: 30 and more if they were equal.
    assert 3 <= len(absences) <= 8, [record.getMessage() for record in absences]
    owner.full = False
    while (response := line.ask(np.full(4, 0.1))) is None:
        time.sleep(0.001)
    assert response.sequence == 1
    owner.full = True
    assert line.ask(np.full(4, 0.2)) is None
    owner.full, lost = False, time.monotonic()
    while line.ask(np.full(4, 0.2)) is None:
        time.sleep(0.001)
    assert time.monotonic() - lost < 0.5
    line.stop()


@pytest.mark.parametrize("also_away", [False, True])
def test_an_owner_that_never_answers_costs_ever_fewer_ticks(
    also_away, few_records, make_terms, monkeypatch
):
    """Also if it cannot be reached now and then: that makes nobody more hopeful."""
    monkeypatch.setattr(learner.training.line, "SHORTEST_WAIT_SECONDS", 0.001)
    monkeypatch.setattr(learner.training.line, "LONGEST_WAIT_SECONDS", 0.002)

    class Failing(MemoryOwner):
        asked = enrolled = 0

        def enroll(self, terms):
            self.enrolled += 1
            if also_away and self.enrolled % 2 == 0:
                raise UnreachableError("owner north: nothing listens there")
            return super().enroll(terms)

        def answer(self, query):
            self.asked += 1
            raise OwnerFailedError("the owner failed")

    owner = Failing("north", few_records, seed=1)
    line = OwnerLine(owner, make_terms(responses=6, horizon=6), retries=0)
    line.enroll()
    ask_in_vain(line, seconds=1.0)
    line.stop()
    # Waits of 0.001, 0.002, 0.004, ... seconds, each less up to a half: 500 if two were the most.
    assert 3 <= owner.asked <= 13


def test_a_certificate_that_keeps_an_owner_away_is_told_once(few_records, make_terms, caplog):
    """Nobody knows otherwise that somebody has to renew it while the run goes on."""

    class Expired(ComesBack):
        enrolled = 0

        def enroll(self, terms):
            self.enrolled += 1
            if 1 < self.enrolled < 5:
                raise UntrustedError("owner north: its certificate expired on 2026-01-01")
            return super().enroll(terms)

    line = OwnerLine(Expired("north", few_records, seed=1), make_terms(responses=6, horizon=6))
    line.enroll()
    positions([line], [0] * 6, Pace(time_scale=0.0, patience=20.0))
    said = [record.getMessage() for record in caplog.records]
    assert len([text for text in said if "its certificate expired on 2026-01-01" in text]) == 1


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ("owner north: takes connections, or drops large packets (MTU)", 1),
        ("owner north: did not answer in time", 0),
    ],
)
def test_why_an_owner_stays_away_is_told_once_where_a_longer_look_finds_another_reason(
    found, told, few_records, make_terms, caplog, monkeypatch
):
    monkeypatch.setattr(learner.training.line, "LONGEST_WAIT_SECONDS", 0.05)
    monkeypatch.setattr(learner.training.line, "WHY_AFTER_SECONDS", 0.3)

    class Hung(MemoryOwner):
        tries = 0

        def answer(self, query):
            raise UnreachableError("owner north: did not answer in time")

        def enroll(self, terms):
            self.tries += 1
            if 1 < self.tries < 30:
                raise UnreachableError(found)
            return super().enroll(terms)

    owner = Hung("north", few_records, seed=1)
    line = OwnerLine(owner, make_terms(responses=6, horizon=6), retries=0)
    line.enroll()
    lost = time.time()
    assert line.ask(np.full(4, 0.1)) is None
    wait_until(lambda: owner.tries >= 30)
    line.stop()
    said = [record for record in caplog.records if "still away" in record.getMessage()]
    assert [record.getMessage() for record in said] == [f"still away: {found}"] * told
    assert all(record.created - lost > 0.25 for record in said)


@pytest.mark.parametrize("error", [RefusedError, UnreachableError])
def test_ticks_of_owners_that_are_gone_do_not_count_as_silence_of_the_others(
    error, few_records, make_terms
):
    """Whoever says that it has many records gets nearly all ticks, and may then fall silent."""

    class Gone(MemoryOwner):
        def answer(self, query):
            raise error("no")

        enroll_again = False

        def enroll(self, terms):
            if self.enroll_again:
                raise error("no")
            self.enroll_again = True
            return super().enroll(terms)

    lines = [
        OwnerLine(kind(name, few_records, seed=1), make_terms(responses=20, horizon=26))
        for kind, name in ((Gone, "north"), (MemoryOwner, "south"))
    ]
    for line in lines:
        line.enroll()
    seen = positions(lines, [0] * 20 + [1] * 6, Pace(time_scale=0.02, patience=0.1))
    assert seen == [20, 21, 22, 23, 24, 25]


def test_those_that_answer_stand_for_those_that_are_away():
    weights = np.array([0.2, 0.3, 0.5])
    tick = Tick(1.0, (0, 1, 2))
    there = {0: np.array([5.0]), 2: np.array([8.0])}
    # The mean over the records of owners 0 and 2, at the weight of all three.
    assert weighted_gradient(weights, tick, there) == pytest.approx([(1.0 + 4.0) / 0.7])
    everybody = there | {1: np.array([1.0])}
    assert weighted_gradient(weights, tick, everybody) == pytest.approx([5.3])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"study_id": "another"}, "owner north answered for another study"),
        ({"sequence": 7}, "owner north answered number 7 when it was asked number 1"),
    ],
)
def test_an_answer_to_what_was_not_asked_is_named(changes, words, few_records, make_terms):
    class Confused(MemoryOwner):
        def answer(self, query):
            return replace(super().answer(query), **changes)

    line = OwnerLine(Confused("north", few_records, seed=1), make_terms())
    line.enroll()
    assert line.ask(np.zeros(4)) is None
    assert line.left is not None
    assert words in line.left


@pytest.mark.parametrize("spent", [1, 30])
def test_numbers_that_are_spent_are_passed_over_and_the_new_query_is_durable_first(
    spent, few_records, make_terms
):
    terms = make_terms(horizon=100, responses=100)
    kept = []

    class Killed(MemoryOwner):
        """It has charged a block that it cannot repeat."""

        lives = True

        def answer(self, query):
            if not self.lives:
                self.lives = True
                raise UnreachableError("killed")
            if query.sequence > 2 * spent:
                assert kept
                assert kept[-1].sequence == query.sequence
            return super().answer(query)

    owner = Killed("north", few_records, seed=1)
    line = OwnerLine(owner, terms, keep=kept.append)
    line.take_up(line.enroll())
    for number in range(1, spent + 1):
        assert line.ask(np.full(4, 0.1)).sequence == number
    for number in range(spent + 1, 2 * spent + 1):
        MemoryOwner.answer(
            owner, Query(study_id=terms.study_id, sequence=number, theta=np.full(4, 0.2))
        )
    owner.lives = False
    response = line.ask(np.full(4, 0.3))
    assert response.sequence == 2 * spent + 1 == line.answered
    assert line.left is None
    assert [query.sequence for query in kept] == [2 * spent + 1]


@pytest.mark.parametrize("spends", [False, True])
def test_an_owner_that_refuses_a_number_that_is_not_spent_has_left(spends, few_records, make_terms):
    class Refuses(MemoryOwner):
        def answer(self, query):
            # Nobody was killed: it says that the number is spent, and that is its own fault.
            if spends:
                super().answer(query)
            raise OrderError(f"not number {query.sequence}")

    line = OwnerLine(Refuses("north", few_records, seed=1), make_terms())
    line.enroll()
    assert line.ask(np.zeros(4)) is None
    assert line.left == "not number 1"


@pytest.mark.parametrize(
    ("changes", "is_taken"),
    [({"repeats": 1}, True), ({"repeats": 3}, True), ({"noise_scale": 2.0}, False)],
)
def test_an_owner_may_come_back_with_more_or_fewer_repeats_and_nothing_else(
    changes, is_taken, few_records, make_terms
):
    """A later version of it may keep another number of its answers."""

    class Changed(MemoryOwner):
        before = True

        def enroll(self, terms):
            found = super().enroll(terms)
            return found if self.before else replace(found, **changes)

    owner = Changed("north", few_records, seed=1)
    terms = make_terms()
    agreed = OwnerLine(owner, terms).enroll()
    assert agreed.repeats == 16
    owner.before = False
    line = OwnerLine(owner, terms)
    line.take_up(agreed)
    assert (line.left is None) is is_taken
    if is_taken:
        assert line.numbers.repeats == changes["repeats"]
        assert line.ask(np.zeros(4)).sequence == 1


def test_an_owner_that_has_given_all_is_not_asked_where_ticks_are_left(few_records, make_terms):
    """Numbers that an earlier start lost leave ticks; nobody is asked beyond its promise."""
    owner, terms = MemoryOwner("north", few_records, seed=1), make_terms(responses=3, horizon=6)
    enrolled = owner.enroll(terms)
    for number in (1, 2, 3):
        owner.answer(Query(study_id=terms.study_id, sequence=number, theta=np.zeros(4)))
    # Number 3 is held, number 2 was lost.
    line = OwnerLine(owner, terms, answered=3)
    line.take_up(enrolled)
    assert line.ask(np.zeros(4)) is None
    assert line.left is None
    line.stop()


def ask_in_vain(line, *, seconds):
    """Ask again and again, as ticks do."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert line.ask(np.full(4, 0.1)) is None
        time.sleep(0.0005)
