"""Columns, and labels of two categories, that look swapped are told to who holds the records."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from maps import map_of

from common.column_faults import faults_of
from common.column_fit import _with_swaps, look_at_columns


def patients(seed, count=500):
    """Ages and weights overlap: either passes for the other within the public bounds."""
    rng = np.random.default_rng(seed)
    age, weight = rng.normal(56.0, 20.0, count), rng.normal(78.0, 12.0, count)
    smokes = rng.choice(["yes", "no"], count, p=[0.25, 0.75])
    cost = age + weight + rng.normal(size=count)
    income = rng.lognormal(10.0, 0.8, count)
    return pd.DataFrame(
        {"age": age, "weight": weight, "smokes": smokes, "income": income, "cost": cost}
    )


@pytest.fixture(scope="module")
def feature_map():
    return map_of(patients(0, 2000), "cost")


def told(table, feature_map):
    """The first fault of each column: its words, and whether it is a doubt."""
    return {
        one.name: (fault.words, fault.is_doubt)
        for one in look_at_columns(table, feature_map)
        for fault in [*faults_of(one)][:1]
    }


def test_two_columns_that_are_swapped_within_the_bounds_are_doubted(feature_map):
    """They joined without a word."""
    table = patients(1).rename(columns={"age": "weight", "weight": "age"})
    found = told(table, feature_map)
    words, is_doubt = found["age"]
    assert is_doubt
    assert "its values are like the public ones of 'weight'" in words
    assert "look whether the two are swapped" in words
    assert {*found} <= {"age", "weight"}


def test_swapped_columns_beyond_the_bounds_are_called_so_and_no_unit_is_asked_for(feature_map):
    table = patients(1).rename(columns={"age": "income", "income": "age"})
    words, is_doubt = told(table, feature_map)["age"]
    assert not is_doubt
    assert "are cut; its values are like the public ones of 'income'" in words
    assert "unit" not in words


def test_labels_that_are_swapped_are_doubted(feature_map):
    table = patients(1)
    table["smokes"] = table.smokes.map({"yes": "no", "no": "yes"})
    ((words, is_doubt),) = told(table, feature_map).values()
    assert is_doubt
    assert "as the public ones are with their labels swapped" in words


def test_truth_values_that_are_swapped_are_doubted():
    """They are numbers, and drift less than what is doubted: they joined without a word."""
    public, table = patients(0, 2000), patients(1)
    public["smokes"] = public.smokes == "yes"
    fitted = map_of(public, "cost")
    assert told(table.assign(smokes=table.smokes == "yes"), fitted) == {}
    ((words, is_doubt),) = told(table.assign(smokes=table.smokes == "no"), fitted).values()
    assert is_doubt
    assert "as the public ones are with their labels swapped" in words


def test_hospitals_that_differ_a_little_are_not_doubted(feature_map):
    rng = np.random.default_rng(5)
    for seed in range(2, 40):
        table = patients(seed, 80)
        table["age"] += rng.uniform(-8, 8)
        table["weight"] += rng.uniform(-6, 6)
        assert told(table, feature_map) == {}


def test_the_largest_numbers_there_are_raise_no_warning(feature_map):
    table = patients(1)
    table["age"], table["weight"] = 1.7e308, -1.7e308
    table.loc[::2, "age"], table.loc[::2, "weight"] = -1.7e308, 1.7e308
    assert "cut" in told(table, feature_map)["age"][0]


def test_thousands_of_columns_are_not_compared_all_at_once(feature_map):
    """Of ten thousand, as an owner may have, all pairs took 2.4 GB."""
    count, rule = 2000, feature_map.columns[0]
    seen = look_at_columns(patients(1), feature_map)[0]
    far = [replace(seen, middle=seen.middle + 9.0 * rule.scale)] * count
    tracemalloc.start()
    try:
        found = _with_swaps(far, [rule] * count)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not any(one.like for one in found)
    assert most < count**2
