"""A table in the study's words: renamed, in other units, spelt otherwise, cell by cell."""

import subprocess

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from common.columns import category_keys
from common.errors import InputError
from owner.policy import PrivateSource
from owner.translation import parse_pairs, parse_spellings, translated, with_hints

TABLE = pd.DataFrame({"sex": ["m", " f ", None, "x"], "age": ["365", "730 ", "n/a", "1e400"]})


def put(**words):
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


def test_a_unit_may_be_a_fraction_as_it_may_where_it_is_typed():
    np.testing.assert_array_equal(put(units={"age": "1/365"})["age"][:2], [1, 2])
    for given, told in (("1/0", "greater than 0"), ("-1", "greater than 0"), (True, "a number")):
        with pytest.raises(ValidationError, match=told):
            PrivateSource(units={"age": given})


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


def test_a_name_with_a_line_break_is_suggested_as_it_can_be_typed():
    """Shown on one line it looks like one that is there, and is not."""
    table = TABLE.rename(columns={"age": "age\n(years)"})
    with pytest.raises(InputError) as refused:
        translated(table, PrivateSource(rename={"Age": "age (years)"}), where="t.csv")
    assert r"no column 'age (years)' in the table; did you mean 'age\n(years)'?" in str(
        refused.value
    )
    hint = with_hints(["Age years"], list(table))[0].partition("--rename ")[2].removesuffix(")")
    typed = subprocess.check_output(["bash", "-c", f"printf %s {hint}"], text=True)
    assert parse_pairs("--rename", [typed]) == {"Age years": "age\n(years)"}


def test_a_column_is_suggested_for_one_missing_column_only():
    """One who types every suggestion would train on sugar as the length of stay."""
    own = ["Liegedauer", "Glukose", "Alter"]
    sugar = "no column 'glucose' (is it 'Glukose'? then --rename glucose=Glukose)"
    assert with_hints(["glucose", "los"], own) == [sugar, "no column 'los'"]
    assert with_hints(["los", "glucose"], own) == ["no column 'los'", sugar]


@pytest.mark.parametrize("text", ["", "a", "a=", "=b"])
def test_options_that_are_no_pairs_are_refused(text):
    with pytest.raises(InputError, match="expected COLUMN"):
        parse_pairs("--rename", [text])
    with pytest.raises(InputError, match="expected COLUMN"):
        parse_spellings([f"sex:{text}"])
