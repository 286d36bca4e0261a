"""What owners say of a finished model, put together: numbers, intervals and the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from common.terms import StudyTerms
from common.validation import factors_of
from learner.planning.validation import Questions
from learner.results.summary import Summary
from learner.results.validated import ValidationSummary, summarise_validation
from learner.results.validation_words import validation_lines
from learner.training.validation import Answer, Validated

ASKED = Questions(loss_bound=4.0, difference_bound=0.5, reference=(0.0,) * 4, difference_spread=0.1)


@pytest.fixture
def summarised(make_terms: Callable[..., StudyTerms]) -> Callable[..., ValidationSummary]:
    """One owner of 10,000 records says a mean loss of 1, and this difference, next to exactly."""

    def found(difference: float, **asked: Any) -> ValidationSummary:
        terms = make_terms(
            release="validation",
            responses=1,
            loss_bound=ASKED.loss_bound,
            difference_bound=ASKED.difference_bound,
            reference=ASKED.reference,
        )
        factors = factors_of(terms)
        response = np.array([factors.loss, factors.difference * difference])
        validated = Validated(
            questions=replace(ASKED, **asked),
            terms=(terms,),
            answers=(Answer(shown=False, response=response, noise_scale=1e-9),),
        )
        told = summarise_validation(validated, names=["a"], num_records=[10_000])
        assert told is not None
        return told

    return found


def test_the_interval_of_the_difference_holds_what_its_bound_leaves_out(
    summarised: Callable[..., ValidationSummary],
) -> None:
    without, found = summarised(0.02).difference, summarised(0.02, cut_below=0.03, cut_above=0.01)
    assert without is not None
    assert found.difference is not None
    assert found.difference.value == pytest.approx(0.02)
    assert found.difference.low == pytest.approx(without.low - 0.03)
    assert found.difference.high == pytest.approx(without.high + 0.01)


@pytest.mark.parametrize(
    ("difference", "cut_below", "said"),
    [
        (0.02, 0.0, "it is worse than the public records' model: at least 1.8% more loss"),
        (0.02, 0.03, "it cannot be told from the public records' model, which is free"),
        (-0.02, 0.03, "it is better than the public records' model: at least 1.8% less loss"),
    ],
)
def test_the_verdict_is_what_the_whole_interval_says(
    summarised: Callable[..., ValidationSummary],
    summary: Callable[..., Summary],
    difference: float,
    cut_below: float,
    said: str,
) -> None:
    found = summarised(difference, cut_below=cut_below)
    lines = validation_lines(summary().model_copy(update={"validation": found}))
    assert f"By their answers {said}." in lines[1]
    assert "a record's difference counts as at most 0.5, for which the interval allows" in lines[1]
