"""Of several runs the best is the one whose measure is better, whichever way that is."""

import pytest

from learner.results.compare import ONE_DRAW, UNLIKE, notes, verdict
from learner.results.summary import Interval


@pytest.mark.parametrize(
    ("measure", "best", "words"),
    [("rmse", "a", "RMSE"), ("log_loss", "a", "log loss"), ("accuracy", "b", "accuracy")],
)
def test_the_best_run_has_the_least_error_or_the_largest_share_right(
    summary, quality, measure, best, words
):
    def run(value):
        its = {"measure": measure, "target": "ill", "on": "public", "records": 90, "guess": 0.6}
        found = quality(**its, common=Interval(value=value))
        return summary().model_copy(update={"quality": found})

    told = verdict({"a": run(0.7), "b": run(0.8), "c": run(0.75)})
    reached = {"a": "0.7", "b": "0.8"}[best]
    assert told == f"Best: {best}, with {words} {reached} on the same 90 records."


@pytest.mark.parametrize(("guess", "is_same"), [(0.6 * (1 + 1e-12), True), (0.6001, False)])
def test_as_many_records_of_other_values_are_not_the_same(summary, quality, guess, is_same):
    """A table that was corrected between two runs was told as the same records."""
    found = quality(records=90, common=Interval(value=0.5), guess=0.6)
    one = summary().model_copy(update={"quality": found})
    other = one.model_copy(update={"quality": found.model_copy(update={"guess": guess})})
    assert ("on the same 90 records" in verdict({"a": one, "b": other})) == is_same


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, [ONE_DRAW]),
        ({"fitness_optimal": 0.3}, [UNLIKE, ONE_DRAW]),
        ({"loss": "huber", "delta": 0.5}, [UNLIKE, ONE_DRAW]),
        ({"fitness_optimal": None, "relative_fitness": None}, [ONE_DRAW]),
    ],
    ids=["alike", "other records", "another loss", "not evaluated"],
)
def test_relative_fitness_to_different_best_models_is_told_apart(summary, changes, told):
    one = summary().model_copy(update={"fitness_optimal": 0.2, "relative_fitness": 0.1})
    assert notes({"a": one, "b": one.model_copy(update=changes)}) == told
