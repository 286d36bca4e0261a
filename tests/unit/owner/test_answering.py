"""One owner and its ledger: what it agrees to, what it answers, and what it never does."""

import random
import sqlite3
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits
from waiting import wait_until

from common.errors import (
    BudgetSpentError,
    BusyError,
    MalformedError,
    OrderError,
    PolicyError,
    RefusedError,
)
from common.privacy import plan_noise
from common.terms import Query, Records
from owner.core import EXACT, exact_answer
from owner.ledger_held import HeldLedger
from owner.ledger_reading import read_studies, verify_ledger
from owner.ledger_rows import LedgerError
from owner.mechanism import DrawnAhead, SecureNoise, secure_noise, seeded_noise_factory
from owner.open_study import StudyMaker
from owner.shards import Shard
from owner.studies import OPEN_STUDIES

LEARNER = "anonymous"


def ask(owner, sequence, study="study-1", learner=LEARNER):
    theta = np.full(4, 0.001 * (sequence % 1000))
    query = Query(study_id=study, sequence=sequence, theta=theta)
    return owner.answer(query, learner=learner).gradient.tobytes()


@pytest.mark.parametrize("promised", [1, 10, 99, 100, 1000])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(1, 3)])
def test_all_m_of_m_answers(open_owner, make_terms, fast_folder, promised, epsilon):
    terms = make_terms(horizon=1000, responses=promised, epsilon=epsilon)
    owner = open_owner(epsilon_lifetime=str(epsilon))
    owner.enroll(terms, learner=LEARNER)
    half = promised // 2
    seen = [ask(owner, sequence) for sequence in range(1, half + 1)]
    # A restart in the middle and one at the end change nothing.
    owner.stop()
    owner = open_owner(epsilon_lifetime=str(epsilon))
    seen += [ask(owner, sequence) for sequence in range(half + 1, promised + 1)]
    assert len(seen) == promised
    for _ in range(2):
        with pytest.raises(BudgetSpentError, match=f"all {promised} promised"):
            ask(owner, promised + 1)
        with pytest.raises(BudgetSpentError, match="0 of the lifetime budget is left"):
            owner.enroll(replace(terms, study_id="more", epsilon=Fraction(1, 10**9)), learner="x")
        owner.stop()
        owner = open_owner(epsilon_lifetime=str(epsilon))
    owner.stop()
    _, (entry,) = read_studies(fast_folder / "ledger.sqlite")
    assert (entry.account.answered, entry.epsilon_spent) == (promised, epsilon)
    assert verify_ledger(fast_folder / "ledger.sqlite") == []


def test_no_map_of_a_learner_changes_how_many_records_count(
    open_owner, make_terms, feature_map, table_maker
):
    """Else a map that takes a value of the target for none would count who has it, for nothing."""
    records = table_maker(200, seed=1).assign(y=np.arange(200) % 5)
    owner = open_owner(pinned=None, records=records, losses=["squared", "logistic"])
    target = feature_map.target
    classes = {"positive": "3", "bound": 1.0, "fill": -1.0}
    targets = [
        target,
        *(target.model_copy(update={"missing": (str(value),)}) for value in range(5)),
        target.model_copy(update={"missing": tuple("01234"), "bound": 1e-300, "fill": 0.0}),
        target.model_copy(update={**classes, "missing": ("0",)}),
        target.model_copy(update={**classes, "missing": ("0", "1", "2", "4")}),
    ]
    column, *others = feature_map.columns
    told = set()
    for place, rule in enumerate(targets):
        coded = column.model_copy(update={"missing": rule.missing})
        changes = {"target": rule, "columns": (coded, *others)}
        terms = make_terms(
            study_id=f"study-{place}",
            loss="squared" if rule.positive is None else "logistic",
            feature_map=feature_map.model_copy(update=changes).to_json(),
        )
        enrolled = owner.enroll(terms, learner=LEARNER)
        told.add((enrolled.num_records, owner.describe(learner=LEARNER).num_records))
        assert owner.close(terms.study_id, learner=LEARNER).epsilon_spent == 0
    assert told == {(200, 200)}


def test_an_owner_takes_one_thread_of_linear_algebra_until_it_stops(
    open_owner, make_terms, monkeypatch
):
    def threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2):
        owner = open_owner()
        assert threads() == {1}
        owner.stop()
        assert threads() == {2}
        # Where nobody holds it, each answer does.
        monkeypatch.setitem(EXACT, "gradient", lambda shard, theta, terms: threads())
        shard = Shard(Records(features=np.ones((2, 1)), targets=np.zeros(2)))
        assert exact_answer(shard, np.zeros(1), make_terms()) == {1}
        assert threads() == {2}


def test_charged_before_released(open_owner, make_terms, fast_folder, monkeypatch):
    owner = open_owner()
    owner.enroll(make_terms(), learner=LEARNER)
    steps = []
    charge = owner._ledger.charge

    answering = threading.Event()

    def charge_and_look(**values):
        # Time for a release that does not wait for it; what is late charges nothing.
        time.sleep(0.02)
        if not answering.is_set():
            return
        charge(**values)
        # Another connection sees only what is committed.
        _, (entry,) = read_studies(fast_folder / "ledger.sqlite")
        assert entry.account.answered == values["sequence"]
        assert entry.account.responses.joined.endswith(values["response"])
        steps.append("charged")

    monkeypatch.setattr(owner._ledger, "charge", charge_and_look)
    for sequence in range(1, 4):
        answering.set()
        released = ask(owner, sequence)
        answering.clear()
        steps.append("released")
        _, (entry,) = read_studies(fast_folder / "ledger.sqlite")
        assert entry.account.responses.joined.endswith(released)
    assert steps == ["charged", "released"] * 3


def test_a_charge_that_fails_releases_nothing_and_the_same_query_is_answered_later(
    open_owner, make_terms, fast_folder, monkeypatch
):
    # Each charge a transaction of its own, as with responses too large for the log.
    monkeypatch.setattr("owner.ledger_charges.given_at_once", lambda size: 1)
    owner = open_owner()
    owner.enroll(make_terms(), learner=LEARNER)
    first = ask(owner, 1)
    # A second connection that holds the write lock makes the charge fail for real.
    owner._ledger._held.db.execute("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(fast_folder / "ledger.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for _ in range(3):
        with pytest.raises(Exception, match="database is locked"):
            ask(owner, 2)
        assert ask(owner, 1) == first
    other.execute("ROLLBACK")
    other.close()
    second = ask(owner, 2)
    assert ask(owner, 2) == second != first
    owner.stop()
    assert verify_ledger(fast_folder / "ledger.sqlite") == []


def test_a_transaction_that_cannot_be_undone_stops_the_owner(
    open_owner, make_terms, monkeypatch, fast_folder
):
    monkeypatch.setattr("owner.ledger_charges.given_at_once", lambda size: 1)
    owner = open_owner()
    owner.enroll(make_terms(), learner=LEARNER)
    ask(owner, 1)

    class Stuck:
        """The ledger's connection, with a disk that takes neither COMMIT nor ROLLBACK."""

        def __init__(self, db):
            self.db = db

        def __getattr__(self, name):
            return getattr(self.db, name)

        def execute(self, statement, *arguments):
            if statement in {"COMMIT", "ROLLBACK"}:
                raise sqlite3.OperationalError("disk I/O error")
            return self.db.execute(statement, *arguments)

    db = owner._ledger._held.db
    owner._ledger._held.db = Stuck(db)
    with pytest.raises(Exception, match="disk I/O error"):
        ask(owner, 2)
    owner._ledger._held.db = db
    # The open transaction shows response 2 as charged; releasing it now would be free.
    assert db.execute("SELECT answered FROM accounts").fetchone()[0] == 2
    for sequence in (1, 2, 3):
        with pytest.raises(Exception, match="an earlier failure could not be undone"):
            ask(owner, sequence)
    assert "only a new start" in str(owner.ledger_fault)
    owner.stop()
    # Whether what was begun stands in the ledger is not known, so the next start may need its log.
    assert (fast_folder / "ledger.sqlite-given").exists()
    again = open_owner()
    assert again.enroll(make_terms(), learner=LEARNER).answered == 1


def test_retry_is_replayed(open_owner, make_terms):
    owner = open_owner()
    owner.enroll(make_terms(responses=2), learner=LEARNER)
    answers = [ask(owner, 1), ask(owner, 1), ask(owner, 1)]
    owner.stop()
    owner = open_owner()
    answers.append(ask(owner, 1))
    assert len(set(answers)) == 1
    with pytest.raises(OrderError, match="another theta"):
        owner.answer(Query(study_id="study-1", sequence=1, theta=np.full(4, 0.5)), learner=LEARNER)
    assert ask(owner, 2) not in answers
    assert owner.enroll(make_terms(responses=2), learner=LEARNER).answered == 2


def test_lifetime_budget(open_owner, make_terms):
    owner = open_owner(epsilon_lifetime="1")
    for index in range(3):
        owner.enroll(make_terms(study_id=f"s{index}", epsilon=Fraction(1, 3)), learner=LEARNER)
    with pytest.raises(BudgetSpentError, match="0 of the lifetime budget is left"):
        owner.enroll(make_terms(study_id="s3", epsilon=Fraction(1, 1000)), learner=LEARNER)
    ask(owner, 1, "s1")
    # Nine of ten responses were not used: they return, and not one thousandth more.
    owner.close("s1", learner=LEARNER)
    back = Fraction(1, 3) * Fraction(9, 10)
    assert owner.describe(learner=LEARNER).epsilon_left == back
    with pytest.raises(BudgetSpentError, match=r"but 0\.3 of the lifetime"):
        owner.enroll(make_terms(study_id="s4", epsilon=back + Fraction(1, 10**9)), learner=LEARNER)
    owner.enroll(make_terms(study_id="s5", epsilon=back), learner=LEARNER)
    assert owner.describe(learner=LEARNER).epsilon_left == 0


@pytest.mark.parametrize("is_trained_first", [True, False])
def test_a_training_and_what_is_said_of_its_model_spend_no_more_than_one_study_may(
    open_owner, make_terms, validation_terms, is_trained_first
):
    """Both names are the learner's to choose, and to the officer they are one study."""
    owner = open_owner(epsilon_per_study="1", epsilon_lifetime="3")
    parts = [
        (make_terms(study_id="s"), Fraction(9, 10)),
        (replace(validation_terms, study_id="s:validation"), Fraction(1, 10)),
    ]
    (first, part), (second, rest) = parts if is_trained_first else parts[::-1]
    owner.enroll(replace(first, epsilon=part), learner="ann")
    more = replace(second, epsilon=rest + Fraction(1, 1000))
    with pytest.raises(PolicyError, match=r"epsilon 1\.001 together, .* at most 1 on one study"):
        owner.enroll(more, learner="ann")
    assert owner.epsilon_held() == float(part)
    owner.enroll(replace(second, epsilon=rest), learner="ann")
    assert owner.epsilon_held() == 1
    owner.enroll(make_terms(study_id="s2", epsilon=Fraction(1)), learner="ann")


def test_both_parts_of_a_study_that_are_agreed_on_at_once_spend_no_more(
    open_owner, make_terms, validation_terms, monkeypatch
):
    """While the one is made ready the other is enrolled."""
    owner = open_owner(epsilon_per_study="1", epsilon_lifetime="3")
    said = replace(validation_terms, study_id="s:validation", epsilon=Fraction(1))
    prepare = StudyMaker.prepare

    def prepared(self, terms):
        if terms.study_id == "s":
            owner.enroll(said, learner="ann")
        return prepare(self, terms)

    monkeypatch.setattr(StudyMaker, "prepare", prepared)
    with pytest.raises(PolicyError, match="together"):
        owner.enroll(make_terms(study_id="s", epsilon=Fraction(1)), learner="ann")
    assert owner.epsilon_held() == 1


def test_a_study_takes_no_room_from_what_another_learner_calls_alike(
    open_owner, make_terms, validation_terms
):
    owner = open_owner(epsilon_per_study="1", epsilon_lifetime="3")
    owner.enroll(make_terms(study_id="s", epsilon=Fraction(1)), learner="ann")
    owner.enroll(replace(validation_terms, study_id="s:validation"), learner="bob")


def test_a_lowered_lifetime_budget_stops_studies_that_were_promised_more(open_owner, make_terms):
    owner = open_owner(epsilon_lifetime="1")
    owner.enroll(make_terms(), learner=LEARNER)
    ask(owner, 1)
    owner.stop()
    owner = open_owner(epsilon_per_study="1", epsilon_lifetime="0.3")
    kept = [ask(owner, sequence) for sequence in (2, 3)]
    with pytest.raises(BudgetSpentError, match="lowered its lifetime budget"):
        ask(owner, 4)
    assert ask(owner, 3) == kept[-1]


@pytest.mark.parametrize(
    ("tightened", "words"),
    [
        ({"kappa": 2}, "ask with kappa = 2"),
        ({"losses": ["hinge"]}, "answers only for the losses hinge"),
        ({"epsilon_per_study": "1/2"}, "at most 0.5 on one study"),
        ({"min_num_records": 201}, "fewer records than it answers for"),
        ({"max_features": 3}, "at most 3"),
        ({"learners": ["else"]}, "does not serve this learner"),
        ({"pinned": "another"}, "not the one this owner was given"),
    ],
)
def test_settings_that_were_tightened_hold_for_studies_under_way(
    open_owner, make_terms, feature_map, tightened, words
):
    owner = open_owner()
    owner.enroll(make_terms(), learner=LEARNER)
    first = ask(owner, 1)
    owner.stop()
    if "pinned" in tightened:
        tightened = {"pinned": feature_map.model_copy(update={"source": "else"})}
    owner = open_owner(**tightened)
    for call in (
        lambda: ask(owner, 2),
        lambda: owner.enroll(make_terms(), learner=LEARNER),
        lambda: owner.offer("study-1", learner=LEARNER),
    ):
        with pytest.raises(PolicyError, match=words):
            call()
    owner.stop()
    owner = open_owner()
    assert owner.enroll(make_terms(), learner=LEARNER).answered == 1
    assert ask(owner, 1) == first


def test_a_raised_kappa_counts_for_what_was_spent_before(open_owner, make_terms):
    """A record in three shards lost three times what a study told that counted on one."""
    owner = open_owner()
    owner.enroll(make_terms(epsilon=Fraction(2)), learner=LEARNER)
    ask(owner, 1)
    owner.enroll(make_terms(study_id="two", kappa=2), learner=LEARNER)
    ask(owner, 1, "two")
    owner.stop()
    owner = open_owner(kappa=3)
    for study in ("study-1", "two"):
        owner.close(study, learner=LEARNER)
    # A tenth of 2 thrice, and a tenth of 1 one and a half times.
    left = 10 - Fraction(6, 10) - Fraction(15, 100)
    assert owner.describe(learner=LEARNER).epsilon_left == left
    with pytest.raises(BudgetSpentError, match=r"9\.25 of the lifetime"):
        owner.enroll(make_terms(study_id="more", kappa=3, epsilon=Fraction(10)), learner=LEARNER)
    owner.enroll(make_terms(study_id="rest", kappa=3, epsilon=left), learner=LEARNER)
    owner.stop()
    assert open_owner().describe(learner=LEARNER).epsilon_left > 0


@pytest.mark.parametrize("seed", range(5))
def test_two_learners_in_parallel_never_pass_the_lifetime_budget(
    open_owner, make_terms, fast_folder, seed
):
    """Fifty interleavings for each seed: two threads, random scripts, random switches."""
    choices = random.Random(seed)
    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for round_number in range(50):
            _interleave(open_owner, make_terms, fast_folder / f"l{round_number}.sqlite", choices)
    finally:
        sys.setswitchinterval(switching)


def _interleave(  # noqa: C901
    open_owner, make_terms, ledger, choices
):
    lifetime = Fraction(choices.randint(1, 6), 3)
    owner = open_owner(ledger=ledger.name, epsilon_lifetime=str(lifetime), queries_per_second=None)
    got = Counter()
    different = {}
    shares = {}
    begin = threading.Barrier(2)

    def learner(name, script):
        begin.wait()
        for number in range(3):
            study = f"{name}-{number}"
            promised = script.randint(1, 4)
            epsilon = Fraction(script.randint(1, 5), 6)
            shares[study] = epsilon / promised
            try:
                owner.enroll(
                    make_terms(study_id=study, responses=promised, epsilon=epsilon), learner=name
                )
            except BudgetSpentError:
                continue
            for sequence in range(1, script.randint(1, promised + 1) + 1):
                try:
                    for _ in range(script.randint(1, 2)):
                        answer = ask(owner, sequence, study, name)
                        different.setdefault((study, sequence), set()).add(answer)
                except BudgetSpentError:
                    assert sequence == promised + 1
            if script.random() < 0.7:
                owner.close(study, learner=name)

    threads = [
        threading.Thread(target=learner, args=(name, random.Random(choices.random())))
        for name in ("ann", "ben")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    owner.stop()
    for study, _ in different:
        got[study] += 1
    spent = sum((shares[study] * count for study, count in got.items()), Fraction(0))
    assert spent <= lifetime
    assert all(len(answers) == 1 for answers in different.values())
    _, entries = read_studies(ledger)
    assert sum((entry.epsilon_spent for entry in entries), Fraction(0)) == spent
    assert sum((entry.epsilon_held for entry in entries), Fraction(0)) <= lifetime


def test_ledger_belongs_to_the_shard(open_owner, make_terms, table_maker):
    owner = open_owner()
    owner.enroll(make_terms(), learner=LEARNER)
    owner.stop()
    records = table_maker(200, seed=1)
    open_owner(records=records).stop()
    changed = records.copy()
    changed.iloc[7, 0] = np.nextafter(changed.iloc[7, 0], 10)
    for other in (
        changed,
        records.iloc[:-1],
        records.iloc[::-1],
        records.rename(columns=str.upper),
    ):
        with pytest.raises(LedgerError, match="belongs to other records") as refused:
            open_owner(records=other, pinned=None)
        # Two owners' settings may name one ledger by mistake.
        assert "(it was begun for the owner owner-a); where it is another" in str(refused.value)
        # A record that has to be erased is none that can be restored.
        assert "erased or corrected, begin a new ledger and lower" in str(refused.value)


def test_noise_scale_is_theorem_1(open_owner, make_terms):
    terms = make_terms(epsilon=Fraction(1, 3), clip=0.25)
    owner = open_owner(options={"noise": secure_noise, "insecure_noise": False})
    scale = owner.enroll(terms, learner=LEARNER).noise_scale
    theorem = 2 * 0.25 * 10 / (200 / 3)
    assert theorem <= scale <= theorem * (1 + 2e-6)


@pytest.mark.parametrize("kappa", [1, 2])
@pytest.mark.parametrize("restart", [False, True])
def test_the_noise_librarys_map_has_the_last_word(
    open_owner, make_terms, fast_folder, kappa, restart
):
    """A plan a millionth too small is refused, at enrolment and when a study is taken up again."""

    def too_little(plan):
        small = replace(plan, scale_units=plan.scale_units * (1 - 1e-6))
        return DrawnAhead(SecureNoise(small), vectors=2, block=1)

    wrong = {"noise": too_little, "insecure_noise": False}
    if restart:
        owner = open_owner(options={"noise": secure_noise, "insecure_noise": False})
        owner.enroll(make_terms(kappa=kappa), learner=LEARNER)
        owner.stop()
        owner = open_owner(options=wrong)
        with pytest.raises(RuntimeError, match="noise library promises"):
            ask(owner, 1)
    else:
        owner = open_owner(options=wrong)
        with pytest.raises(RuntimeError, match="noise library promises"):
            owner.enroll(make_terms(kappa=kappa), learner=LEARNER)
        assert owner.describe(learner=LEARNER).epsilon_left == 10
    owner.stop()
    assert all(not e.account.answered for e in read_studies(fast_folder / "ledger.sqlite")[1])


def test_looking_again_for_noise_counts_as_no_request(open_owner, make_terms):
    is_open = threading.Event()

    class Gated(SecureNoise):
        def draw(self, count):
            assert is_open.wait(20) if count > 1 else True
            return super().draw(count)

    def gated(plan):
        return DrawnAhead(Gated(plan), vectors=4, block=2)

    options = {"noise": gated, "insecure_noise": False}
    owner = open_owner(queries_per_second=3, options=options)
    owner.access._clock = lambda: 0.0
    owner.enroll(make_terms(), learner=LEARNER)
    ask(owner, 1)
    second = Query(study_id="study-1", sequence=2, theta=np.full(4, 0.002))
    assert [owner.answer_at_once(second, learner=LEARNER) for _ in range(9)] == [None] * 9
    assert owner.charges() == 1
    is_open.set()
    ask(owner, 2)
    with pytest.raises(BusyError):
        owner.describe(learner=LEARNER)


def test_a_study_goes_on_only_under_the_noise_it_was_promised(open_owner, make_terms):
    owner = open_owner()
    # As a version would that adds other noise for the same terms.
    owner._ledger.open_study(
        make_terms(), learner=LEARNER, noise_scale=7.0, insecure_noise=True, lifetime=Fraction(10)
    )
    with pytest.raises(RuntimeError, match="use the version that enrolled it"):
        ask(owner, 1)


def test_insecure_noise_is_written_down_and_never_mixed(open_owner, make_terms, fast_folder):
    owner = open_owner()
    owner.enroll(make_terms(), learner=LEARNER)
    owner.stop()
    assert read_studies(fast_folder / "ledger.sqlite")[1][0].insecure_noise
    owner = open_owner(options={"noise": secure_noise, "insecure_noise": False})
    with pytest.raises(OrderError, match="noise of another kind"):
        ask(owner, 1)


def test_noise_is_not_seeded(open_owner, make_terms):
    """Two owners of equal records, asked alike from equal seeds, answer differently."""
    answers = []
    for ledger in ("a.sqlite", "b.sqlite"):
        np.random.seed(3)  # noqa: NPY002 (nothing here may listen to it)
        random.seed(3)
        owner = open_owner(ledger=ledger, options={"noise": secure_noise, "insecure_noise": False})
        assert not owner.enroll(make_terms(), learner=LEARNER).insecure_noise
        answers += [ask(owner, sequence) for sequence in range(1, 6)]
    assert len(set(answers)) == 10


def test_sensitivity_never_read_from_data(open_owner, make_terms, table_maker):
    """Records moved, stretched or absurd change nothing of the noise; only their number does."""
    scales = set()
    rng = np.random.default_rng(0)
    for number, change in enumerate(
        (
            lambda table: table,
            lambda table: table * 1e12,
            lambda table: table * 0.0,
            lambda table: table + rng.normal(size=table.shape),
            lambda table: table.assign(y=1e300),
        )
    ):
        owner = open_owner(ledger=f"{number}.sqlite", records=change(table_maker(200, seed=1)))
        scales.add(owner.enroll(make_terms(), learner=LEARNER).noise_scale)
    assert len(scales) == 1
    owner = open_owner(ledger="more.sqlite", records=table_maker(400, seed=1))
    assert owner.enroll(make_terms(), learner=LEARNER).noise_scale < scales.pop()


def test_theta_outside_the_box_is_refused(open_owner, make_terms):
    owner = open_owner()
    owner.enroll(make_terms(theta_max=0.1), learner=LEARNER)
    outside = np.nextafter(0.1, 1.0)
    for coordinate in range(4):
        for value in (outside, -outside, np.nan, np.inf, -np.inf, 1e308):
            theta = np.zeros(4)
            theta[coordinate] = value
            with pytest.raises(MalformedError):
                owner.answer(Query(study_id="study-1", sequence=1, theta=theta), learner=LEARNER)
    assert owner.enroll(make_terms(theta_max=0.1), learner=LEARNER).answered == 0
    inside = np.array([0.1, -0.1, 0.1, 0.0])
    owner.answer(Query(study_id="study-1", sequence=1, theta=inside), learner=LEARNER)


def test_more_studies_than_are_held_ready_all_go_on(open_owner, make_terms):
    owner = open_owner(enrollments_per_hour=1000)
    studies = [f"s{index}" for index in range(OPEN_STUDIES + 4)]
    before = threading.active_count()
    for study in studies:
        owner.enroll(make_terms(study_id=study, epsilon=Fraction(1, 100)), learner=LEARNER)
    for sequence in (1, 2):
        for study in studies:
            ask(owner, sequence, study)
    assert threading.active_count() - before <= OPEN_STUDIES


def test_closed_studies_leave_nothing_running(open_owner, make_terms):
    owner = open_owner()
    before = threading.active_count()
    for index in range(5):
        study = f"s{index}"
        owner.enroll(make_terms(study_id=study), learner=LEARNER)
        ask(owner, 1, study)
        owner.close(study, learner=LEARNER)
        owner.close(study, learner=LEARNER)
        for sequence in (1, 2):
            with pytest.raises(OrderError, match="closed"):
                ask(owner, sequence, study)
        with pytest.raises(OrderError, match="closed"):
            owner.enroll(make_terms(study_id=study), learner=LEARNER)
    # Nothing but its row stays of a study without a response, and it stays closed all the same.
    owner.enroll(make_terms(study_id="unasked"), learner=LEARNER)
    owner.close("unasked", learner=LEARNER)
    with pytest.raises(OrderError, match="closed"):
        owner.enroll(make_terms(study_id="unasked"), learner=LEARNER)
    with pytest.raises(PolicyError, match="other terms"):
        owner.enroll(make_terms(study_id="unasked", responses=9), learner=LEARNER)
    # Nobody waited for the last noise, but it ends.
    wait_until(lambda: threading.active_count() == before, seconds=10.0)


def test_a_study_belongs_to_the_learner_that_enrolled(open_owner, make_terms):
    owner = open_owner()
    owner.enroll(make_terms(), learner="ann")
    ask(owner, 1, learner="ann")
    for call in (
        lambda: ask(owner, 1, learner="ben"),
        lambda: ask(owner, 2, learner="ben"),
        lambda: owner.close("study-1", learner="ben"),
    ):
        with pytest.raises(OrderError, match="no such study was enrolled by this learner"):
            call()
    with pytest.raises(PolicyError, match="other terms or by another learner"):
        owner.enroll(make_terms(), learner="ben")
    # Nor did ben close it.
    assert ask(owner, 2, learner="ann")


NEWTON = {"release": "newton", "responses": 1}


def refusals(make_terms, feature_map):
    other_map = feature_map.model_copy(update={"source": "else"}).to_json()
    return [
        (make_terms(study_id="no spaces"), MalformedError, "study_id"),
        (make_terms(loss="absolute"), MalformedError, "loss must be one of"),
        (make_terms(theta_max=float("nan")), MalformedError, "theta_max"),
        (make_terms(theta_max=1e200), MalformedError, "theta_max must be from"),
        (make_terms(responses=11), MalformedError, "responses <= horizon"),
        (make_terms(epsilon=Fraction(0)), MalformedError, "epsilon must be greater than 0"),
        (make_terms(epsilon=Fraction(1, 10**19)), MalformedError, "at most 18 digits"),
        (make_terms(clip=0.0), MalformedError, "clip must be a finite number"),
        (make_terms(clip=float("nan")), MalformedError, "clip must be a finite number"),
        (make_terms(clip=float("inf")), MalformedError, "clip must be a finite number"),
        (
            make_terms(clip=1e-300),
            MalformedError,
            "clip must be a finite number of at least 1e-100",
        ),
        (make_terms(kappa=0), MalformedError, "kappa"),
        (make_terms(kappa=10**9 + 1), MalformedError, "kappa must be a whole number from 1 to 1e9"),
        (make_terms(delta=1.0), MalformedError, "delta does not belong to squared loss"),
        (make_terms(loss="huber"), MalformedError, "huber loss needs delta = NUMBER"),
        (make_terms(loss="huber", delta=float("nan")), MalformedError, "delta must be a finite"),
        (make_terms(loss="huber", delta=float("inf")), MalformedError, "delta must be a finite"),
        (make_terms(loss="huber", delta=-1.0), MalformedError, "delta must be a finite number"),
        (make_terms(loss="huber", delta=1e-101), MalformedError, "delta must be a finite number"),
        (make_terms(loss="huber", delta=1.0), PolicyError, "answers only for the losses squared"),
        (make_terms(**NEWTON), MalformedError, "and a curvature_scale from 1e-100 to 1e"),
        *(
            (make_terms(**NEWTON, curvature_scale=bad), MalformedError, "a curvature_scale from")
            for bad in (0.0, -1.0, 9e-101, 2e100, float("nan"), float("inf"))
        ),
        (
            make_terms(**NEWTON, curvature_scale=1e100),
            MalformedError,
            "one record's gradient is bounded by",
        ),
        (
            make_terms(curvature_scale=1.0),
            MalformedError,
            "curvature_scale belongs to newton, not to gradient",
        ),
        (make_terms(loss="hinge"), PolicyError, "answers only for the losses squared"),
        (make_terms(epsilon=Fraction(11)), PolicyError, "at most 10 on one study"),
        (make_terms(feature_map=other_map), PolicyError, "not the one this owner was given"),
    ]


def test_every_refused_enrolment_says_why_and_reserves_nothing(
    open_owner, make_terms, feature_map, fast_folder
):
    owner = open_owner(losses=["squared"])
    for terms, kind, words in refusals(make_terms, feature_map):
        with pytest.raises(kind, match=words):
            owner.enroll(terms, learner=LEARNER)
    owner.stop()
    assert read_studies(fast_folder / "ledger.sqlite")[1] == []
    owner = open_owner(min_num_records=201)
    with pytest.raises(PolicyError, match="fewer records"):
        owner.enroll(make_terms(), learner=LEARNER)
    owner.stop()
    owner = open_owner(kappa=3)
    with pytest.raises(PolicyError, match="ask with kappa = 3"):
        owner.enroll(make_terms(kappa=2), learner=LEARNER)
    three = owner.enroll(make_terms(kappa=3), learner=LEARNER).noise_scale
    one = plan_noise(make_terms(), feature_map.domain, num_records=200).noise_scale
    assert three == pytest.approx(3 * one, rel=1e-6)


def test_strange_feature_maps_are_refused_in_public_words(open_owner, make_terms, feature_map):
    owner = open_owner(pinned=None, max_features=3)
    small = open_owner(pinned=None, ledger="other.sqlite")
    with pytest.raises(PolicyError, match="4 features, this owner answers for at most 3"):
        owner.enroll(make_terms(), learner=LEARNER)
    private = feature_map.model_copy(update={"source_kind": "private"})
    with pytest.raises(PolicyError, match="fitted on private records"):
        small.enroll(make_terms(feature_map=private.to_json()), learner=LEARNER)
    rule = feature_map.columns[0].model_copy(update={"name": "secret " * 1000})
    unknown = feature_map.model_copy(update={"columns": (rule, *feature_map.columns[1:])})
    with pytest.raises(PolicyError, match="no column 'secret") as refused:
        small.enroll(make_terms(feature_map=unknown.to_json()), learner=LEARNER)
    assert len(str(refused.value)) < 300
    for text in ("", "{}", "[" * 10**5, feature_map.to_json()[:-10], "\x00"):
        with pytest.raises(MalformedError, match="feature map is not valid"):
            small.enroll(make_terms(feature_map=text), learner=LEARNER)
    classes = feature_map.target.model_copy(update={"positive": "1", "bound": 1.0, "fill": 1.0})
    with pytest.raises(MalformedError, match="target is numbers"):
        small.enroll(
            make_terms(feature_map=feature_map.model_copy(update={"target": classes}).to_json()),
            learner=LEARNER,
        )


def test_private_bounds_are_served_only_with_the_flag(open_owner, make_terms, feature_map):
    private = feature_map.model_copy(update={"source_kind": "private"})
    owner = open_owner(pinned=None, options={"allow_private_bounds": True})
    owner.enroll(make_terms(feature_map=private.to_json()), learner=LEARNER)


def test_records_that_cannot_be_read_are_filled_not_told(open_owner, make_terms, table_maker):
    """The shard's own mistakes are the operator's to see; to a learner they would be answers."""
    records = table_maker(200, seed=1).astype(object)
    records.iloc[3] = ["?", None, "1e999", "not a number"]
    owner = open_owner(records=records, pinned=None)
    owner.enroll(make_terms(), learner=LEARNER)
    assert np.all(np.isfinite(np.frombuffer(ask(owner, 1))))


@pytest.mark.parametrize(
    ("theta_max", "clip"), [(1e-90, None), (1e-90, 1e90), (1.0, 1e-3), (1e97, None), (1e97, 1e97)]
)
def test_no_extreme_study_makes_an_answer_depend_on_an_overflow(
    open_owner, make_terms, theta_max, clip
):
    """An answer that is refused only for some records would tell about them."""
    owner = open_owner(pinned=None)
    owner.enroll(make_terms(theta_max=theta_max, clip=clip), learner=LEARNER)
    for sequence, sign in ((1, 1.0), (2, -1.0)):
        theta = np.full(4, sign * theta_max)
        answer = owner.answer(
            Query(study_id="study-1", sequence=sequence, theta=theta), learner=LEARNER
        )
        assert np.all(np.isfinite(answer.gradient))


def test_awkward_budgets_stay_quick_and_printable(open_owner, make_terms):
    """Denominators without a common factor would make sums of thousands of digits."""
    owner = open_owner(enrollments_per_hour=1000)
    for index in range(400):
        epsilon = Fraction(10**15, 10**17 + 2 * index + 1)
        owner.enroll(make_terms(study_id=f"s{index}", epsilon=epsilon), learner=LEARNER)
        # Those that are left have more digits together than Python writes down.
        if not index % 10:
            owner.close(f"s{index}", learner=LEARNER)
    left = owner.describe(learner=LEARNER).epsilon_left
    assert 6 < left < 7
    assert len(str(left)) < 40
    with pytest.raises(RefusedError, match="at most 10 on one study"):
        owner.enroll(make_terms(epsilon=Fraction(10**18, 3)), learner=LEARNER)
    with pytest.raises(BudgetSpentError, match=r"but 6\.\d{1,12} of the lifetime"):
        owner.enroll(make_terms(epsilon=Fraction(10)), learner=LEARNER)


def test_equal_seeds_are_equal_only_where_insecure_noise_was_asked_for(open_owner, make_terms):
    answers = []
    for ledger in ("a.sqlite", "b.sqlite"):
        owner = open_owner(ledger=ledger, options={"noise": seeded_noise_factory(5)})
        assert owner.enroll(make_terms(), learner=LEARNER).insecure_noise
        answers.append(ask(owner, 1))
    assert answers[0] == answers[1]


def test_a_study_that_is_rebuilt_reads_the_ledger_only_while_nobody_changes_it(
    open_owner, make_terms, monkeypatch
):
    """Read beside a change, a sound ledger looked as if it was cut short."""
    first = open_owner()
    first.enroll(make_terms(), learner=LEARNER)
    first.stop()
    owner = open_owner()
    read, held = HeldLedger.text, []

    def watched(ledger, digest):
        held.append(owner._studies.lock.locked())
        return read(ledger, digest)

    monkeypatch.setattr(HeldLedger, "text", watched)
    ask(owner, 1)
    assert held
    assert all(held)
