"""A table of frequencies is told from one of records."""

import itertools

import numpy as np
import pandas as pd
import pytest

from common.frequencies import frequency_notes
from common.looking import look_at


def kinds(name="Freq", counts=None):
    """A row for each kind of passenger, numbered as R does it."""
    cells = itertools.product(["1st", "2nd", "3rd"], ["m", "f"], ["no", "yes"], ["child", "adult"])
    table = pd.DataFrame(cells, columns=["class", "sex", "survived", "age"])
    table.insert(0, "Unnamed: 0", range(1, 25))
    counts = np.arange(24) % 7 * 5 if counts is None else counts
    return table.assign(**{name: counts})


def test_kinds_of_hundreds_of_columns_are_more_than_any_number_without_a_warning():
    wide = np.random.default_rng(0).integers(0, 90, size=(100, 200))
    assert not frequency_notes(look_at(pd.DataFrame(wide).add_prefix("c").assign(Freq=2)))


@pytest.mark.parametrize("name", ["Freq", "count", "n", "N", "numCases_count", "Anzahl", "weight"])
def test_a_table_of_frequencies_is_not_taken_for_records_without_a_word(name):
    notes = frequency_notes(look_at(kinds(name)))
    assert [note.partition(":")[0] for note in notes] == [name]
    assert "how many records each row stands for" in notes[0]


@pytest.mark.parametrize(
    "table",
    [
        kinds("fare"),
        kinds("nMales"),
        kinds(counts=np.arange(24) % 2),
        kinds(counts=np.arange(24) - 5),
        pd.concat([kinds(), kinds()], ignore_index=True).drop(columns="Unnamed: 0"),
        kinds().assign(height=np.linspace(1.2, 2.1, 24)),
        pd.DataFrame({"count": [3, 4, 5] * 8}),
    ],
)
def test_a_number_of_records_that_count_themselves_is_no_frequency(table):
    assert frequency_notes(look_at(table)) == []


def test_a_number_that_is_predicted_is_no_frequency():
    assert frequency_notes(look_at(kinds()), target="Freq") == []


def test_weights_of_a_survey_are_told_of_beside_any_records():
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"age": rng.normal(40, 9, 200), "fnlwgt": rng.integers(1e4, 1e6, 200)})
    assert "weight of a survey" in frequency_notes(look_at(table))[0]
    table = table.rename(columns={"fnlwgt": "weight"})
    assert frequency_notes(look_at(table)) == []


@pytest.mark.parametrize("name", ["perweight", "pspwght", "dweight", "pweight", "WTSSALL", "PWGTP"])
def test_weights_of_known_surveys_are_told_of(name):
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"age": rng.normal(40, 9, 200), name: rng.random(200)})
    assert "weight of a survey" in frequency_notes(look_at(table))[0]


def test_weights_that_lie_far_apart_may_be_a_surveys():
    rng = np.random.default_rng(4)
    table = pd.DataFrame({"age": rng.normal(40, 9, 900), "weight": rng.lognormal(3, 2, 900)})
    (note,) = frequency_notes(look_at(table))
    assert note.startswith("weight: if it is the weight of a survey's records, leave it out")
    assert frequency_notes(look_at(table.rename(columns={"weight": "birth weight"}))) == []
    # One person's that was typed wrongly is none.
    weight = [7000.0, *rng.normal(70, 12, 899)]
    assert frequency_notes(look_at(table.assign(weight=weight))) == []
