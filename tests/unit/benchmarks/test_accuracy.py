"""Studies drawn from families, whatever the number and size of their owners."""

import numpy as np
import pandas as pd
import pytest
from maps import map_of

from learner.reproduction.public_data import Family


@pytest.fixture(scope="module")
def accuracy(benchmark):
    return benchmark("accuracy")


def family_of(*sizes):
    rng = np.random.default_rng(1)
    table = pd.DataFrame(rng.normal(size=(max(sizes), 2)), columns=["x", "y"])
    feature_map = map_of(table)
    records = feature_map.apply(table, where="public")
    shards = {
        f"owner-{i}": feature_map.apply(table.iloc[:size], where="owner")
        for i, size in enumerate(sizes)
    }
    return Family(
        name="few",
        feature_map=feature_map,
        public=records,
        public_labels=None,
        shards=shards,
        labels=dict.fromkeys(shards),
    )


@pytest.mark.parametrize("sizes", [(303, 294, 200, 123), (50, 4000, 40, 700, 600)])
def test_few_and_small_owners_make_studies_that_can_be_measured(accuracy, sizes):
    family = family_of(*sizes)
    cases = list(accuracy.draw_cases([family], per_family=40, rng=np.random.default_rng(2)))
    assert {len(case.owners) for case in cases} == set(range(2, len(sizes) + 1))
    for case in cases:
        assert len(set(case.owners)) == len(case.owners)
        assert len(case.num_records) == len(case.epsilon) == len(case.owners)
        records = accuracy.records_of(
            family, case
        )  # raises where a study asks for more than there is
        assert tuple(map(len, records)) == case.num_records
        assert all(
            size >= min(300, len(family.shards[name]))
            for name, size in zip(case.owners, case.num_records, strict=True)
            if len(set(case.num_records)) > 1
        )


def test_owners_with_records_enough_have_the_smallest_number_at_least(accuracy):
    family = family_of(*range(2000, 2012))
    for case in accuracy.draw_cases([family], per_family=20, rng=np.random.default_rng(3)):
        assert min(case.num_records) >= 300
        assert len(case.owners) <= 11


def runs_of(mean, spread):
    return mean + spread * np.linspace(-1.0, 1.0, 32)


@pytest.mark.parametrize(
    ("picked", "spread", "is_best", "is_level"),
    [
        (1.05, 0.0, True, True),  # within a tenth, however sure
        (1.3, 0.01, False, False),  # surely worse
        (1.3, 2.0, False, True),  # runs do not tell
    ],
)
def test_a_pick_is_judged_strictly_and_by_what_runs_can_tell(
    accuracy, picked, spread, is_best, is_level
):
    reached = {"newton": runs_of(picked, spread), "ticks": runs_of(1.0, spread)}
    assert accuracy.judge_pick("newton", reached) == (is_best, is_level, pytest.approx(picked))
    assert accuracy.judge_pick("ticks", reached) == (True, True, 1.0)


def test_both_counts_of_picks_are_told(accuracy):
    rows = pd.DataFrame(
        {
            "family": "loans",
            "seed": [1, 2, 3, 4],
            "error": np.log10([1.5, 2.0, 3.0, 2.0]),
            "least_ratio": 2.0,
            "rmse_ratio": [1.0, 1.1, 0.8, 1.2],
            "clear": True,
            "forecast_gains": True,
            "measured_gains": True,
            "picked_best": [True, False, False, None],
            "picked_level": [True, True, False, None],
            "picked_ratio": [1.0, 1.3, 2.0, None],
        }
    )
    told = accuracy.overall(rows)
    assert "median error 0.301" in told
    # |log10(1.5 / 2)|, 0, |log10(3 / 2)|, 0.
    assert "known: 2.00 (loans; 0.062)" in told
    # Of 0, 0.1, 0.2 and 0.2.
    assert "(RMSE) that is forecast is off by 15.0% (loans) in the median" in told
    assert "Auto took the best way in 33% of 3" in told
    assert "do not tell from it in 67%; what it took was at most 2 times worse" in told
