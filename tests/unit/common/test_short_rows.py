"""Rows with fewer cells than the header has names are told of, since cells may be shifted."""

import gzip
from pathlib import Path

import pytest

from common.short_rows import short_notes
from common.tables import TableSource, open_source, read_table


def told(path, **more):
    source = TableSource(path=path, **more)
    read_table(source, base=Path())
    return short_notes(open_source(source, base=Path()).parts)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_first_short_row_is_told(tmp_path, separator):
    lines = ["a,b,c", "1,2,3", "", "   ", '4,"5\n6,7",8', "9", "10,11", "12,,"]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines).replace(",", separator))
    (note,) = told(path)
    assert note == (
        "t.csv: 2 rows have fewer cells than the header has names; the first, row 3 below it, "
        "has 1 of 3. What is left out at the end is read as empty: put in a cell that was left "
        "out before"
    )


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n3,\n",
        'a,b\n1,"2\n3"\n4,5\n',
        "a\n1\n\n2\n",
        "a,b,\n1,2\n3,4\n",  # the last column has no name
        "a,b\n1,2,\n3,4,\n",
        "a,b\n\n  \n1,2\n",
    ],
)
def test_rows_with_a_cell_below_each_name_are_not_told(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert told(path) == []


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252", "utf-16-le"]
)
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_they_are_found_in_any_encoding(tmp_path, encoding, ending, line_end):
    path = tmp_path / f"t{ending}"
    text = line_end.join(["größe,b", "Süd,1", "Köln", ""]).encode(encoding)
    path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    given = {"encoding": encoding} if encoding == "utf-16-le" else {}
    (note,) = told(path, **given)
    assert "1 row has fewer cells than the header has names; the first, row 2 below it" in note


def test_each_file_of_a_folder_is_looked_at(tmp_path):
    for name, last in {"a": "3,4", "b": "3", "c": "4"}.items():
        (tmp_path / f"{name}.csv").write_text(f"x,y\n1,2\n{last}\n")
    assert [note.partition(":")[0] for note in told(tmp_path)] == ["b.csv", "c.csv"]


@pytest.mark.parametrize(("row", "told_of"), [("1,2", "10,000 rows or more have"), ("1,2,3,", "")])
def test_no_more_rows_of_another_width_are_looked_at_than_a_few(tmp_path, row, told_of):
    """Each takes as long as a hundred others."""
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n" + f"{row}\n" * 10_002 + "1\n" * 3)
    notes = told(path)
    assert len(notes) == bool(told_of)
    assert told_of in "".join(notes)


@pytest.mark.parametrize("last", ["b" * 5_000_000, "b\xff"])
def test_a_file_that_cannot_be_looked_at_to_its_end_is_read_as_ever(tmp_path, last):
    path = tmp_path / "t.csv"
    path.write_bytes(f"x,y\n1\n{last}\n".encode("latin-1"))
    assert len(told(path, encoding="ascii")) <= 1
