"""Nobody spends anything on a model that is forecast to be worse than a free one, unwarned."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest

from common.errors import DoubtWarning
from common.losses import Hinge, Huber, Logistic, Regulariser, Squared
from common.terms import Records
from learner.planning.decision import Decision, Expected
from learner.planning.guard import GuardError, check_guard, unit_sentence
from learner.planning.sections import AlgorithmSettings, LearnerSettings, OwnerEntry
from learner.planning.settings import StudySettings
from learner.simulated.cross_validation import CrossValidation
from learner.simulated.problem import Problem

GUARDED = StudySettings.model_construct(
    profile="recommended", guard=None, algorithm=AlgorithmSettings.model_construct()
)


def decided(*, own, alone=(), **ways):
    """A decision with these forecasts, beside a public model at 0.5."""
    return Decision(
        num_records=(9,),
        horizon=1,
        clip=None,
        constant=0.0,
        forecast=own,
        alone=alone,
        ways={way: Expected(relative_fitness=psi, low=psi, high=psi) for way, psi in ways.items()},
        public=0.5,
    )


@pytest.mark.parametrize(
    ("decision", "free"),
    [
        (decided(own=0.6, ticks=0.6, newton=0.5), "the model of the public records: 0.5 against"),
        (decided(own=0.2, alone=(0.1, 0.1, 0.3), ticks=0.2), "most owners' own models: 2 of 3"),
    ],
)
def test_where_no_way_beats_what_is_free_nobody_is_asked(decision, free):
    with pytest.raises(GuardError, match=f"^no way of learning is forecast to beat {free}"):
        check_guard(GUARDED, replace(decision, way="ticks"))
    # A study that names its algorithm has not seen all.
    compared = re.escape(", ".join(decision.ways))
    told = rf'^no way of those compared \({compared}; .*"auto" compares all\) is .* beat {free}'
    with pytest.raises(GuardError, match=told):
        check_guard(GUARDED, decision)


def test_who_begins_at_zero_is_told_that_ticks_from_the_public_model_were_not_compared():
    decision = decided(own=0.6, **{"ticks from zero": 0.6, "newton": 0.5})
    told = r'\(ticks from zero, newton; .* compares all, .* algorithm.start = "public" too\) is'
    with pytest.raises(GuardError, match=told):
        check_guard(GUARDED, decision)
    with pytest.raises(GuardError) as refused:
        check_guard(GUARDED, decided(own=0.6, ticks=0.6))
    assert "algorithm.start" not in str(refused.value)


@pytest.mark.parametrize(
    ("decision", "free"),
    [
        (decided(own=0.6, ticks=0.6, newton=0.1), "the model of the public records: 0.6 against"),
        (
            decided(own=0.4, alone=(0.2, 0.2, 0.6), ticks=0.4, newton=0.1),
            "most owners' own models: 2 of 3 are forecast at a relative fitness of 0.4",
        ),
    ],
)
def test_who_names_a_way_worse_than_what_is_free_is_warned_and_told_a_better_one(decision, free):
    with pytest.warns(DoubtWarning, match=f"{free}.*; newton is forecast at 0.1: with algo"):
        check_guard(GUARDED, decision)


@pytest.mark.parametrize(
    ("way", "own", "told"),
    [
        ("newton", {"newton": 0.51, "ticks": 0.48}, "ticks is forecast at 0.48, which is level wi"),
        ("ticks from zero", {"ticks from zero": 0.9, "ticks": 0.3}, "0.3, but begins at a public"),
    ],
)
def test_who_left_the_way_open_is_not_told_to_leave_it_open(way, own, told):
    decision = replace(decided(own=own[way], **own), way=way)
    with pytest.warns(DoubtWarning, match=told) as caught:
        check_guard(GUARDED, decision)
    assert "algorithm.name" not in str(caught[0].message)


def test_where_an_owner_is_the_learner_its_own_model_is_what_counts():
    roles = {"learner": LearnerSettings(own="b", shows_model=True)}
    settings = GUARDED.model_copy(update=roles | {"owners": [OwnerEntry(name=n) for n in "abc"]})
    # The others do not get the model.
    check_guard(settings, decided(own=0.2, alone=(0.1, 0.3, 0.1), ticks=0.2))
    with pytest.raises(GuardError, match=r"beat the own model of b, which .*: 0.2 against 0.1 in"):
        check_guard(settings, decided(own=0.2, alone=(0.3, 0.1, 0.3), ticks=0.2))


@pytest.mark.parametrize("initiative", ["learner", "owner"])
def test_owners_that_open_no_port_are_told_what_the_better_way_asks(initiative):
    algorithm = AlgorithmSettings.model_construct(initiative=initiative)
    settings = GUARDED.model_copy(update={"algorithm": algorithm})
    with pytest.warns(DoubtWarning, match='"auto" alone') as told:
        check_guard(settings, decided(own=0.6, ticks=0.6, newton=0.1))
    ports = "the learner then calls the owners, whose ports must be open"
    assert (ports in str(told[0].message)) == (initiative == "owner")


def test_a_study_that_beats_what_is_free_is_not_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_guard(GUARDED, decided(own=0.3, alone=(0.4, 0.1, 0.6), ticks=0.3, newton=0.1))


def test_guard_false_goes_on_without_a_word():
    settings = StudySettings.model_construct(profile="recommended", guard=False, algorithm=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_guard(settings, decided(own=0.9, ticks=0.9))


def held_out(loss, num_records, *, regularisation=1e-5):
    """Twelve features, the first of which tells the class."""
    x = np.random.default_rng(1).normal(size=(num_records, 12))
    records = Records(features=x, targets=np.where(x[:, 0] > 0, 1.0, -1.0))
    problem = Problem(loss=loss, regulariser=Regulariser(coefficient=regularisation), theta_max=9.0)
    return CrossValidation(problem=problem, records=records, theta=problem.optimum(records))


@pytest.mark.parametrize("loss", [Logistic(), Hinge()])
def test_where_the_unit_of_relative_fitness_is_not_known_it_is_said(loss):
    known = held_out(loss, 40)
    inside, outside = known.fitness
    said = unit_sentence(known)
    assert said is not None
    assert f"loses {outside / inside:,.0f} times as much on public records held out" in said
    wrong = sum(
        np.count_nonzero(left.features @ m * left.targets <= 0) for m, _, left in known.folds
    )
    assert f"({wrong / 40:.0%} told wrongly)" in said
    assert 0 < wrong < 20


@pytest.mark.parametrize("regularisation", [0.0, 1e-300])
def test_a_model_that_loses_nothing_on_its_own_records_is_said_to_lose_more_in_short(
    regularisation,
):
    known = held_out(Hinge(), 40, regularisation=regularisation)
    assert known.fitness[0] < 1e-290
    said = unit_sentence(known)
    assert said is not None
    assert re.search(r"loses \S{1,9} times as much on public records held out", said), said


def test_a_unit_that_is_known_and_one_that_nobody_asks_for_are_not_doubted():
    assert unit_sentence(held_out(Logistic(), 4000)) is None
    # What squared loss comes to is forecast otherwise.
    squared = held_out(Squared(), 15)
    assert squared.fitness[1] > 3 * squared.fitness[0]
    assert unit_sentence(squared) is None


def test_only_classes_are_told_wrongly():
    said = unit_sentence(held_out(Huber(delta=1.0), 15))
    assert said is not None
    assert "wrongly" not in said
