"""A table in the study's words: renamed, in other units, spelt otherwise, cell by cell."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from common.columns import category_keys
from common.errors import InputError
from owner.policy import PrivateSource
from owner.translation import parse_pairs, parse_spellings, translated

TABLE = pd.DataFrame({"sex": ["m", " f ", None, "x"], "age": ["365", "730 ", "n/a", "1e400"]})


def put(**words: object) -> pd.DataFrame:
    return translated(TABLE, PrivateSource(**words), where="t.csv")


def test_names_units_and_spellings_are_the_studys():
    found = put(
        rename={"Gender": "sex"},
        units={"age": 1 / 365},
        spellings={"Gender": {"m": "Male", "f": "Female"}},
    )
    positions, keys = category_keys(found["Gender"])
    assert [keys[i] if i >= 0 else None for i in positions] == ["Male", "Female", None, "x"]
    np.testing.assert_allclose(found["age"], [1, 2, np.nan, np.inf])
    assert list(found.columns) == ["Gender", "age"]


def test_without_words_the_table_is_the_same():
    assert put() is TABLE


def test_two_names_can_be_exchanged():
    assert list(put(rename={"age": "sex", "sex": "age"}).columns) == ["age", "sex"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"rename": {"a": "b"}}, "data.rename.a: no column 'b'"),
        ({"rename": {"age": "sex"}}, "data.rename.age: the table has a column of that name"),
        ({"units": {"a": 2}}, "data.units.a: no column 'a'"),
        ({"spellings": {"a": {"b": "c"}}}, "data.spellings.a: no column 'a'"),
    ],
)
def test_a_word_for_nothing_is_named(words, told):
    with pytest.raises(InputError, match=told):
        put(**words)


@pytest.mark.parametrize("text", ["", "a", "a=", "=b"])
def test_options_that_are_no_pairs_are_refused(text):
    with pytest.raises(InputError, match="expected COLUMN"):
        parse_pairs("--rename", [text])
    with pytest.raises(InputError, match="expected COLUMN"):
        parse_spellings([f"sex:{text}"])
