"""Many owners are called at the same time; what comes of it does not depend on who was first."""

import json
import threading
import time
from contextlib import closing
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from common.errors import InputError, PolicyError, UnreachableError, UntrustedError
from learner.training.enrolment import (
    ENROLLMENTS,
    all_present,
    at_once,
    enrollments_of,
    lines_to,
    noted_enrollments,
    present,
)
from learner.training.journal import Journal
from learner.training.journal_values import TickEntry
from learner.training.line import OwnerLine
from learner.training.memory_owner import MemoryOwner


def fails(error, *, after=0.0):
    def call():
        time.sleep(after)
        raise error

    return call


def test_calls_are_made_at_the_same_time_and_told_in_order():
    together = threading.Barrier(3, timeout=10)

    def call(index):
        together.wait()
        time.sleep(0.05 * (2 - index))
        return index

    assert at_once(call, range(3)) == [0, 1, 2]
    assert at_once(call, ()) == []


def test_who_is_not_there_yet_is_waited_for():
    tries = []

    def late():
        tries.append(None)
        if len(tries) < 3:
            raise UnreachableError("owner b: nobody is there")
        return "b"

    assert all_present([lambda: "a", late, lambda: "c"], patience=30.0) == ["a", "b", "c"]
    assert len(tries) == 3


@pytest.mark.parametrize(("patience", "told"), [(0.3, ["told"]), (0.0, [])])
def test_who_is_waited_for_is_told_once(patience, told):
    said = []
    away = fails(UnreachableError("owner b: nobody is there"))
    with pytest.raises(InputError, match="owner b"):
        present(away, patience=patience, waits=lambda: said.append("told"))
    assert said == told


def test_who_stays_away_is_bad_input():
    away = fails(UnreachableError("owner b: nobody is there"))
    with pytest.raises(InputError, match="owner b: nobody is there"):
        all_present([lambda: "a", away], patience=0.1)


def test_owners_that_come_one_after_the_other_are_waited_for_no_longer_than_one():
    began = time.monotonic()

    def comes(name, *, after):
        def call():
            if time.monotonic() < began + after:
                raise UnreachableError(f"owner {name}: nobody is there")
            return name

        return call

    late, later = comes("a", after=1.2), comes("b", after=2.4)
    with pytest.raises(InputError, match="owner b: nobody is there"):
        all_present([late, later], patience=1.5)
    # One that has come meanwhile is there, however late those before it were.
    began = time.monotonic()
    assert all_present([late, comes("b", after=0.3)], patience=1.5) == ["a", "b"]


def test_those_that_were_not_there_are_tried_at_the_same_time_and_no_more_once_one_stays_away():
    """Over slow lines each try takes long."""
    together = threading.Barrier(3, timeout=10)

    def second_try(name):
        tries = iter([fails(UnreachableError(f"owner {name}: nobody is there")), together.wait])

        def call():
            next(tries)()
            return name

        return call

    assert all_present([second_try(name) for name in "abc"], patience=30.0) == ["a", "b", "c"]
    tries = []
    tried_again = threading.Event()

    def away():
        tries.append(time.monotonic())
        if len(tries) > 1:
            tried_again.set()
        raise UnreachableError("owner b: nobody is there")

    def second_try_refuses():
        assert tried_again.wait(10)
        raise PolicyError("owner a")

    outcomes = iter([fails(UnreachableError("owner a: nobody is there")), second_try_refuses])

    def refuses():
        next(outcomes)()
        return "a"

    with pytest.raises(PolicyError, match="owner a"):
        all_present([refuses, away], patience=30.0)
    time.sleep(1.0)
    assert len(tries) <= 3


def test_the_first_try_counts_as_waiting():
    tries = []
    stays_away = fails(UnreachableError("owner a: nobody is there"), after=0.5)

    def away():
        tries.append(None)
        stays_away()

    with pytest.raises(InputError, match="owner a: nobody is there"):
        all_present([away], patience=0.9)
    assert len(tries) <= 2


def test_who_was_waited_for_within_the_call_is_not_waited_for_again():
    """As an owner that connects to the learner."""
    tries = []
    stays_away = fails(UnreachableError("owner a: is not attached"), after=0.3)

    def away():
        tries.append(None)
        stays_away()

    with pytest.raises(InputError, match="owner a: is not attached"):
        all_present([away], patience=0.3)
    assert len(tries) == 1


def test_the_first_in_order_that_refuses_is_told_and_nobody_is_waited_for():
    away = fails(UnreachableError("owner a: nobody is there"))
    slow, quick = fails(PolicyError("owner b"), after=0.2), fails(PolicyError("owner c"))
    began = time.monotonic()
    with pytest.raises(PolicyError, match="owner b"):
        all_present([away, slow, quick], patience=30.0)
    assert time.monotonic() - began < 10
    with pytest.raises(InputError, match="a certificate"):
        all_present([away, fails(UntrustedError("a certificate"))], patience=30.0)


@pytest.mark.parametrize("amount", ["1e5", "-1", " 1", "0.1", "1/0", "1/3/3", "9" * 201, 1, None])
def test_an_amount_of_epsilon_that_was_never_noted_is_not_computed_with(amount):
    facts = {"num_records": 9, "responses": 3, "noise_scale": 0.5, "repeats": 1}
    facts |= {"insecure_noise": False, "epsilon": "1/3"}
    (noted,) = noted_enrollments(json.dumps([facts]), owners=1)
    assert noted.epsilon == Fraction(1, 3)
    # 1e5 stands for 1e999999999, which would not end if this failed.
    with pytest.raises((ValueError, TypeError, ZeroDivisionError)):
        noted_enrollments(json.dumps([facts | {"epsilon": amount}]), owners=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"responses": True},
        {"num_records": True},
        {"repeats": -1},
        {"noise_scale": -0.5},
        {"noise_scale": 10**400},
        {"insecure_noise": "no"},
    ],
)
def test_an_enrolment_that_was_never_noted_is_not_believed(changes):
    facts = {"num_records": 9, "responses": 3, "noise_scale": 0.5, "repeats": 1}
    facts |= {"insecure_noise": False, "epsilon": "1/3"}
    assert noted_enrollments(json.dumps([facts]), owners=1)
    with pytest.raises(ValueError, match="no "):
        noted_enrollments(json.dumps([facts | changes]), owners=1)


def test_a_run_does_not_begin_with_other_records_than_its_owner_described(
    few_records, make_terms, tmp_path
):
    """Its step and every owner's share were decided for those."""
    line, n = OwnerLine(MemoryOwner("north", few_records, seed=1), make_terms()), len(few_records)

    def plan(described):
        return SimpleNamespace(
            decision=SimpleNamespace(num_records=(described,)),
            responses=(line.promised,),
            settings=SimpleNamespace(network=SimpleNamespace(patience=0.0)),
        )

    begun = []
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        said = f"owner north enrolled with {n} records, but described itself with {n + 1}"
        with pytest.raises(InputError, match=said):
            enrollments_of(
                journal, [line], plan=plan(n + 1), on_enrolled=lambda: begun.append("other")
            )
        assert journal.noted(ENROLLMENTS) is None
        [agreed] = enrollments_of(
            journal, [line], plan=plan(n), on_enrolled=lambda: begun.append("its own")
        )
    assert (agreed.num_records, begun) == (n, ["its own"])


@pytest.mark.parametrize(("unanswered", "spent"), [(None, 2), (2, 2), (3, 2), (5, 4)])
def test_numbers_before_a_question_that_was_left_are_spent_whoever_has_their_answers(
    few_records, make_terms, feature_map, tmp_path, unanswered, spent
):
    """A report would say less than the owner has charged, if that one stayed away."""
    terms, theta = make_terms(), np.zeros(feature_map.num_features)
    plan = SimpleNamespace(
        terms=lambda feature_map, *, study_id: [terms],
        num_features=theta.size,
        decision=SimpleNamespace(num_records=(len(few_records),)),
        settings=SimpleNamespace(network=SimpleNamespace(retries=3)),
    )
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        for k in range(2):
            told = {0: (k + 1, theta)}
            journal.append(TickEntry(position=k, time=1.0, wall_seconds=1.0, responses=told))
        if unanswered is not None:
            journal.keep_unanswered(0, sequence=unanswered, theta=theta)
        journal.settle()
        owner = MemoryOwner("north", few_records, seed=1)
        [line] = lines_to(plan, feature_map, [owner], journal=journal, study_id=terms.study_id)
    assert line.answered == spent
    # What has its answer is no question any more.
    left = line.unanswered and line.unanswered.sequence
    assert left == (unanswered if unanswered and unanswered > 2 else None)
