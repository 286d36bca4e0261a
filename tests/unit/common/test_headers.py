"""Headers that are no headers are refused, and those that files have pass."""

import pandas as pd
import pytest

from common.errors import InputError
from common.headers import check_header

ROWS = [["36", "Bronx", "Dec-2011"], ["41", "Bronx", "Jan-2010"], ["29", "Kings", "Jan-2010"]]

HEADERS = [
    ["age", "county", "issued"],
    ["", "Hospital County", "Zip Code - 3 digits"],
    ["rownames", "s", "d"],
    ["Time", "V1", "V28"],
    ["num_tl_120dpd_2m", "inq_last_6mths", "percent_bc_gt_75"],
    ["Patient.Disposition", "EmergeNocYes DepartmeNot INodicator", "Age Bins"],
    ["0", "1", "2"],
    ["1", "2", "3"],
    ["2011 income", "May be", "Q1 2011"],
    # One record that says what its column is called decides nothing.
    ["age", "Kings", "issued"],
]


@pytest.mark.parametrize("names", HEADERS, ids="|".join)
def test_column_names_as_files_have_them_pass(names):
    check_header(names, pd.DataFrame(ROWS, columns=names), where="t.csv")


RECORDS = [
    (["36", "Bronx", "married"], "the name of column 1 is a number"),
    (["age", "1,234.50", "x"], "column 2 is a number"),
    (["0", "1", "x"], "column 1 is a number"),
    (["0", "7", "9"], "column 1 is a number"),
    (["10.5%", "a", "b"], "column 1 is a number"),
    (["age", "county", "Dec-2011"], "column 3 is a date"),
    (["age", "2011-12-01", "x"], "column 2 is a date"),
    (["x", "county", "x"], "columns 1, 3 have the same name"),
    (["", "county", ""], "columns 1, 3 have no name"),
]


@pytest.mark.parametrize(("names", "why"), RECORDS, ids=lambda x: "|".join(x)[:40])
def test_a_header_that_looks_like_a_record_is_refused(names, why):
    with pytest.raises(InputError, match=r"look like a record.*add a line") as refused:
        check_header(names, pd.DataFrame(ROWS), where="t.csv")
    assert why in str(refused.value)
    # The sentence may be logged: it does not tell the record.
    assert not any(name in str(refused.value) for name in names if len(name) > 2)


def test_columns_without_names_at_the_end_are_told_as_a_spreadsheets():
    names = ["age", "county", "cost", "", ""]
    table = pd.DataFrame([[36, "Kings", 7.5, None, None]] * 20)
    with pytest.raises(InputError) as refused:
        check_header(names, table, where="t.csv")
    assert str(refused.value) == (
        "t.csv: columns 4, 5, the last ones, have no name, as empty columns of a spreadsheet have "
        "none; remove them, or name them"
    )
    # A title above the table is no header.
    with pytest.raises(InputError, match="look like a record"):
        check_header(["Report 2020", "", "", "", ""], table, where="t.csv")


@pytest.mark.parametrize(("name", "is_record"), [("NA", True), ("Na", False), ("Nat", False)])
def test_a_missing_value_is_a_record_where_its_column_has_it_again(name, is_record):
    rows = pd.DataFrame([["36", "NA", "a"], ["41", "NA", "b"], ["29", "3.5", "c"]])
    names = ["RI", name, "type"]
    if is_record:
        with pytest.raises(InputError, match="the name of column 2 is a missing value"):
            check_header(names, rows, where="t.csv")
    else:
        check_header(names, rows, where="t.csv")


def test_names_that_the_rows_below_repeat_are_a_record():
    rows = pd.DataFrame([["F", "Bronx", "a"], ["M", "Kings", "b"], ["F", "Bronx", "c"]])
    with pytest.raises(InputError, match="2 of 3 names are values of the rows below"):
        check_header(["F", "Bronx", "z"], rows, where="t.csv")
    check_header(["F", "county", "z"], rows, where="t.csv")
    # Whether an owner is served is not for one record to decide, even if it repeats the header.
    names = ["sex", "county", "kind"]
    rows.loc[len(rows)] = names
    check_header(names, rows, where="t.csv")


def test_a_name_that_no_learner_takes_is_refused_at_the_table():
    """It was found when owners were asked, after all was planned."""
    longest, longer = "x" * 1_000, "y" * 1_001
    table = pd.DataFrame({"age": [1.5, 2.5], longest: [3.5, 4.5]})
    check_header(list(table), table, where="t.csv")
    table[longer] = table["age"]
    with pytest.raises(InputError, match="the name of column 3 has 1,001 characters, at most 1,00"):
        check_header(list(table), table, where="t.csv")
