"""Owners are asked ahead of their turn only where that changes nothing but the time it takes."""

from collections import defaultdict
from contextlib import suppress
from itertools import islice, pairwise

import numpy as np
import pytest

from common.errors import UnreachableError
from common.losses import Regulariser
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import PoissonClocks, Tick, each_alone
from learner.training.in_flight import InFlight
from learner.training.journal import Journal
from learner.training.line import OwnerLine
from learner.training.memory_owner import MemoryOwner
from learner.training.pace import Pace
from learner.training.runner import run

HORIZON = 60
OWNERS = 4


class Elsewhere(MemoryOwner):
    """An owner that is asked and waited for at different times; all that happens is in one log."""

    def __init__(self, index, records, log, *, away=()):
        super().__init__(f"owner-{index}", records, seed=index)
        self.index, self.log, self.away = index, log, set(away)
        self.models = defaultdict(set)
        self.sent = None

    @property
    def answers_later(self):
        return True

    def send(self, query):
        self.ask(query)

    def ask(self, query):
        assert self.sent is None, "asked again before it was answered"
        self.sent = query
        self.log.append(("asked", self.index))

    def answer(self, query):
        if self.sent is None:
            self.log.append(("asked", self.index))
        else:
            same = self.sent.sequence == query.sequence and self.sent.theta is query.theta
            assert same, "another question than the one it was asked"
        # Asked ahead or not, it has charged the number for this model.
        self.models[query.sequence].add(query.theta.tobytes())
        response, self.sent = super().answer(query), None
        self.log.append(("answered", self.index))
        if query.sequence in self.away:
            self.away.discard(query.sequence)
            raise UnreachableError("away")
        return response


def algorithm(**changed):
    given = {
        "weights": np.full(OWNERS, 1 / OWNERS),
        "num_features": 4,
        "theta_max": 2.0,
        "regulariser": Regulariser(coefficient=1e-3),
        "rho": 1.0,
        "horizon": HORIZON,
        "tail_average": True,
    }
    return Asynchronous(**(given | changed))


@pytest.fixture
def study(feature_map, table_maker, make_terms, tmp_path):
    """Trains with owners elsewhere; returns the model, the models after each tick, and the log."""

    def trained(*, in_flight, away=(), stop=None, name="run", seed=5):
        log, rows = [], []
        journal = Journal(tmp_path / f"{name}.sqlite")
        owners = [
            Elsewhere(
                i,
                feature_map.apply(table_maker(30, seed=i), where="test"),
                log,
                away=away if i == 1 else (),
            )
            for i in range(OWNERS)
        ]
        terms = make_terms(responses=HORIZON, horizon=HORIZON)
        lines = [
            OwnerLine(
                owner,
                terms,
                retries=0,
                keep=lambda query, i=i: journal.keep_unanswered(
                    i, sequence=query.sequence, theta=query.theta
                ),
            )
            for i, owner in enumerate(owners)
        ]
        for line in lines:
            line.enroll()

        def applied(now):
            rows.append(now.central_model)
            if now.k == stop:
                raise KeyboardInterrupt

        clocks = PoissonClocks(each_alone(OWNERS), np.ones(OWNERS), rng=np.random.default_rng(seed))
        # A run that is stopped leaves its rows, too.
        with suppress(KeyboardInterrupt):
            run(
                algorithm(),
                clocks,
                lines,
                journal=journal,
                horizon=HORIZON,
                pace=Pace(time_scale=0.0, patience=30.0, in_flight=in_flight),
                on_applied=applied,
            )
        for line in lines:
            line.stop()
        held = journal.unanswered()
        journal.close()
        return rows, log, owners, held

    return trained


def most_waiting(log):
    """How many owners were asked and had not answered, at most."""
    waiting, most = 0, 0
    for what, _ in log:
        waiting += 1 if what == "asked" else -1
        most = max(most, waiting)
    return most


def test_where_answers_take_long_fewer_are_asked_at_the_same_time():
    questions = InFlight(algorithm(), [], [], most=16, deadline=20.0, settle=lambda tick: None)
    rooms = []
    for waited in (*[0.1] * 20, 6.0, 11.0, 11.0, 6.0, *[11.0] * 4, 0.1, 0.1):
        questions.answered(was=True, waited=waited)
        rooms.append(questions.room)
    assert rooms[:3] == [2, 3, 4]
    # Never more than allowed; as many where answers take long, half as many where they are late.
    assert rooms[14:24] == [16] * 7 + [8, 4, 4]
    # One owner at least, and one more for each answer in good time.
    assert rooms[24:] == [2, 1, 1, 1, 2, 3]
    # Of an owner that is known to be away nobody learns how long answers take.
    questions.answered(was=False, waited=None)
    assert questions.room == 3
    questions.answered(was=False, waited=0.0)
    assert questions.room == 1


@pytest.mark.parametrize(("in_flight", "expected"), [(1, 1), (2, 2), (3, 3), (16, OWNERS)])
def test_questions_in_flight_change_no_bit_and_are_no_more_than_allowed(study, in_flight, expected):
    alone, log, *_ = study(in_flight=1, name="alone")
    assert most_waiting(log) == 1
    rows, log, owners, held = study(in_flight=in_flight, name="ahead")
    assert [row.tobytes() for row in rows] == [row.tobytes() for row in alone]
    assert most_waiting(log) == expected
    assert len(log) == 2 * HORIZON, "nobody is asked beyond the last communication"
    assert not held
    assert all(len(models) == 1 for owner in owners for models in owner.models.values())


@pytest.mark.parametrize("seed", range(8))
def test_nobody_is_asked_beyond_the_last_communication(study, seed):
    _, log, *_ = study(in_flight=16, seed=seed)
    assert len(log) == 2 * HORIZON


def test_who_was_asked_ahead_behind_a_missed_tick_answers_that_question_in_its_turn(study):
    rows, _, owners, held = study(in_flight=16, away=(3, 9))
    assert len(rows) == HORIZON
    assert held, "others were asked ahead when owner 1 went away"
    for owner in owners:
        # Every number was asked for one model, and none is lost.
        assert all(len(models) == 1 for models in owner.models.values())
        assert sorted(owner.models) == list(range(1, len(owner.models) + 1))


@pytest.mark.parametrize("stop", range(15, 25))
def test_an_interrupted_run_keeps_what_it_had_asked(study, stop):
    rows, _, owners, held = study(in_flight=16, stop=stop)
    assert len(rows) == stop
    assert set(held) == {owner.index for owner in owners if owner.sent}
    for owner, (sequence, theta) in held.items():
        assert owners[owner].sent.sequence == sequence
        assert owners[owner].sent.theta.tobytes() == theta.tobytes()


def test_what_is_asked_ahead_is_durable_before_the_missed_tick(study, monkeypatch):
    noted = []
    keep, note = Journal.keep_unanswered, Journal.note

    def keep_unanswered(journal, owner, **query):
        noted.append(("held", owner))
        keep(journal, owner, **query)

    def note_it(journal, key, value):
        noted.append((key, value))
        note(journal, key, value)

    monkeypatch.setattr(Journal, "keep_unanswered", keep_unanswered)
    monkeypatch.setattr(Journal, "note", note_it)
    study(in_flight=16, away=(3,))
    missed = [what for what, _ in noted].index("missed_before")
    before, after = noted[:missed], noted[missed + 1 :]
    assert ("held", 1) in before
    assert {owner for what, owner in before if what == "held"} > {1}
    assert not [owner for what, owner in after if what == "held" and owner != 1]


def test_nobody_is_asked_ahead_before_its_last_answers_are_durable(study, monkeypatch):
    settle, events = Journal.settle, []

    def settled(journal, repeats=None):
        settle(journal, repeats)
        events.extend(repeats or ())

    def send(owner, query):
        assert owner.index in events, "asked before the journal was waited for"
        events.remove(owner.index)
        Elsewhere.ask(owner, query)

    monkeypatch.setattr(Journal, "settle", settled)
    monkeypatch.setattr(Elsewhere, "send", send)
    rows, *_ = study(in_flight=16)
    assert len(rows) == HORIZON
    assert len(events) == 1, "all but the first were asked ahead, each after the journal"


def test_the_known_questions_of_algorithm_1_end_where_an_owner_is_asked_again():
    rng = np.random.default_rng(2)
    clocks = PoissonClocks(each_alone(OWNERS), np.ones(OWNERS), rng=rng)
    ticks = list(islice(clocks, 200))
    for changed in ({}, {"counted": True}, {"start": rng.normal(size=4)}, {"rule": "corrected"}):
        its = algorithm(**changed)
        state = its.initial_state()
        for at, tick in enumerate(ticks):
            known = list(its.query_points(state, ticks[at:]))
            asked = [each.owners[0] for each in ticks[at : at + len(known)]]
            assert len(set(asked)) == len(asked)
            following = ticks[at + len(known) : at + len(known) + 1]
            assert all(each.owners[0] in asked for each in following)
            later = state
            for each, theta in zip(ticks[at:], known, strict=False):
                assert its.query_point(later, each).tobytes() == theta.tobytes()
                later = its.apply_responses(later, each, {each.owners[0]: rng.normal(size=4)})
            state = its.apply_responses(state, tick, {tick.owners[0]: rng.normal(size=4)})


def test_groups_count_as_one_owner():
    its = algorithm(groups=((0, 1), (2, 3)))
    ticks = [Tick(1.0, (0, 1)), Tick(2.0, (2, 3)), Tick(3.0, (0, 1)), Tick(4.0, (2, 3))]
    assert len(list(its.query_points(its.initial_state(), ticks))) == 2


def test_an_owner_that_is_away_makes_no_other_wait(study, monkeypatch):
    rooms, enrolled = [], set()
    answered, enroll = InFlight.answered, Elsewhere.enroll

    def noted(self, **given):
        answered(self, **given)
        rooms.append(self.room)

    def once(self, terms):
        if self.name in enrolled:
            raise UnreachableError("away")
        enrolled.add(self.name)
        return enroll(self, terms)

    monkeypatch.setattr(InFlight, "answered", noted)
    monkeypatch.setattr(Elsewhere, "enroll", once)
    _, log, *_ = study(in_flight=16, away={1})
    assert ("asked", 1) in log
    assert len(rooms) > HORIZON + 5
    # Only the question that it left unanswered makes fewer wait.
    assert sum(after < before for before, after in pairwise(rooms)) <= 1
    assert rooms[-1] == 16
