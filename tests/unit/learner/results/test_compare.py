"""Of several runs the best is the one whose measure is better, whichever way that is."""

import pytest

from learner.results.compare import verdict
from learner.results.summary import Interval, QualitySummary


@pytest.mark.parametrize(
    ("measure", "best", "words"),
    [("rmse", "a", "RMSE"), ("log_loss", "a", "log loss"), ("accuracy", "b", "accuracy")],
)
def test_the_best_run_has_the_least_error_or_the_largest_share_right(summary, measure, best, words):
    def run(value):
        quality = QualitySummary(
            measure=measure,
            target="ill",
            on="public",
            records=90,
            common=Interval(value=value),
            guess=0.6,
            intervals="none",
        )
        return summary().model_copy(update={"quality": quality})

    told = verdict({"a": run(0.7), "b": run(0.8), "c": run(0.75)})
    reached = {"a": "0.7", "b": "0.8"}[best]
    assert told == f"Best: {best}, with {words} {reached} on the same 90 records."
