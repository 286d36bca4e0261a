"""What the columns of public files say, whoever stored them."""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from common.columns import (
    category_key,
    category_keys,
    has_percent_sign,
    parse_month,
    parse_months,
    parse_number,
    parse_numbers,
)


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("10.65%", 10.65),
        (" 36 months", 36.0),
        ("120 +", 120.0),
        ("1,458", 1458.0),
        ("10+ years", 10.0),
        ("1 year", 1.0),
        ("< 1 year", 0.5),
        ("$1,234.5", 1234.5),
        ("-$1,234.5", -1234.5),
        ("$-3", -3.0),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("True", 1.0),
        (False, 0.0),
        (Decimal("37041.45"), 37041.45),
        ("-inf", -math.inf),
        (10**400, math.inf),
        (-(10**400), -math.inf),
        ("9" * 400, math.inf),
    ],
)
def test_public_spellings_of_numbers_are_read(cell, number):
    assert parse_number(cell) == number


@pytest.mark.parametrize(
    "cell",
    [
        *("", " ", "n/a", "070xx", "70 or Older", "30 to 49", "A1", "1,45", "1 458", "--3", "3-4"),
        *("1,204,", "1,204,.76", "1,204,E2", "1,204,5"),
        *(None, pd.NA, pd.NaT, math.nan, Decimal("sNaN"), dt.date(2011, 12, 1), [1], 1j, b"1x"),
    ],
)
def test_what_is_no_number_is_not_taken_for_one(cell):
    assert math.isnan(parse_number(cell))


def test_a_percent_sign_is_a_hundredth_beside_shares_only():
    assert parse_number("10.65%", shares=True) == pytest.approx(0.1065)
    assert parse_number("10.65", shares=True) == 10.65
    assert parse_number("10.65%") == 10.65


@pytest.mark.parametrize(
    "cell",
    [
        "Dec-2011",
        "2011-12-01",
        "2011-12",
        "2011-12-01T00:00:00",
        "12/01/2011",
        "01-Dec-2011",
        "December 2011",
        dt.date(2011, 12, 1),
        dt.datetime(2011, 12, 1),
        pd.Timestamp("2011-12-01"),
        np.datetime64("2011-12-01"),
    ],
)
def test_one_date_in_any_form_is_one_number(cell):
    assert parse_month(cell) == 143.0


@pytest.mark.parametrize("cell", ["Foo-2011", "2011-13-01", "2011", "", None, pd.NaT, 2011, "36"])
def test_what_is_no_date_is_not_taken_for_one(cell):
    assert math.isnan(parse_month(cell))


THIRTY_SIX = [
    pd.Series(["36", None]),
    pd.Series([36, None]),
    pd.Series([36, None], dtype="Int64"),
    pd.Series([36.0, None]),
    pd.Series(["36.0", ""]),
    pd.Series([" 36 ", "n/a"], dtype=object),
    pd.Series([Decimal(36), None], dtype=object),
    pd.Series(["36", None], dtype="category"),
    pd.Series([36, None], dtype="int64[pyarrow]"),
    pd.Series(["36", None], dtype="string"),
]


@pytest.mark.parametrize("column", THIRTY_SIX, ids=lambda column: str(column.dtype))
def test_a_column_reads_the_same_in_every_dtype(column):
    np.testing.assert_array_equal(parse_numbers(column), [36.0, math.nan])
    positions, keys = category_keys(column)
    assert [None if i < 0 else keys[i] for i in positions] == ["36", None]
    assert np.isnan(parse_months(column)).all()


def test_truth_values_read_as_numbers_and_as_categories():
    column = pd.Series([True, False])
    np.testing.assert_array_equal(parse_numbers(column), [1.0, 0.0])
    assert [category_key(value) for value in (True, "true", 1, "1.0")] == ["1"] * 4


def test_a_column_of_dates_is_no_column_of_numbers():
    column = pd.Series(pd.to_datetime(["2011-12-01", None]))
    assert np.isnan(parse_numbers(column)).all()
    np.testing.assert_array_equal(parse_months(column), [143.0, math.nan])
    assert np.isnan(parse_numbers(pd.Series(pd.to_timedelta(["1 day"])))).all()


@pytest.mark.parametrize("odd", [[1, 2], Decimal("sNaN"), {}, 1j, 10**400])
def test_an_odd_cell_does_not_change_how_the_others_read(odd):
    column = pd.Series([odd, None, "36", True, "NONE"], dtype=object)
    np.testing.assert_array_equal(parse_numbers(column)[1:], [math.nan, 36.0, 1.0, math.nan])
    positions, keys = category_keys(column)
    assert [[*keys, None][i] for i in positions[1:]] == [None, "36", "1", "NONE"]


def test_an_answer_none_is_a_category_and_a_gap_is_not():
    assert category_key("NONE") == "NONE"
    assert [category_key(v) for v in (None, pd.NA, pd.NaT, math.nan, "", "NaN")] == [None] * 6


def test_percent_signs_are_seen_in_texts():
    assert has_percent_sign(pd.Series(["1", "2% "]))
    assert not has_percent_sign(pd.Series(["1", "2"]))
    assert not has_percent_sign(pd.Series([1, 2]))


def odd_numbers(count):
    """Texts of what stands in numbers, most of them none."""
    rng = np.random.default_rng(5)
    parts = ["0", "7", "12", "05", "999999999999999", "123456789012345678", "0" * 45]
    parts += [".", "-", "+", ",", "e3", "%", " ", "$", "<", "\n", "\u0663", "inf", "nan", "1.5"]
    plain = [
        f"{number:.{digits}f}" for digits in range(0, 42, 3) for number in rng.normal(0, 99, 50)
    ]
    return plain + ["".join(rng.choice(parts, rng.integers(1, 5))) for _ in range(count)]


@pytest.mark.parametrize("dtype", ["str", "string[pyarrow]", "string[python]", object])
def test_texts_read_many_at_once_have_the_bits_of_each_by_itself(dtype):
    texts = odd_numbers(4000)
    column = pd.Series(texts, dtype=dtype)
    for shares in (False, True):
        alone = np.array([parse_number(text, shares=shares) for text in texts])
        assert parse_numbers(column, shares=shares).tobytes() == alone.tobytes()
    codes, keys = category_keys(column)
    assert [[*keys, None][i] for i in codes.tolist()] == [category_key(text) for text in texts]
