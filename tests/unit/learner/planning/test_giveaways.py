"""What a study should not learn from is told where its public records show it."""

import warnings

import numpy as np
import pandas as pd
import pytest
from maps import map_of

from common.errors import DoubtWarning
from learner.planning import giveaways
from learner.planning.giveaways import warn_of_giveaways

N = 600
RNG = np.random.default_rng(4)
TABLE = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, N),
        "ward": RNG.choice(["a", "b", "c"], N),
        "died": RNG.choice(["yes", "no"], N, p=[0.1, 0.9]),
    }
)


def told(table, target="died", positive="yes"):
    found = map_of(table, target, positive=positive)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DoubtWarning)
        warn_of_giveaways(table, found)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize("enough", [giveaways.ENOUGH_CELLS, 600])
def test_a_column_that_is_the_target_is_told(monkeypatch, enough):
    monkeypatch.setattr(giveaways, "ENOUGH_CELLS", enough)
    (said,) = told(TABLE.assign(autopsy=np.where(TABLE.died == "yes", "done", "")))
    assert said.startswith("features: autopsy: so nearly the target died that it may be a leak")
    assert "leave it out with features.drop" in said


@pytest.mark.parametrize("tenths", [False, True])
def test_two_dates_that_the_target_lies_between_are_told(tenths):
    """Also where the target has hours, and the dates have not."""
    begin = pd.Timestamp("2023-01-01") + pd.to_timedelta(RNG.integers(0, 365, N), unit="D")
    stay = np.round(RNG.gamma(2.0, 3.0, N), 1)
    end = begin + pd.to_timedelta(np.ceil(stay), unit="D")
    table = TABLE.assign(begin=begin, end=end, stay=stay if tenths else np.ceil(stay))
    (said,) = told(table, "stay", None)
    assert said.startswith("features: begin, end: together they explain ")
    assert "leave one out with features.drop" in said
    assert told(table.drop(columns="begin"), "stay", None) == []


def test_a_good_model_of_two_numbers_is_not_told():
    table = TABLE.assign(height=RNG.normal(170, 10, N), weight=RNG.normal(70, 10, N))
    table["fat"] = table.weight - table.height / 2 + RNG.normal(size=N)
    assert told(table, "fat", None) == []
    table["fat"] = table.weight - table.height / 2
    (said,) = told(table, "fat", None)
    assert "height, weight: together they explain 100%" in said


def test_a_column_that_names_records_is_told():
    (said,) = told(TABLE.assign(case=[f"C{i}" for i in range(N)]))
    assert said.startswith("features: case: has another value in nearly every public record")


@pytest.mark.parametrize("number", [40, N // 3])
def test_a_column_that_names_persons_is_told(number):
    (said,) = told(TABLE.assign(patient_id=[f"P{i % number}" for i in range(N)]))
    assert said.startswith("features: patient_id: seems to name persons")


def test_columns_that_only_help_are_not_told():
    good = np.where(TABLE.died == "yes", 4.0, 0.0) + RNG.normal(size=N)
    assert told(TABLE.assign(lactate=good, cost=RNG.permutation(10**6)[:N])) == []


def test_numbers_in_two_units_are_told():
    unit = np.where(np.arange(N) % 2, 1, 100)
    mixed = TABLE.assign(dose=RNG.uniform(1, 9, N) * unit, share=RNG.uniform(0.1, 0.9, N) * unit)
    dose, share = told(mixed, "share", positive=None)
    assert dose.startswith("features: dose: 300 lie from 1")
    assert share.startswith("features: share: 300 lie from 0.1")
    assert told(mixed.drop(columns="dose"), "died") == [share]
