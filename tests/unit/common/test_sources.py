"""Records where they live: files of every spelling, folders of them, and databases."""

import gzip
import os
import re
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import common.batches
import common.databases
from common.columns import parse_month, parse_months, parse_numbers
from common.config import check_settings
from common.date_marks import date_notes
from common.errors import InputError, UnreachableError
from common.own_files import private_folder
from common.tables import (
    TablePlace,
    TableSource,
    count_shared_rows,
    open_source,
    read_header,
    read_table,
    stream_selected,
)
from owner.shard import fingerprint

FRAME = pd.DataFrame(
    {
        "bank": ["a", "b", "a", None, "c"],
        "term": [36, 60, 60, 36, 24],
        "rate": [0.5, np.nan, 0.25, 0.75, 1.0],
        "gaps": pd.array([1, None, 3, 4, 5], dtype=pd.ArrowDtype(pa.int64())).astype(object),
        "day": pd.to_datetime(["2020-01-31", "2020-02-01", "2021-01-01", "2019-12-31", None]),
        "flag": [True, None, False, True, True],
    }
)


def read(folder, path=None, **settings):
    if path is not None:
        settings["path"] = path
    return read_table(check_settings(TableSource, settings, where="s.toml"), base=folder)


@pytest.fixture
def few_rows(monkeypatch):
    """Batches of two rows."""
    for module in ("csv_files", "parquet_files", "databases"):
        monkeypatch.setattr(f"common.{module}.BATCH_ROWS", 2)


# --- CSV as offices write it ------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_separator_is_found_in_the_header(tmp_path, separator):
    FRAME.to_csv(tmp_path / "t.csv", index=False, sep=separator)
    assert read(tmp_path, "t.csv")["term"].tolist() == ["36", "60", "60", "36", "24"]


def test_no_record_decides_what_separates_it(tmp_path):
    (tmp_path / "t.csv").write_text('"a;b;c",b\n1;1;1;1,2\n')
    assert read(tmp_path, "t.csv").to_dict("list") == {"a;b;c": ["1;1;1;1"], "b": ["2"]}


def test_a_separator_is_as_told(tmp_path):
    (tmp_path / "t.csv").write_text("sum, net;age\n5;36\n")
    assert list(read(tmp_path, "t.csv", separator=";").columns) == ["sum, net", "age"]
    with pytest.raises(InputError, match=r"no column 'age'.*is ';' the separator"):
        read(tmp_path, "t.csv", separator="|", where={"age": 36})


def test_decimal_commas_are_read_where_semicolons_separate(tmp_path):
    (tmp_path / "t.csv").write_text("x;name\n1.458,50;Berg, Ida\n12,5 %;1,2,3\n0.5;7\n")
    table = read(tmp_path, "t.csv")
    np.testing.assert_array_equal(parse_numbers(table["x"]), [1458.5, 12.5, 0.5])
    assert table["name"].tolist() == ["Berg, Ida", "1,2,3", "7"]
    (tmp_path / "t.csv").write_text('x,y\n"1,5","1,458"\n')
    assert read(tmp_path, "t.csv", decimal=",").iloc[0].tolist() == ["1.5", "1.458"]
    assert read(tmp_path, "t.csv").iloc[0].tolist() == ["1,5", "1,458"]


def test_dates_with_the_day_first_are_turned_round_where_the_user_says_so(tmp_path):
    said = ["31.12.2020", "1/2/2020", "01-02-2020 07:30", " 3/4/2021 ", "2020-02-03", "Feb-2020"]
    (tmp_path / "t.csv").write_text("\n".join(["day,n", *(f"{day},1" for day in said)]))
    told = read(tmp_path, "t.csv", dates="day-first")["day"]
    want = ["2020-12-31", "2020-02-01", "2020-02-01", "2021-04-03", "2020-02-03", "2020-02-01"]
    np.testing.assert_array_equal(parse_months(told), [parse_month(day) for day in want])
    for dates in (None, "month-first"):
        assert read(tmp_path, "t.csv", dates=dates)["day"].tolist() == said
    kept = read(tmp_path, "t.csv", dates="day-first", where={"day": {"min": "2020-12-31"}})
    assert kept["day"].tolist() == ["2020-12-31", "2021-4-3"]


def test_a_month_first_among_days_first_is_a_gap_not_another_day(tmp_path):
    """Else 12/31 would be read right and 2/1 wrong, and nobody would see it."""
    (tmp_path / "t.csv").write_text("day\n12/31/2020\n2/1/2020\n")
    told = read(tmp_path, "t.csv", dates="day-first")
    np.testing.assert_array_equal(parse_months(told["day"]), [np.nan, parse_month("2020-01-02")])
    (note,) = date_notes(told, ["day"])
    assert "2020-31-12 is not read, so it is a gap" in note


def test_what_is_no_date_with_the_day_first_stays_as_it_is(tmp_path):
    said = ["1.458", "1.2.20", "1/2-2020", "12/2020", "v1.2.2020", "1.2.20201", "-1/2/2020"]
    (tmp_path / "t.csv").write_text("\n".join(["x", *said]))
    assert read(tmp_path, "t.csv", dates="day-first")["x"].tolist() == said
    (tmp_path / "s.csv").write_text("x;day\n1.458,5;1.2.2020\n")
    table = read(tmp_path, "s.csv", dates="day-first", decimal=",")
    assert table.iloc[0].tolist() == ["1458.5", "2020-2-1"]


def test_a_zone_that_is_not_known_is_named_with_its_column(tmp_path):
    """Arrow said that a module must be installed, and not of what column."""
    for zone, other in (("Mars/Olympus", 1), ("Europe/Berlin", 2)):
        times = pa.array([0], pa.timestamp("us", tz=zone))
        pq.write_table(pa.table({"day": times, "n": [other]}), tmp_path / f"{other}.parquet")
    with pytest.raises(InputError, match="times of column 'day' are of the zone 'Mars/Olympus'"):
        read(tmp_path, "1.parquet")
    assert read_table(TableSource(path="1.parquet"), base=tmp_path, columns=["n"])["n"][0] == 1
    assert read(tmp_path, "2.parquet")["day"][0].hour == 1


def test_a_path_of_windows_is_told_as_such(tmp_path):
    for name, is_told in (("..\\stays.csv", True), ("..\table.csv", True), ("x.csv", False)):
        with pytest.raises(InputError, match=r"no such file; ") as refused:
            read(tmp_path, name)
        assert ("; write / between folders and files; give" in str(refused.value)) is is_told


@pytest.mark.parametrize(
    ("name", "value"),
    [("separator", ";"), ("encoding", "cp1252"), ("decimal", ","), ("dates", "day-first")],
)
def test_what_is_said_of_csv_is_refused_elsewhere(tmp_path, name, value):
    FRAME.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match=f"{name} is for CSV files only; remove {name}"):
        read(tmp_path, "t.parquet", **{name: value})
    (tmp_path / "address").write_text("postgresql://a:b@c/d")
    at = {"database": "file:address", "query": "select 1", name: value}
    with pytest.raises(InputError, match=f"database: {name} is for CSV files only; remove {name}"):
        open_source(TableSource.model_validate(at), base=tmp_path)


def test_each_cell_has_its_own_encoding(tmp_path):
    """One record in another encoding changes no other: that would tell about it."""
    lines = ["näme;x".encode(), "Zoë;1".encode(), "Zo\xeb;2".encode("latin-1")]
    (tmp_path / "t.csv").write_bytes(b"\n".join(lines))
    assert read(tmp_path, "t.csv")["näme"].tolist() == ["Zoë", "Zoë"]
    assert read(tmp_path, "t.csv", encoding="utf-8")["näme"].tolist() == ["Zoë", "Zo\ufffd"]
    assert read(tmp_path, "t.csv", encoding="cp1252").columns[0] == "nÃ¤me"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_mark_at_the_beginning_says_which_unicode_it_is(tmp_path, encoding):
    (tmp_path / "t.csv").write_text("näme,x\nÅsa,1\n", encoding=encoding)
    assert read(tmp_path, "t.csv").to_dict("list") == {"näme": ["Åsa"], "x": ["1"]}


def test_rows_wider_than_the_header_are_refused_not_shifted(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2,3\n4,5,6\n")
    with pytest.raises(InputError, match=r"t\.csv: the first row has 3 cells.* 2 names; correct"):
        read(tmp_path, "t.csv")
    # Separators at the ends of the rows are no cells.
    (tmp_path / "t.csv").write_text("a,b\n1,2,\n4,5,\n")
    assert read(tmp_path, "t.csv").to_dict("list") == {"a": ["1", "4"], "b": ["2", "5"]}


@pytest.mark.parametrize("sign", ["\f", "\x1c", "\u2028"])
def test_a_sign_alone_in_the_first_line_is_its_header_as_for_the_parser(tmp_path, sign):
    """A page break, as printed lists have: it had passed for an empty line."""
    path = tmp_path / "a.csv"
    path.write_text(f"{sign}\na,b\n1,2\n", encoding="utf-8")
    with pytest.raises(InputError, match="the first row has 2 cells, but the header has 1 name"):
        read(tmp_path, "a.csv")
    path.write_text(f"{sign}\n{sign}\n", encoding="utf-8")
    assert len(read(tmp_path, "a.csv")) == 1


@pytest.mark.parametrize("title", ["Stays of 2020", "Stays, 2020", '"Stays, 2020"'])
@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_a_title_above_other_separators_than_commas_is_refused(tmp_path, title, separator):
    rows = ["age,y,z", "36,7.5,2", "41,8.5,3"]
    below = [row.replace(",", separator).replace(".", ",") for row in rows]
    (tmp_path / "t.csv").write_text("\n".join([title, *below]))
    with pytest.raises(InputError, match=r"but the header has .*; correct .*, remove") as refused:
        read(tmp_path, "t.csv")
    assert f"t.csv: the first row has 3 cells with {separator!r} between" in str(refused.value)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_name_in_the_first_column_may_have_a_line_break(tmp_path, separator, encoding):
    """As Excel writes it; what stands between the marks says nothing of the separator."""
    rows = ['"Alter, alles\n(""Jahre"", ca.)"|y|z', "36|7|2", '"4\n1"|8|3']
    text = "\r\n".join(rows).replace("|", separator)
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    found = read(tmp_path, "t.csv")
    assert list(found) == ['Alter, alles\n("Jahre", ca.)', "y", "z"]
    assert found["y"].tolist() == ["7", "8"]


def test_a_quotation_mark_that_is_never_closed_ends_with_the_line(tmp_path):
    (tmp_path / "t.csv").write_text('x;size "in;y\n1;2;3\n')
    assert list(read(tmp_path, "t.csv")) == ["x", 'size "in', "y"]
    (tmp_path / "t.csv").write_text('x;y\n"1' + ';""' * 200_000)
    with pytest.raises(InputError, match="line 2 or later is never closed"):
        read(tmp_path, "t.csv")


@pytest.mark.parametrize("text", ["x\na; b\nc\n", 'x\n"a; b"\n"c; d"\n', "x\na; b\n"])
def test_a_mark_in_one_text_is_no_separator(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    assert read(tmp_path, "t.csv")["x"][0] == "a; b"


def write_database(path):
    """An SQLite database with an empty table."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table t (a)")


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda path: FRAME.to_csv(path, compression="zip"), "a ZIP archive, or a workbook"),
        (
            lambda path: FRAME.to_csv(path, compression="gzip"),
            r"gzip; let its name end in \.csv\.gz",
        ),
        (FRAME.to_parquet, r"Parquet; let its name end in \.parquet"),
        (
            lambda path: path.write_bytes(b"\xd0\xcf\x11\xe0\n"),
            "a workbook of Excel; save the sheet",
        ),
        (write_database, "an SQLite database"),
    ],
)
@pytest.mark.parametrize("encoding", [None, "utf-8"])
def test_a_file_of_another_program_is_not_taken_for_csv(tmp_path, write, what, encoding):
    write(tmp_path / "t.csv")
    with pytest.raises(InputError, match=f"is not CSV but .*{what}"):
        read(tmp_path, "t.csv", encoding=encoding)


def test_a_column_may_be_called_as_another_format_begins(tmp_path):
    (tmp_path / "t.csv").write_text("PAR1,PK\n1,2\n")
    assert list(read(tmp_path, "t.csv").columns) == ["PAR1", "PK"]


def test_a_file_that_is_broken_is_told_of_in_one_sentence(tmp_path):
    (tmp_path / "t.parquet").write_text("age\n" + "3\n" * 9)
    with pytest.raises(InputError, match=r"[a-z]; correct that, or give another table$"):
        read(tmp_path, "t.parquet")


@pytest.mark.parametrize("separator", [None, ";"])
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_first_line_without_an_end_is_not_read_to_it(tmp_path, name, separator):
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "wb") as file:
        file.write(b"a" * 2**21)
    source = TableSource(path=tmp_path / name, separator=separator)
    for ask in (read_table, read_header):
        with pytest.raises(InputError, match=r"the first line is longer than 1 MB; give a table"):
            ask(source, base=tmp_path)


def test_the_first_row_may_be_as_long_as_it_likes(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "x" * 2**21 + ",1\n2,3\n")
    assert list(read(tmp_path, "t.csv")["b"]) == ["1", "3"]


def test_cells_that_a_file_hardly_holds_count_in_memory(tmp_path):
    """Else a table of equal cells would be held whole, or read at once, however long it is."""
    equal = pa.table({"a": np.zeros(100_000, dtype=np.int64), "b": ["x"] * 100_000})
    pq.write_table(equal, tmp_path / "t.parquet")
    assert (tmp_path / "t.parquet").stat().st_size < 5_000
    opened = open_source(TableSource(path=tmp_path / "t.parquet"), base=tmp_path)
    assert opened.num_bytes >= 2 * 100_000 * 8


@pytest.mark.parametrize("encoding", ["utf-9", ""])
def test_what_is_told_of_a_file_is_checked(tmp_path, encoding):
    with pytest.raises(InputError, match=r"encoding: got .*expected an encoding such as"):
        read(tmp_path, "t.csv", encoding=encoding)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_unicode_that_nothing_marks_is_told(tmp_path, encoding):
    (tmp_path / "t.csv").write_bytes("größe;y\n1;2\n".encode(encoding))
    with pytest.raises(InputError, match=r"the first line has the character 0.*--encoding utf-16"):
        read(tmp_path, "t.csv")
    assert list(read(tmp_path, "t.csv", encoding=encoding).columns) == ["größe", "y"]


@pytest.mark.parametrize("order", ["le", "be"])
def test_utf_32_is_known_by_its_mark(tmp_path, order):
    """One begins as UTF-16 does, whose encoding was advised in vain for both."""
    (tmp_path / "t.csv").write_bytes("\ufeffgröße;y\n1;2\n".encode(f"utf-32-{order}"))
    assert read(tmp_path, "t.csv").to_dict("list") == {"größe": ["1"], "y": ["2"]}


@pytest.mark.parametrize("separator", ["x", "é", "7", '"', "\n", "\\t", ";;", ""])
def test_a_separator_that_cannot_be_meant_is_refused(tmp_path, separator):
    (tmp_path / "t.csv").write_text("axb\n1x2\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"separator: got .*expected one character that is no"):
        read(tmp_path, "t.csv", separator=separator)


# --- several files ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["stays", "stays/*.csv", "**/*.csv"])
def test_files_of_a_folder_or_a_pattern_are_one_table_by_name(tmp_path, path):
    (tmp_path / "stays").mkdir()
    (tmp_path / "stays" / "2.csv").write_text("b,a\n4,3\n")
    (tmp_path / "stays" / "1.csv").write_text("a,b\n1,2\n5,6\n")
    (tmp_path / "stays" / ".hidden.csv").write_text("a\n1\n")
    (tmp_path / "stays" / "readme.md").write_text("no table")
    assert read(tmp_path, path).to_dict("list") == {"a": ["1", "5", "3"], "b": ["2", "6", "4"]}
    assert read(tmp_path, path, rows="-2:")["a"].tolist() == ["5", "3"]
    assert read(tmp_path, path, rows="::-1")["a"].tolist() == ["3", "5", "1"]


@pytest.mark.parametrize("kind", [pa.timestamp, pa.duration])
def test_no_time_of_one_file_makes_those_of_another_unreadable(tmp_path, kind):
    # Of what nobody has ended some programs say that it ends in the year 9999.
    for name, unit, cells in (("a", "us", [0, 253_402_214_400_000_000]), ("b", "ns", [10**9])):
        table = pa.table({"until": pa.array(cells, kind(unit)), "x": np.arange(len(cells))})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    table = read(tmp_path, path=".")
    assert table["x"].tolist() == [0, 1, 0]
    if kind is pa.timestamp:
        assert [cell.year for cell in table["until"]] == [1970, 9999, 1970]
    assert fingerprint([table])


def test_files_with_other_columns_are_no_table(tmp_path):
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("a,c\n1,2\n")
    with pytest.raises(InputError, match=r"2\.csv: no column 'b', which .*1\.csv has"):
        read(tmp_path, "*.csv")
    with pytest.raises(InputError, match="no CSV or Parquet file there; give"):
        read(tmp_path, "*.parquet")


@pytest.mark.parametrize("beside", [True, False])
def test_tables_in_folders_of_a_folder_are_not_passed_over(tmp_path, beside):
    """Their year would be missing without a word."""
    stays = tmp_path / "stays"
    for folder in ("2020/01", "2021", ".trash"):
        (stays / folder).mkdir(parents=True)
        (stays / folder / "a.csv").write_text("a,b\n1,2\n")
    (stays / "notes").mkdir()
    if beside:
        (stays / "b.csv").write_text("a,b\n3,4\n")
    with pytest.raises(InputError) as refused:
        read(tmp_path, "stays")
    assert str(refused.value) == (
        f"{stays}: tables in folders of it are not read (2020, 2021); give {stays}/**/*.csv (or "
        "**/*.parquet) for all of them, or take these folders out"
    )
    assert read(tmp_path, "stays/**/*.csv")["a"].tolist() == ["1", "1"] + ["3"] * beside


def test_rows_of_one_file_are_shared_by_its_folder(tmp_path):
    for name in "12":
        FRAME.to_parquet(tmp_path / f"{name}.parquet")
    folder, file = TableSource(path=Path()), TableSource(path=Path("2.parquet"), rows="1:")
    assert count_shared_rows(folder, [file], base=tmp_path) == [4]
    assert count_shared_rows(
        file, [folder, TableSource(path=Path("1.parquet"))], base=tmp_path
    ) == [
        4,
        0,
    ]


# --- conditions -------------------------------------------------------------------------------

CONDITIONS = [
    ({"term": [36, "24.0"]}, [0, 3, 4]),
    ({"bank": ["b", "c", "z"]}, [1, 4]),
    ({"term": {"min": 30, "max": 36}}, [0, 3]),
    ({"rate": {"max": 0.5}}, [0, 2]),
    ({"day": {"min": "2020-02-01"}}, [1, 2]),
    ({"day": {"min": "2020-01-01", "max": "2020-12-31"}, "bank": "a"}, [0]),
]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize(("where", "rows"), CONDITIONS)
def test_conditions_take_lists_and_ranges(tmp_path, name, where, rows, few_rows):
    path = tmp_path / name
    FRAME.to_csv(path, index=False) if name == "t.csv" else FRAME.to_parquet(path)
    expected = FRAME["term"][rows].astype(int).tolist()
    assert read(tmp_path, name, where=where)["term"].astype(int).tolist() == expected


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ([], "a value, a list of values, or a range"),
        ({}, "min, max or both"),
        ({"min": 3, "max": 2}, "expected min to be at most max"),
        ({"min": 3, "max": "2020-01-01"}, "two numbers or two dates"),
        ({"min": "x"}, 'a number, or a date such as "2020-01-31"'),
        ({"above": 3}, "a range with min, max or both"),
    ],
)
def test_a_condition_that_is_none_is_refused(tmp_path, condition, why):
    with pytest.raises(InputError, match=f"where.*{why}"):
        read(tmp_path, "t.csv", where={"a": condition})


# --- batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [{}, {"term": [36, 60]}, {"bank": "a"}, {"flag": "true"}])
def test_batches_are_stored_as_the_whole_table_would_be(tmp_path, few_rows, where):
    """A ledger is bound to how columns are stored, which gaps elsewhere in the table decide."""
    FRAME.to_parquet(tmp_path / "t.parquet")
    whole = pd.read_parquet(tmp_path / "t.parquet")
    if where:
        (name, value), *_ = where.items()
        wanted = [True] if value == "true" else value if isinstance(value, list) else [value]
        whole = whole[whole[name].isin(wanted)].reset_index(drop=True)
    assert fingerprint([read(tmp_path, "t.parquet", where=where)]) == fingerprint([whole])


def test_only_what_is_needed_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr("common.parquet_files.BATCH_ROWS", 1000)
    table = pa.table({name: np.arange(100_000.0) for name in "abcdefgh"})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=1000)
    pool = pa.default_memory_pool()
    before, most = pool.bytes_allocated(), 0
    kept = common.batches.rows_of_arrow

    def watched(batches, *rest, **options):
        def seen():
            nonlocal most
            for batch in batches:
                most = max(most, pool.bytes_allocated() - before)
                yield batch

        return kept(seen(), *rest, **options)

    monkeypatch.setattr("common.parquet_files.rows_of_arrow", watched)
    source = TableSource(path=Path("t.parquet"), rows=":100", where={"a": {"min": 50}})
    assert len(read_table(source, base=tmp_path, columns=["b"])) == 50
    assert most < table.nbytes / 4


# --- databases --------------------------------------------------------------------------------

ROWS = [("b", 60, 1.5, "2020-01-31"), ("a", 36, None, "2021-01-31"), ("a", 24, 0.5, None)]


@pytest.fixture(params=["sqlite", "duckdb"])
def database(request, tmp_path):
    """The name of a file with the table loans."""
    name = f"t.{request.param}"
    if request.param == "sqlite":
        opened = sqlite3.connect(tmp_path / name)
    else:
        opened = pytest.importorskip("duckdb").connect(str(tmp_path / name))
    opened.execute('create table loans (bank text, "the term" integer, rate double, day text)')
    opened.executemany("insert into loans values (?, ?, ?, ?)", ROWS)
    opened.commit()
    opened.close()
    return name


def test_a_query_selects_records_in_one_order(tmp_path, database, few_rows):
    everything = read(tmp_path, database, query="select * from loans;")
    assert everything["the term"].tolist() == [24, 36, 60]
    again = read(tmp_path, database, query="select * from loans order by 2 desc")
    assert fingerprint([again]) == fingerprint([everything])
    commented = read(tmp_path, database, query="select * from loans -- of all banks")
    assert fingerprint([commented]) == fingerprint([everything])
    some = read(
        tmp_path, database, query="select * from loans", rows="-2:", where={"rate": {"min": 1}}
    )
    assert some["bank"].tolist() == ["b"]
    source = TableSource(path=Path(database), query="select * from loans where bank = 'a'")
    assert read_table(source, base=tmp_path, columns=["rate"]).to_dict("list").keys() == {"rate"}
    assert read_header(source, base=tmp_path) == ["bank", "the term", "rate", "day"]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (None, "needs query, such as 'select .* from \"loans\"'; it has the tables loans"),
        ("select * from stays", "cannot be read as a table: .*stays"),
        ("drop table loans", "cannot be read as a table"),
        ("select * from loans where rate > 99", "no records"),
    ],
)
def test_a_query_that_gives_no_records_is_refused(tmp_path, database, query, why):
    before = (tmp_path / database).read_bytes()
    with pytest.raises(InputError, match=why):
        read(tmp_path, database, query=query)
    assert (tmp_path / database).read_bytes() == before


def test_the_query_that_is_advised_can_be_typed_whatever_schema_a_table_is_of(tmp_path):
    """It left out the schema, and named a table that is not there."""
    with pytest.importorskip("duckdb").connect(str(tmp_path / "t.duckdb")) as opened:
        opened.execute('create schema ward; create table ward."a.b" as select 1 as x')
        opened.execute("create table z as select 2 as x")
    with pytest.raises(InputError, match=r"it has the tables ward\.a\.b, z$") as refused:
        read(tmp_path, "t.duckdb")
    advised = re.search(r"such as '(.*)'; it", str(refused.value))[1]
    assert read(tmp_path, "t.duckdb", query=advised)["x"].tolist() == [1]
    assert read(tmp_path, "t.duckdb", query='select * from "z"')["x"].tolist() == [2]


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2Ja", 'a"b', "a" * 100_000])
def test_a_table_whose_name_cannot_be_shown_is_no_example_of_a_query(tmp_path, name):
    """The query that was advised ran over two lines, or was none."""
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as opened:
        opened.execute('create table "{}" (rate)'.format(name.replace('"', '""')))
    with pytest.raises(InputError, match="such as 'select \\* from \"TABLE\"'") as refused:
        read(tmp_path, "t.sqlite")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1000


def test_a_small_database_makes_no_cell_that_fills_the_disk(tmp_path):
    opened = sqlite3.connect(tmp_path / "t.sqlite")
    opened.execute("create view loans as select 1 as rate, zeroblob(900000000) as note")
    opened.close()
    with pytest.raises(InputError, match="cannot be read as a table: string or blob too big"):
        read(tmp_path, "t.sqlite", query="select * from loans")


def test_a_database_that_others_write_to_may_be_read_later(tmp_path, database):
    if database.endswith("duckdb"):
        writer = "import duckdb, sys; opened = duckdb.connect(sys.argv[1]); "
    else:
        writer = "import sqlite3, sys; opened = sqlite3.connect(sys.argv[1], isolation_level=None)"
        writer += "; opened.execute('begin exclusive'); "
    code = f"{writer}print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / database],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        other.stdout.readline()
        with pytest.raises(UnreachableError, match=r"cannot be read now: .*the same command again"):
            read(tmp_path, database, query="select * from loans")
        other.communicate()
    assert len(read(tmp_path, database, query="select * from loans")) == len(ROWS)


def test_no_cell_says_that_another_program_writes_to_its_database(tmp_path):
    """An owner is started again where its file is locked, and not where a cell is no number."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(tmp_path / "cells.duckdb") as opened:
        opened.execute("create table cells as select 'IO Error: Could not set lock on file' as v")
    with pytest.raises(InputError, match="fails for a cell, which is not shown") as refused:
        read(tmp_path, "cells.duckdb", query="select v::integer as v from cells")
    assert "Could not" not in str(refused.value)


@pytest.mark.parametrize("said", ["v::double", "v::date", "strptime(v, '%Y')", "error(v)"])
def test_a_sentence_of_duckdb_quotes_no_cell(tmp_path, said):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(tmp_path / "cells.duckdb") as opened:
        opened.execute("create table cells as select 'secret' as v")
    with pytest.raises(InputError, match="fails for a cell") as refused:
        read(tmp_path, "cells.duckdb", query=f"select {said} as v from cells")
    assert "secret" not in str(refused.value)
    # What is wrong with the query itself is said.
    with pytest.raises(InputError, match='column "w" not found'):
        read(tmp_path, "cells.duckdb", query="select w from cells")


def test_an_interval_of_duckdb_says_how_long_it_is(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(tmp_path / "stays.duckdb") as opened:
        opened.execute("create table stays as select 1 as n, interval '50 hours' as stay")
    found = read(tmp_path, "stays.duckdb", query="select stay, n from stays", where={"n": 1})
    assert found["stay"].tolist() == ["50:00:00"]
    assert len(read(tmp_path, "stays.duckdb", query="select stay from stays")) == 1


def test_times_of_duckdb_read_the_same_in_every_zone_that_a_machine_is_in(tmp_path):
    """A day was another one where the owner was started again, and its ledger was refused."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(tmp_path / "stays.duckdb") as opened:
        opened.execute("create table stays as select '2020-03-01 22:30:00+00'::timestamptz as day")
    code = (
        "import sys, pathlib; from common.config import check_settings; "
        "from common.tables import TableSource, read_table; "
        "table = dict(path='stays.duckdb', query='select day, day::date as cast_day from stays'); "
        "source = check_settings(TableSource, table, where='s.toml'); "
        "print(read_table(source, base=pathlib.Path(sys.argv[1])).astype(str).values.tolist())"
    )
    command = [sys.executable, "-c", code, tmp_path]
    for zone in ("America/New_York", "Asia/Tokyo"):
        env = os.environ | {"TZ": zone}
        found = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        assert found.stdout == "[['2020-03-01 22:30:00+00:00', '2020-03-01']]\n"


@pytest.mark.parametrize(
    ("cell", "text"), [("'00111'::bit", "00111"), ("7::bignum", "7"), ("'x'::blob", b"x")]
)
def test_no_cell_of_duckdb_is_its_own_bytes(tmp_path, cell, text):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(tmp_path / "stays.duckdb") as opened:
        opened.execute(f"create table stays as select {cell} as c")
    assert read(tmp_path, "stays.duckdb", query="select c from stays")["c"].tolist() == [text]


def test_a_log_that_has_no_place_beside_a_database_is_told_of(tmp_path):
    with closing(sqlite3.connect(tmp_path / "t.db")) as opened:
        opened.execute("pragma journal_mode = wal")
        opened.execute("create table t (x)")
        opened.execute("insert into t values (1)")
        opened.commit()
    # As in a folder that cannot be written to, which nobody is who runs tests as root.
    (tmp_path / "t.db-wal").mkdir()
    with pytest.raises(InputError, match=r"t\.db: SQLite keeps a write-ahead log .*journal_mode"):
        read(tmp_path, "t.db", query="select * from t")


def test_a_cell_of_another_type_touches_no_other(tmp_path):
    opened = sqlite3.connect(tmp_path / "t.db")
    opened.execute("create table t (x, y)")
    cells = [1.5, "36", None, b"\xff", 2**60]
    opened.executemany("insert into t values (?, ?)", [(x, i) for i, x in enumerate(cells)])
    opened.commit()
    opened.close()
    table = read(tmp_path, "t.db", query="select y, x from t")
    np.testing.assert_array_equal(
        parse_numbers(table["x"])[[0, 1, 2, 4]], [1.5, 36, np.nan, 2.0**60]
    )


def test_a_query_is_for_databases(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n")
    with pytest.raises(InputError, match="query is for databases"):
        read(tmp_path, "t.csv", query="select 1")


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ({"database": "env:NO_SUCH"}, "database needs query"),
        (
            {"database": "env:NO_SUCH", "query": "select 1"},
            "is not set, or is not a single line; give one",
        ),
        ({"database": "file:gone", "query": "select 1"}, "the file cannot be read"),
        ({"database": "file:uri", "query": "select 1"}, "expected postgresql://USER"),
        ({"database": "file:uri", "path": "a.csv", "query": "q"}, "either path or database"),
    ],
)
def test_a_database_elsewhere_is_named_by_a_secret_place(tmp_path, place, why):
    (tmp_path / "uri").write_text("mysql://root:s3cret@db/x")
    with pytest.raises(InputError, match=why) as refused:
        read(tmp_path, **place)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://bob:{}%zz@127.0.0.1:1/db",
        "postgresql://bob:{}%00@127.0.0.1:1/db",
        "postgresql://bob:{}/x@127.0.0.1:1/db",
        "postgresql://bob:x@{}@127.0.0.1:1/db",
        "postgresql://bob:1/{}@127.0.0.1:1/db",
        "postgresql://bob:{} x@127.0.0.1:1/db",
        "postgresql://127.0.0.1:{}/db",
        "postgresql://bob@127.0.0.1:1/db?password={}%zz",
        "postgresql://bob@127.0.0.1:1/db?password=x&{}",
        "postgresql://bob@127.0.0.1:1/db?password=x={}",
    ],
)
def test_no_part_of_a_password_is_said(tmp_path, address):
    pytest.importorskip("adbc_driver_postgresql.dbapi")
    (tmp_path / "uri").write_text(address.format("s3cret"))
    with pytest.raises(InputError, match="write @ as %40") as refused:
        read(tmp_path, database="file:uri", query="select 1")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://127.0.0.1:1",
        "postgres://bob@127.0.0.1:1/db",
        "postgresql://bob:p%40ss:?#%25%2F[w@127.0.0.1:1/db",
        "postgresql://bob:p@[::1]:1,127.0.0.1:1/db?connect_timeout=3&application_name=a%20b",
        "postgresql:///db?host=%2Fno%2Fsuch&user=bob",
        "postgresql://%2Fno%2Fsuch/db",
        "postgresql:///db?host=/no/such",
    ],
)
def test_an_address_as_the_library_reads_it_is_taken(tmp_path, address):
    pytest.importorskip("adbc_driver_postgresql.dbapi")
    (tmp_path / "uri").write_text(address)
    with pytest.raises(UnreachableError, match=r"connection to server|could not connect"):
        read(tmp_path, database="file:uri", query="select 1")


def test_what_does_not_fit_the_memory_is_kept_from_other_users(tmp_path, monkeypatch):
    duckdb = pytest.importorskip("duckdb")
    for name, value in (("memory_limit", "60MB"), ("threads", "1")):
        monkeypatch.setitem(common.databases._DUCKDB_SETTINGS, name, value)
    with duckdb.connect(str(tmp_path / "t.duckdb")) as database:
        database.execute("create table t as select random()::varchar a from range(600000)")
    source = TableSource(path=tmp_path / "t.duckdb", query="select a, a || a as b from t")
    found = set()

    def look(*_):
        for place in (tmp_path, Path(private_folder())):
            found.update(place.rglob("duckdb_temp*"))

    stream_selected(open_source(source, base=Path()), source, ["a", "b"], look)
    assert found
    for file in found:
        (folder,) = [above for above in file.parents if above.name.startswith("copriv-")]
        assert folder.stat().st_mode & 0o077 == 0


def test_postgresql_gives_the_same_records(postgres):
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    name = f"copriv_test_{os.getpid()}_{threading.get_ident()}"
    with (
        dbapi.connect(os.environ["COPRIV_TEST_POSTGRES"], autocommit=True) as opened,
        opened.cursor() as cursor,
    ):
        cursor.execute(
            f"create table {name} (bank text, term integer, rate numeric, day date, id uuid)"
        )
        cursor.execute(f"create sequence {name}_s")
        try:
            cursor.execute(
                f"insert into {name} values ('b', 60, 1.5, '2020-01-31', gen_random_uuid()), "
                "('B', 36, null, '2021-01-31', null), ('a', null, 0.5, null, null)"
            )
            place = TablePlace(database=postgres, query=f"select * from {name}")
            table = read_table(TableSource(), base=Path(), default=place)
            # By their bytes, whatever the server's language.
            assert table["bank"].tolist() == ["B", "a", "b"]
            np.testing.assert_array_equal(parse_numbers(table["rate"]), [np.nan, 0.5, 1.5])
            np.testing.assert_array_equal(parse_numbers(table["term"]), [36, np.nan, 60])
            some = TableSource(rows="1:", where={"day": {"max": "2020-12-31"}})
            assert read_table(some, base=Path(), default=place)["bank"].tolist() == ["b"]
            with pytest.raises(InputError, match=r"cannot be read as a table: .*read-only"):
                read_table(
                    TableSource(),
                    base=Path(),
                    default=place.model_copy(update={"query": f"select nextval('{name}_s')"}),
                )
        finally:
            cursor.execute(f"drop table {name}")
            cursor.execute(f"drop sequence {name}_s")


def test_arrow_takes_the_systems_memory_unless_the_user_says_otherwise():
    told = "import common, pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    for given, expected in (
        ({}, "system"),
        ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc"),
    ):
        own = {key: value for key, value in os.environ.items() if not key.startswith("ARROW_")}
        told_by = subprocess.run(
            [sys.executable, "-c", told],
            env=own | given,
            capture_output=True,
            text=True,
            check=True,
        )
        assert told_by.stdout.strip() == expected


def test_a_long_private_cell_decides_nothing(tmp_path):
    """Python's own reader refuses cells of more than 131,072 characters, in the first rows only."""
    cells = ["7"] * 6
    for place in range(len(cells)):
        rows = [*cells[:place], "x" * 140_000, *cells[place + 1 :]]
        (tmp_path / "a.csv").write_text("a,b\n" + "".join(f"{cell},1\n" for cell in rows))
        table = read_table(TableSource(path=tmp_path / "a.csv"), base=tmp_path)
        assert [len(cell) for cell in table["a"]] == [len(row) for row in rows]
        numbers = parse_numbers(table["a"])
        assert [bool(np.isnan(one)) for one in numbers] == [len(row) > 1 for row in rows]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("7,8,9,10", r"t\.csv: line 5 has 4 cells, but the header has 3 names; correct that row"),
        ('7,"8,9', r"t\.csv: a quotation mark in line 5 or later is never closed; correct that"),
    ],
)
def test_a_row_that_is_broken_is_told_with_its_line(tmp_path, line, told):
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c", *["1,2,3"] * 3, line, "4,5,6"]))
    with pytest.raises(InputError, match=told):
        read(tmp_path, "t.csv")
