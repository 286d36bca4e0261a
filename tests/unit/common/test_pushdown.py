"""What readers leave out never counts: rows are the same as when all are read."""

import datetime as dt
import os
import sqlite3
import sys
import threading
from contextlib import closing, nullcontext
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common import pushdown, tables
from common.conditions import matches
from common.config import check_settings
from common.databases import DuckDbFile
from common.duckdb_session import DuckDbSession
from common.errors import InputError
from common.postgres import Postgres
from common.pushdown import ColumnExtent, Wanted
from common.row_filters import RowFilter, parse_rows
from common.tables import TableSource, open_source, read_table, stream_selected
from owner.shard import fingerprint

WHOLE = [0, 1, -1, 18, 36, 127, None]
LARGE = [*WHOLE, 2**53, 2**53 + 1, 2**63 - 1]
REAL = [0.0, -0.0, 1.0, 18.0, 36.0, 0.1, -2.5, 1e16, 2.0**53, np.inf, -np.inf, np.nan, None]
TEXTS = [
    *("Kings", " Kings", "Kings ", "\u2003Kings", "\tKings", "Kingston", "kings", "King", "Queens"),
    *("New York", " New   York", "New", "Åsa", "O'Hara", 'a"b', "back\\slash", "100%", "zoë", "~"),
    *("36", "36.0", " 36", "+36", "3.6e1", "036", "36 months", "0.1", "true", "1,458", "inf", "-1"),
    *("", "na", "-", "x" * 1001, "(long text)", "2020-01-31", "Dec-2011", "1", None),
]
DAYS = [dt.date(2020, 1, 31), dt.date(2020, 2, 1), dt.date(2011, 12, 1), dt.date(1, 1, 1)]
DAYS += [dt.date(9999, 12, 31), dt.date(2000, 1, 1), None]
TIMES = [
    *(dt.datetime(2020, 1, 31, 23, 59, 59), dt.datetime(2020, 2, 1), dt.datetime(2000, 3, 1, 5)),
    *(dt.datetime(1999, 12, 31), dt.datetime(2019, 12, 31, 12), None),
]
COLUMNS = {
    "tiny": pa.array(WHOLE, pa.int8()),
    "whole": pa.array(LARGE, pa.int64()),
    "without sign": pa.array([0, 1, 18, 36, 2**53 + 1, 2**64 - 1, None], pa.uint64()),
    "short": pa.array([*REAL, 16777217.0], pa.float32()),
    "real": pa.array(REAL, pa.float64()),
    "flag": pa.array([True, False, None]),
    "text": pa.array(TEXTS),
    "large text": pa.array(TEXTS, pa.large_string()),
    "category": pa.array(TEXTS).dictionary_encode(),
    "day": pa.array(DAYS, pa.date32()),
    "time": pa.array(TIMES, pa.timestamp("us")),
    "time of a zone": pa.array(TIMES, pa.timestamp("us", "America/New_York")),
    "decimal": pa.array([Decimal("36.00"), Decimal("0.10"), Decimal(-1), None]),
}
CONDITIONS = [
    *(0, 1, 36, 36.0, "36", "36.0", " 36 ", "36 months", 0.1, -1, True, "true", "inf", 1e16),
    *(2**53, 2**53 + 1, 2**63 - 1, 2**64 - 1, 16777217, 128, "nan", ""),
    *("Kings", " Kings ", "New  York", "kings", "Åsa", "O'Hara", 'a"b', "back\\slash", "100%"),
    *("zoë", "~", "x" * 2000, "(long text)", "2020-01-31", "Dec-2011", "Nobody"),
    *(["Kings", "Queens"], ["Kings", 36], [1, 18], ["Nobody", ""], [*range(100)]),
    *({"min": 18}, {"max": 0}, {"min": 0.1, "max": 0.1}, {"min": 36, "max": 36}),
    *({"min": 2**53}, {"max": 2**53}, {"min": -1e300, "max": 1e300}, {"min": 2**63}),
    *({"min": "2020-02-01"}, {"max": "2020-01-31"}, {"min": "Jan-2020", "max": "Jan-2020"}),
    *({"min": "0001-01-01", "max": "9999-12-31"}, {"max": "0000-05-01"}, {"min": "2000-03-01"}),
]


def source_of(**settings):
    return check_settings(TableSource, settings, where="s.toml")


def read(folder, **settings):
    """A table, or why there is none."""
    try:
        return read_table(source_of(**settings), base=folder)
    except InputError as error:
        return str(error)


def whole_table(folder, **place):
    """A table without a condition."""
    whole = read(folder, **place)
    assert isinstance(whole, pd.DataFrame)
    return whole


def check_same(folder, whole, where, **settings):
    """Whether rows are left: the same ones as of the whole table, read without a condition."""
    source = source_of(where=where, **settings)
    every = whole[parse_rows(source.rows or ":")]
    for name, condition in source.where.items():
        every = every[matches(every[name], condition)]
    nothing = f": no records are left after {tables._selection(source)}"
    expected = nothing if every.empty else every.reset_index(drop=True)
    return compare(read(folder, where=where, **settings), expected)


def check_same_given(folder, where, **settings):
    """The same where types are those of the rows that count, so that all must be read anew."""
    some = read(folder, where=where, **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowFilter, "conditions", property(lambda self: {}))
        every = read(folder, where=where, **settings)
    return compare(some, every)


def compare(some, every):
    """Whether rows are left, the same ones; else both end in the same sentence."""
    if isinstance(some, str) or isinstance(every, str):
        assert isinstance(some, str)
        assert isinstance(every, str)
        assert some.endswith(every)
        return False
    if not any(isinstance(column.dtype, pd.CategoricalDtype) for _, column in every.items()):
        pd.testing.assert_frame_equal(some, every)
    assert fingerprint([some]) == fingerprint([every])
    return True


def table_of(name, order=None):
    """A column, and others that gaps store in another way."""
    cells = COLUMNS[name]
    n = len(cells)
    table = pa.table(
        {
            "id": pa.array(range(n)),
            name: cells,
            "count": pa.array([None if i == n - 1 else i for i in range(n)]),
            "is": pa.array([None if i == 1 else True for i in range(n)]),
            "full": pa.array(range(n), pa.int16()),
        }
    )
    return table if order is None else table.take(pa.array(order))


# --- Parquet ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("name", COLUMNS)
def test_groups_that_are_passed_over_hold_no_row_that_counts(tmp_path, monkeypatch, name, size):
    # A copy of this process, which is asked first, takes longer than all else; no file is damaged.
    monkeypatch.setattr("common.parquet_files.ends_the_process", lambda work: False)
    order = np.random.default_rng(size).permutation(len(COLUMNS[name]))
    pq.write_table(table_of(name, order), tmp_path / "t.parquet", row_group_size=size)
    # All conditions where each cell is a group; some where groups and ranges cut each other.
    rows = [None] if size == 1 else [None, "1:", "-4:"]
    some = CONDITIONS[:: {"category": 3, "large text": 2}.get(name, 1) if size == 1 else 7]
    whole = whole_table(tmp_path, path="t.parquet")
    found = [
        check_same(tmp_path, whole, {name: asked}, path="t.parquet", rows=each)
        for asked in some
        for each in rows
    ]
    assert any(found)
    assert not all(found)


def test_no_whitespace_is_forgotten():
    every = {chr(code).encode() for code in range(sys.maxunicode + 1) if chr(code).isspace()}
    assert every == {*pushdown._WHITESPACE}


@pytest.mark.parametrize(
    "extent",
    [
        None,
        ColumnExtent("number", float("nan"), float("nan")),
        ColumnExtent("text", b" ", b" "),
        ColumnExtent("text", b"A", b"Kj"),
        ColumnExtent("text", b"Kingsbury", b"Kingston"),
        ColumnExtent("text", b"\xe2\x80\x83Zoe", b"\xe2\x80\x83Zoe"),
    ],
)
def test_what_is_not_known_is_read(extent):
    assert Wanted(("Kings", 5)).may_be_in(extent)
    assert Wanted("Kings").may_be_in(extent) or (extent is not None and extent.kind == "number")


def groups_read(monkeypatch):
    """The groups of Parquet files that are decoded from now on."""
    seen = []
    decode = pq.ParquetFile.iter_batches

    def watched(self, *given, row_groups, **options):
        seen.extend(row_groups)
        return decode(self, *given, row_groups=row_groups, **options)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watched)
    return seen


def counties(path):
    """A table sorted by its counties, a group of ten rows for each."""
    table = pd.DataFrame({"county": np.repeat([f"county {i:02}" for i in range(20)], 10)})
    table["x"] = np.arange(float(len(table)))
    table["n"] = np.arange(len(table))
    table.to_parquet(path, index=False, row_group_size=10)
    return table


@pytest.mark.parametrize(
    ("settings", "groups", "rows"),
    [
        ({"where": {"n": {"min": 42, "max": 47}}}, [4], range(42, 48)),
        ({"where": {"x": [3, 199]}}, [0, 19], [3, 199]),
        ({"rows": "25:45"}, [2, 3, 4], range(25, 45)),
        ({"rows": "-5:"}, [19], range(195, 200)),
        ({"rows": "25:45:15"}, [2, 4], [25, 40]),
        ({"rows": "25:45", "where": {"n": {"max": 31}}}, [2, 3], range(25, 32)),
        ({"where": {"n": [42], "x": {"max": 39}}}, [], []),
    ],
)
def test_only_groups_with_rows_that_may_count_are_decoded(
    tmp_path, monkeypatch, settings, groups, rows
):
    counties(tmp_path / "t.parquet")
    seen = groups_read(monkeypatch)
    table = read(tmp_path, path="t.parquet", **settings)
    assert seen == groups
    assert (isinstance(table, str) and "no records" in table) if not groups else True
    if groups:
        assert isinstance(table, pd.DataFrame)
        assert table["n"].tolist() == [*rows]


def test_texts_are_found_by_how_they_begin(tmp_path, monkeypatch):
    table = counties(tmp_path / "t.parquet")
    table["county"] = table["county"].str.replace("county ", "c")
    table.to_parquet(tmp_path / "t.parquet", index=False, row_group_size=10)
    seen = groups_read(monkeypatch)
    found = read(tmp_path, path="t.parquet", where={"county": ["c03", "c17"]})
    assert isinstance(found, pd.DataFrame)
    assert seen == [3, 17]
    assert found["county"].unique().tolist() == ["c03", "c17"]


def test_files_of_a_folder_keep_their_places(tmp_path, monkeypatch):
    (tmp_path / "parts").mkdir()
    for k in (1, 2):
        counties(tmp_path / "parts" / f"{k}.parquet")
    whole = whole_table(tmp_path, path="parts")
    for rows in ("205:215", "195:215", "::50"):
        assert check_same(tmp_path, whole, {"n": {"min": 5}}, path="parts", rows=rows)
    seen = groups_read(monkeypatch)
    parts = []
    source = source_of(path="parts", rows="205:215")
    opened = open_source(source, base=tmp_path)
    assert stream_selected(opened, source, ["n"], lambda _, rows: parts.append(rows)) == 10
    assert seen == [0, 1]
    assert pd.concat(parts)["n"].tolist() == [*range(5, 15)]


def test_a_column_is_stored_by_gaps_that_are_not_read(tmp_path, monkeypatch):
    table = pa.table({"n": pa.array([1, 2, 3, None]), "flag": pa.array([True, None, True, False])})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=1)
    seen = groups_read(monkeypatch)
    found = read(tmp_path, path="t.parquet", rows=":1")
    assert seen == [0]
    assert isinstance(found, pd.DataFrame)
    assert [str(each) for each in found.dtypes] == ["float64", "object"]


@pytest.mark.parametrize("kind", ["no statistics", "nested"])
def test_files_that_tell_too_little_are_read_whole(tmp_path, monkeypatch, kind):
    columns = {"a": pa.array(range(6)), "n": pa.array(range(6))}
    if kind == "nested":
        columns = {"a.n": pa.array([{"x": 9, "y": 9}] * 6), **columns}
    told = kind == "nested"
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=2, write_statistics=told)
    seen = groups_read(monkeypatch)
    found = read(tmp_path, path="t.parquet", where={"n": {"max": 1}})
    assert isinstance(found, pd.DataFrame)
    assert found["n"].tolist() == [0, 1]
    assert seen == [0, 1, 2]


# --- databases --------------------------------------------------------------------------------

NAMES = ["tiny", "whole", "short", "real", "flag", "text", "day", "time"]


def written_duckdb(folder, name):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(folder / "t.duckdb")) as opened:
        opened.register("given", table_of(name))
        opened.execute("create table t as select * from given")
    return {"path": "t.duckdb", "query": "select * from t"}


def written_sqlite(folder, name, declared=""):
    table = table_of(name)
    opened = sqlite3.connect(folder / "t.db")
    opened.execute(f'create table t (id integer, "{name}" {declared}, "count" integer)')
    cells = [None if isinstance(c, float) and np.isnan(c) else c for c in table[name].to_pylist()]
    cells = [str(cell) if isinstance(cell, dt.date) else cell for cell in cells]
    opened.executemany("insert into t values (?, ?, ?)", [(i, c, i) for i, c in enumerate(cells)])
    opened.execute("insert into t values (99, x'ff36', null)")
    opened.commit()
    opened.close()
    return {"path": "t.db", "query": "select * from t"}


@pytest.mark.parametrize("name", [*NAMES, "without sign", "category"])
def test_duckdb_gives_all_rows_that_count(tmp_path, monkeypatch, name):
    place = written_duckdb(tmp_path, name)
    # Opening a file takes longer than reading it: one connection for all conditions.
    with closing(DuckDbFile(tmp_path / "t.duckdb", "select * from t")._open()) as opened:
        again = lambda self: DuckDbSession(opened._connection.cursor())  # noqa: E731
        monkeypatch.setattr(DuckDbFile, "_open", again)
        whole = whole_table(tmp_path, **place)
        found = [check_same(tmp_path, whole, {name: asked}, **place) for asked in CONDITIONS]
    assert any(found)


@pytest.mark.parametrize("declared", ["", "text", "integer", "real", "text collate nocase"])
@pytest.mark.parametrize("name", ["whole", "real", "text", "day"])
def test_sqlite_gives_all_rows_that_count(tmp_path, name, declared):
    place = written_sqlite(tmp_path, name, declared)
    found = [check_same_given(tmp_path, {name: asked}, **place) for asked in CONDITIONS]
    assert any(found)


@pytest.mark.parametrize("name", [*NAMES, "decimal"])
def test_postgresql_gives_all_rows_that_count(name, rows_given, postgres, monkeypatch):
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    table = f"copriv_test_{os.getpid()}_{threading.get_ident()}"
    types = {"tiny": "smallint", "whole": "bigint", "short": "real", "real": "double precision"}
    types |= {"flag": "boolean", "day": "date", "time": "timestamp", "decimal": "numeric"}
    with (
        dbapi.connect(os.environ["COPRIV_TEST_POSTGRES"], autocommit=True) as opened,
        opened.cursor() as cursor,
    ):
        column = f'"the ""{name}"""'
        cursor.execute(f"create table {table} (id int, {column} {types.get(name, 'text')}, n int)")
        try:
            for i, cell in enumerate(COLUMNS[name].to_pylist()):
                said = "null" if cell is None else "'" + str(cell).replace("'", "''") + "'"
                cursor.execute(f"insert into {table} values ({i}, {said}, {i or 'null'})")
            place = {"database": postgres, "query": f"select * from {table}"}
            asked_of = f'the "{name}"'
            whole = whole_table(Path(), **place)
            # A connection takes longer than all else: one for all conditions.
            with (
                closing(Postgres(os.environ["COPRIV_TEST_POSTGRES"], "")._open()) as session,
                monkeypatch.context() as patch,
            ):
                patch.setattr(Postgres, "_opened", lambda self: nullcontext(session))
                found = [
                    check_same(Path(), whole, {asked_of: asked}, **place) for asked in CONDITIONS
                ]
            assert any(found)
            if name == "whole":
                seen = rows_given("common.postgres.rows_of_arrow")
                assert isinstance(read(Path(), where={asked_of: 36}, **place), pd.DataFrame)
                assert seen == [1]
        finally:
            cursor.execute(f"drop table {table}")


@pytest.fixture
def rows_given(monkeypatch):
    """How many rows a database gives from now on, each time that one is read."""

    def watch(place):
        seen = []
        module, name = place.rsplit(".", 1)
        collect = getattr(sys.modules[module], name)

        def watched(batches, *given, **options):
            every = [*batches]
            seen.append(sum(len(batch) for batch in every))
            return collect(iter(every), *given, **options)

        monkeypatch.setattr(place, watched)
        return seen

    return watch


WRITERS = {"duckdb": written_duckdb, "sqlite": written_sqlite}
READERS = {"duckdb": "rows_of_arrow", "sqlite": "rows_of_frames"}


@pytest.mark.parametrize(
    ("kind", "name", "condition", "count"),
    [
        ("duckdb", "text", "Kings", 6),
        ("duckdb", "whole", 36, 1),
        ("duckdb", "day", {"min": "2020-01-02", "max": "2020-01-31"}, 1),
        # What has another type in its row is given, too.
        ("sqlite", "text", "Kings", 7),
        ("sqlite", "whole", 36, 2),
    ],
)
def test_a_database_gives_few_others(tmp_path, rows_given, kind, name, condition, count):
    place = WRITERS[kind](tmp_path, name)
    num_rows = len(whole_table(tmp_path, **place))
    seen = rows_given(f"common.databases.{READERS[kind]}")
    assert isinstance(read(tmp_path, where={name: condition}, **place), pd.DataFrame)
    # Where a row's place counts, all are given.
    assert isinstance(read(tmp_path, rows=":999", where={name: condition}, **place), pd.DataFrame)
    assert seen == [count, num_rows]


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_names_and_values_are_never_a_part_of_the_query(tmp_path, kind):
    name = "a\") or 1=1; drop table t; --'"
    if kind == "duckdb":
        opened = pytest.importorskip("duckdb").connect(str(tmp_path / "t.x"))
    else:
        opened = sqlite3.connect(tmp_path / "t.x")
    quoted = name.replace('"', '""')
    opened.execute(f'create table t ("{quoted}" text, n integer)')
    values = ["x') or 1=1; drop table t; --", "x\\', 'y", "x''", "x"]
    opened.executemany("insert into t values (?, ?)", [(v, i) for i, v in enumerate(values)])
    opened.commit()
    opened.close()
    for i, value in enumerate(values):
        found = read(tmp_path, path="t.x", query="select * from t", where={name: value})
        assert isinstance(found, pd.DataFrame)
        assert found["n"].tolist() == [i]


@pytest.mark.parametrize("value", ["back\\slash", "Åsa", "a\0b", ["Kings", "é"]])
def test_a_word_of_more_than_plain_letters_is_not_looked_for(value):
    asked = tuple(value) if isinstance(value, list) else value
    assert pushdown.clause('"a"', pa.string(), asked) == "1 = 1"
    assert "instr" not in pushdown.sqlite_clause('"a"', asked)
    assert "'Kings'" in pushdown.clause('"a"', pa.string(), "Kings")
