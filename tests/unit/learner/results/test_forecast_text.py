"""A forecast's numbers are told as those of a run are."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from learner.forecasting.questions import Answer
from learner.forecasting.verdict import OwnerVerdict, Smallest
from learner.results.forecast_page import _curve
from learner.results.forecast_text import owner_row, sentences
from learner.results.page import texts

OWNER = OwnerVerdict(
    name="bank",
    records=5000,
    epsilon="1",
    relative_fitness_alone=0.1,
    gains=True,
    one_more_epsilon_is_worth=0.01,
    smallest_epsilon_factor=None,
)


@pytest.mark.parametrize(("kept", "shown"), [("243/10", "24.3"), ("1/2", "0.5"), ("inf", "own")])
def test_an_epsilon_is_told_as_it_was_typed(kept, shown):
    """What is kept exactly, as a fraction, nobody has typed."""
    owner = replace(OWNER, epsilon=kept)
    verdict = SimpleNamespace(relative_fitness=0.05, relative_fitness_public=0.1)
    assert texts(owner_row(owner, verdict, better=""))[2] == shown


def test_a_column_is_sorted_by_what_it_shows():
    """One more epsilon lowers relative fitness by 0.01: that is -0.01, below another's 0."""
    verdict = SimpleNamespace(relative_fitness=0.05, relative_fitness_public=0.1)
    shown = owner_row(OWNER, verdict, better="")[-1]
    assert (shown.text, shown.value) == ("-0.01", -0.01)


def test_the_best_of_what_was_tried_is_that_of_the_least_relative_fitness():
    def tried(fitness, clip=None):
        return SimpleNamespace(relative_fitness=fitness, clip=clip)

    verdict = SimpleNamespace(
        owners=(OWNER,),
        warnings=(),
        ways_in_words=None,
        quality=None,
        smallest=Smallest(epsilon=None, records=None, owners=None),
        failures={},
        curves={
            "epsilon": {},
            "horizon": {"10": tried(0.3), "30": tried(0.1), "100": tried(0.2)},
            "clip": {"domain": tried(0.4), "auto": tried(0.2, clip=1.5)},
            "split": {"horizon": tried(0.3), "schedule": tried(0.25)},
        },
    )
    best = "best found: T = 30 (0.1), clip = 1.5 (0.2), split = schedule (0.25)"
    assert best in sentences(verdict)


def test_the_own_model_of_an_only_owner_is_drawn_at_no_number():
    """It is the best one, 0, which a logarithmic axis does not reach."""

    def answer(alone):
        return Answer(
            relative_fitness=0.02,
            by_world=[0.02],
            low=0.01,
            high=0.03,
            alone=alone,
            public=0.05,
            horizon=1,
            clip=None,
            constant=1.0,
            split="schedule",
            algorithm="moments",
        )

    page = _curve("owners", {"1": answer([0.0]), "2": answer([0.04, 0.04])})
    assert page.count("<title>alone, middle owner, ") == 1
    assert page.count("<title>together, ") == 2
    assert ">0.001<" not in page
