"""An answer about a model that a journal holds is believed only as it was written."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from learner.planning.validation import ValidationBounds
from learner.training import validation
from learner.training.journal_values import UNREADABLE
from learner.training.line import OwnerLine
from learner.training.memory_owner import MemoryOwner


@pytest.fixture
def noted(validation_terms, feature_map):
    p = feature_map.num_features
    terms = validation_terms
    length = validation.release_of(terms).dimension(terms, p)

    def read(**changes):
        facts = {"response": [0.5] * length, "noise_scale": 0.25, "epsilon": "1/2"} | changes
        text = json.dumps(facts)
        return validation._noted(text, shown=True, terms=terms, num_features=p, num_records=9)

    return read


@pytest.mark.parametrize(
    "changes",
    [
        {"loss_bound": 0.0},
        {"loss_bound": 1.7e308},
        {"difference_bound": 0.0},
        {"edges": [0.0, -1.7e308]},
        {"loss_spread": -1.7e308},
        {"cut_above": -1.7e308},
        {"cut_off": "0.5"},
    ],
)
def test_bounds_that_nobody_asked_with_are_not_believed(changes):
    bounds = ValidationBounds(
        loss_bound=4.0, difference_bound=0.5, reference=(0.0,), loss_spread=1.0, cut_off=0.0
    )
    facts = json.loads(bounds.to_json())
    assert ValidationBounds.from_json(json.dumps(facts)) == bounds
    with pytest.raises(UNREADABLE):
        ValidationBounds.from_json(json.dumps(facts | changes))


def test_an_answer_is_read_as_it_was_written(noted):
    assert set(noted().response) == {0.5}
    assert (noted().noise_scale, noted().epsilon) == (0.25, Fraction(1, 2))


@pytest.mark.parametrize(
    "changes",
    [
        {"response": [0.5]},
        {"response": "much"},
        {"noise_scale": float("nan")},
        {"noise_scale": float("inf")},
        {"noise_scale": -0.25},
        {"noise_scale": "0.25"},
        {"noise_scale": 1.7e308},
        {"epsilon": "1e999999999"},
        {"epsilon": "2"},
    ],
)
def test_an_answer_that_nobody_wrote_is_not_believed(noted, changes):
    with pytest.raises(UNREADABLE):
        noted(**changes)


# In the last of them two answers are beyond all numbers together.
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 1.7e308])
def test_no_response_is_without_a_number(noted, number):
    length = noted().response.size
    with pytest.raises(UNREADABLE):
        noted(response=[number] * length)


def test_an_owner_with_other_records_than_it_trained_with_is_not_asked(
    few_records, validation_terms, feature_map
):
    """Its answer would count as that of the records that made the model."""
    owner, theta = MemoryOwner("north", few_records, seed=1), np.zeros(feature_map.num_features)
    trained = owner.enroll(validation_terms)
    for more in (1, 0):
        answer = validation._ask(
            OwnerLine(owner, validation_terms),
            theta,
            promised=replace(trained, num_records=trained.num_records + more),
            patience=0.0,
            shown=True,
        )
        assert (answer.response is None) == bool(more)
        assert owner.enroll(validation_terms).answered == 1 - more
        assert answer.epsilon == (0 if more else validation_terms.epsilon)
