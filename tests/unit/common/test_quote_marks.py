"""Rows that a quotation mark swallowed are told of, however many there are."""

import pandas as pd

from common.quote_marks import swallowed_notes

SWALLOWED = "y,1\n2,3\n4,5\n6,7\nz"


def test_a_column_is_told_of_once_whatever_it_holds():
    table = pd.DataFrame({"a": ["x", *[SWALLOWED] * 3000], "b": ["one\ntwo\nthree"] * 3001})
    (note,) = swallowed_notes(table, separator=",", width=2)
    assert note.startswith(
        "a: the cell of row 2 below the header holds 3 lines that look like rows"
    )
    assert ", and cells of 2,999 more rows hold some; a quotation mark" in note


def test_one_cell_is_told_of_alone():
    (note,) = swallowed_notes(pd.DataFrame({"a": [SWALLOWED, "x"]}), separator=",", width=2)
    assert "which are then not records; a quotation mark" in note
