"""Studies are made ready beside the answers of others, and races change no budget."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from pydantic import ValidationError

from common.errors import OrderError, PolicyError, RefusedError
from common.features import FeatureMap
from common.terms import Query
from owner import studies as held
from owner.mechanism import secure_noise
from owner.open_study import StudyMaker

PATIENCE = 30.0


def ask(owner, sequence, study="study-1", learner="ann"):
    query = Query(study_id=study, sequence=sequence, theta=np.zeros(4))
    return owner.answer(query, learner=learner).gradient.tobytes()


class Gate:
    """Lets studies be made ready only as far as the test says."""

    def __init__(self, monkeypatch):
        self.waiting = threading.Semaphore(0)
        self.open = threading.Event()
        prepare = StudyMaker.prepare

        def gated(maker, terms):
            study = prepare(maker, terms)
            self.waiting.release()
            assert self.open.wait(PATIENCE)
            return study

        monkeypatch.setattr(StudyMaker, "prepare", gated)

    def reached_by(self, count):
        for _ in range(count):
            assert self.waiting.acquire(timeout=PATIENCE)


@pytest.fixture
def gate(monkeypatch):
    gate = Gate(monkeypatch)
    yield gate
    gate.open.set()


def outcome(future):
    try:
        future.result(PATIENCE)
    except RefusedError as error:
        return type(error).__name__
    return "done"


def test_an_enrolment_delays_no_other_studys_answer(open_owner, make_terms, gate):
    owner = open_owner()
    gate.open.set()
    owner.enroll(make_terms(), learner="ann")
    gate.reached_by(1)
    gate.open.clear()
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(owner.enroll, make_terms(study_id="slow"), learner="ben")
        gate.reached_by(1)
        # It is being made ready, and holds nothing that an answer needs.
        pool.submit(ask, owner, 1).result(PATIENCE)
        assert owner.offer("study-1", learner="ann")
        assert owner.describe(learner="ann").epsilon_left == 9
        gate.open.set()
        assert slow.result(PATIENCE).answered == 0


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (("ann", {}), ["done", "done"]),
        (("ben", {}), ["PolicyError", "done"]),
        (("ann", {"epsilon": Fraction(2)}), ["PolicyError", "done"]),
    ],
)
def test_enrolments_of_one_study_at_once_reserve_its_budget_once(
    open_owner, make_terms, gate, second, told
):
    owner = open_owner()
    before = threading.active_count()
    with ThreadPoolExecutor(2) as pool:
        calls = [("ann", {}), second]
        running = [
            pool.submit(owner.enroll, make_terms(**changes), learner=learner)
            for learner, changes in calls
        ]
        gate.reached_by(2)
        gate.open.set()
        assert sorted(map(outcome, running)) == told
    (entry,) = owner._ledger.studies()
    assert owner.epsilon_held() == float(entry.epsilon)
    assert ask(owner, 1, learner=entry.learner)
    # One study draws noise, and what lost the race does not.
    assert threading.active_count() - before <= 1


def test_a_study_that_is_closed_while_it_is_rebuilt_answers_no_more(open_owner, make_terms, gate):
    gate.open.set()
    owner = open_owner()
    owner.enroll(make_terms(), learner="ann")
    first = ask(owner, 1)
    owner.stop()
    owner = open_owner()
    gate.reached_by(1)
    gate.open.clear()
    # One of an earlier test may end meanwhile.
    before = set(threading.enumerate())
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, owner, 2)
        gate.reached_by(1)
        assert owner.close("study-1", learner="ann").account.answered == 1
        gate.open.set()
        with pytest.raises(OrderError, match="closed"):
            asked.result(PATIENCE)
    assert first
    assert owner.charges() == 1
    assert set(threading.enumerate()) <= before


def test_queries_that_come_while_a_study_is_rebuilt_are_all_answered_once(
    open_owner, make_terms, gate
):
    gate.open.set()
    owner = open_owner()
    owner.enroll(make_terms(), learner="ann")
    owner.stop()
    owner = open_owner()
    gate.reached_by(1)
    gate.open.clear()
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask, owner, 1) for _ in range(3)]
        gate.reached_by(3)
        gate.open.set()
        answers = {future.result(PATIENCE) for future in asked}
    assert len(answers) == 1
    assert owner.charges() == 1


def test_studies_are_held_within_their_memory(open_owner, make_terms, monkeypatch):
    monkeypatch.setattr(held, "OPEN_BYTES", 1)
    owner = open_owner()
    studies = [f"s{index}" for index in range(held.LEAST_OPEN + 2)]
    for study in studies:
        owner.enroll(make_terms(study_id=study), learner="ann")
    are_ready = [owner.noise(study) is not None for study in studies]
    assert are_ready == [False] * 2 + [True] * 4
    for study in studies:
        ask(owner, 1, study)


def test_sixty_four_studies_are_all_held_ready(open_owner, make_terms):
    owner = open_owner()
    studies = [f"s{index}" for index in range(64)]
    for study in studies:
        owner.enroll(make_terms(study_id=study, epsilon=Fraction(1, 10)), learner="ann")
    assert all(map(owner.noise, studies))


def test_a_map_that_takes_long_to_read_is_refused_unread(open_owner, make_terms, monkeypatch):
    owner = open_owner(pinned=None)

    def read(*_, **__):
        raise AssertionError("the text was read")

    monkeypatch.setattr(FeatureMap, "from_json", read)
    for text, words in (
        (" " * (2 * 2**20 + 1), "max_map_bytes"),
        ("é" * (2**20 + 1), "max_map_bytes"),
        (json.dumps({str(k): 0 for k in range(50_001)}), "max_map_entries"),
    ):
        with pytest.raises(PolicyError, match=words):
            owner.enroll(make_terms(feature_map=text), learner="ann")
    assert owner.epsilon_held() == 0


@pytest.mark.parametrize(
    ("key", "value"), [("columns", {}), ("bounds", "a"), ("rotation", ["a"]), ("rotation", [])]
)
def test_faults_of_a_hostile_map_are_not_collected(feature_map, key, value):
    hostile = json.loads(feature_map.to_json()) | {key: [value] * 5000}
    with pytest.raises(ValidationError) as refused:
        FeatureMap.model_validate_json(json.dumps(hostile), strict=True)
    # Of one column at most its own few; the time of thousands grows with their square.
    assert refused.value.error_count() < 20


def test_a_study_that_the_noise_library_cannot_count_is_refused_in_a_sentence(
    open_owner, make_terms
):
    """Such a study needs an epsilon that hardly protects; it is no failure of the owner's."""
    budget = {"epsilon_per_study": "100000", "epsilon_lifetime": "100000"}
    options = {"noise": secure_noise, "insecure_noise": False}
    owner = open_owner(options=options, **budget)
    terms = make_terms(
        loss="huber", delta=1e-6, theta_max=1e19, epsilon=Fraction(100_000), responses=1, horizon=1
    )
    with pytest.raises(RefusedError, match="rounding would move answers far more than one record"):
        owner.enroll(terms, learner="ann")
