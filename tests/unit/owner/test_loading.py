"""Which columns learners are told of, and headers that are no headers."""

import contextlib
import itertools
import sqlite3
import tomllib
import warnings

import numpy as np
import pandas as pd
import pytest
import tomli_w

from common.columns import category_keys, parse_months, parse_numbers
from common.config import load_settings
from common.errors import DoubtWarning, InputError, PolicyError
from common.features import load_feature_map
from common.tables import read_selected
from owner.attaching import open_attachment
from owner.ledger_rows import LedgerError
from owner.loading import load_records, load_to_serve
from owner.policy import OwnerSettings
from owner.raw_rows import evenly_held
from owner.server import start_owner
from owner.shard import fingerprint


@pytest.fixture
def settings(owner_folder):
    """An owner's settings without a feature map of its own, its table a CSV file."""

    def write(text, **data):
        path = owner_folder()
        (path.parent / "t.csv").write_text(text)
        table = tomllib.loads(path.read_text())
        del table["features"]
        table["data"] = {"path": "t.csv", **data}
        path.write_text(tomli_w.dumps(table))
        return path

    return write


def opened(path):
    start_owner(path, listen=None, insecure_noise_seed=None).drain(grace=0.1)


def attached(path):
    open_attachment(
        path, learner="127.0.0.1:1", stay=False, insecure=False, insecure_noise_seed=None
    )


@pytest.mark.parametrize(
    "text", ["36,Bronx,7\n41,Kings,8\n", "a,a,y\n1,2,3\n", "F,Bronx\nF,Bronx\nM,Bronx\nF,Kings\n"]
)
@pytest.mark.parametrize("cache", [False, True])
def test_a_file_without_a_header_is_neither_served_nor_checked_nor_attached(
    settings, typed, text, cache
):
    path = settings(text, columns=text.splitlines()[0].split(","), cache=cache)
    for command in (opened, attached):
        with pytest.raises(InputError, match="its column names look like a record"):
            command(path)
    said = typed("copriv-owner", "check", path)
    assert said.returncode == 2
    assert (
        "correct them; in a text file, add a line with the columns' names, or remove what stands "
        "above it" in said.stderr
    )


def test_an_owner_that_names_no_column_tells_none(settings, make_terms):
    path = settings("column-0,column-1,column-2,y,secret\n1,2,3,4,5\n5,6,7,8,9\n")
    running = start_owner(path, listen=None, insecure_noise_seed=None)
    assert running.owner.describe(learner="anonymous").columns == ()
    assert running.owner.enroll(make_terms(), learner="anonymous").num_records == 2
    running.drain(grace=0.1)


def test_a_named_column_must_be_there(settings):
    with pytest.raises(InputError, match=r"no column 'z', which the setting data\.columns names"):
        opened(settings("age,y\n1,2\n", columns=["age", "z"]))


def test_a_database_without_a_named_column_is_called_by_its_place(settings, postgres):
    path = settings("age,y\n1,2\n")
    table = tomllib.loads(path.read_text())
    table["data"] = {"database": postgres, "query": "select 1 as age", "columns": ["age", "z"]}
    path.write_text(tomli_w.dumps(table))
    with pytest.raises(InputError, match=rf": the database of {postgres}: no column 'z'"):
        opened(path)


def test_describe_tells_only_columns_that_are_named(owner_folder, table_maker, settings):
    table = table_maker(50, seed=1).assign(secret=1.0)
    pinned = start_owner(owner_folder(table=table), listen=None, insecure_noise_seed=None)
    told = pinned.owner.describe(learner="anonymous").columns
    pinned.drain(grace=0.1)
    (owner_folder(table=table).parent / "ledger.sqlite").unlink()
    assert told == ("column-0", "column-1", "column-2", "y")
    named = settings("age,y,secret\n1,2,3\n4,5,6\n", columns=["y", "age"])
    running = start_owner(named, listen=None, insecure_noise_seed=None)
    assert running.owner.describe(learner="anonymous").columns == ("age", "y")
    running.drain(grace=0.1)


@pytest.mark.parametrize("in_words", [False, True])
@pytest.mark.parametrize("cache", [False, True])
# Of moments alone, and of records.
@pytest.mark.parametrize("clip", [None, 1.0])
def test_a_column_that_is_not_named_is_refused_as_one_that_is_not_there(
    settings, make_terms, in_words, cache, clip
):
    """Also where the owner's own unit of it is known, so that it is read and held."""
    names = ["column-1", "column-2", "y"]
    said = []
    for extra in ("column-0", "column-9"):
        header = ",".join([*names, extra])
        words = {"units": {extra: 2.0}} if in_words else {}
        path = settings(f"{header}\n1,2,3,4\n5,6,7,8\n", columns=names, cache=cache, **words)
        running = start_owner(path, listen=None, insecure_noise_seed=None)
        with pytest.raises(PolicyError, match="no column 'column-0' for studies") as refused:
            running.owner.enroll(make_terms(clip=clip), learner="anonymous")
        said.append((str(refused.value), running.owner.epsilon_held()))
        running.drain(grace=0.1)
        (path.parent / "ledger.sqlite").unlink()
    assert said[0] == said[1]
    assert said[0][1] == 0


def pinned(owner_folder, table, **data):
    """An owner with a feature map of its own and this table as CSV."""
    path = owner_folder(table=table)
    table.to_csv(path.parent / "shard.csv", index=False)
    settings = tomllib.loads(path.read_text())
    settings["data"] = {"path": "shard.csv", **data}
    path.write_text(tomli_w.dumps(settings))
    return path


def loaded(path):
    settings = load_settings(OwnerSettings, path)
    own = load_feature_map(path.parent / settings.features) if settings.features else None
    return load_records(settings, base=path.parent, pinned=own)


def test_an_owner_leaves_out_records_without_a_target_by_its_own_map_only(
    owner_folder, table_maker
):
    table = table_maker(50, seed=3)
    table.loc[[1, 7], "y"] = float("nan")
    everything = loaded(pinned(owner_folder, table))
    left = loaded(pinned(owner_folder, table, missing_target="drop"))
    assert (everything.table.num_records, left.table.num_records) == (50, 48)
    # Other records than those a ledger was begun with.
    assert left.fingerprint != everything.fingerprint
    with pytest.raises(InputError, match=r"target 'y': 2 of 50 records.*missing_target"):
        loaded(pinned(owner_folder, table, missing_target="refuse"))
    path = pinned(owner_folder, table, missing_target="drop")
    path.write_text(path.read_text().replace('features = "features.json"', ""))
    with pytest.raises(InputError, match="missing_target needs the owner's own feature map"):
        loaded(path)


def test_a_map_that_leaves_out_other_records_has_another_ledger(owner_folder, table_maker):
    """As many records, and of the same table."""
    table = table_maker(50, seed=3)
    table.loc[1, "y"], table.loc[7, "y"] = 999.0, 888.0
    path = pinned(owner_folder, table, missing_target="drop")
    own = load_feature_map(path.parent / "features.json")
    prints = []
    for code in ("999", "888"):
        target = own.target.model_copy(update={"missing": (code,)})
        text = own.model_copy(update={"target": target}).to_json()
        (path.parent / "features.json").write_text(text)
        left = loaded(path)
        assert left.table.num_records == 49
        prints.append(left.fingerprint)
    assert prints[0] != prints[1]


def test_the_ledger_of_a_table_that_is_read_otherwise_says_which_settings_it_needs(
    owner_folder, table_maker
):
    """Also where only a column that no learner uses is read otherwise."""
    table = table_maker(50, seed=3).assign(admitted="2.1.2021")
    path = pinned(owner_folder, table, dates="day-first")
    opened(path)
    path.write_text(path.read_text().replace("day-first", "month-first"))
    with pytest.raises(LedgerError, match=r"in \[data\] what says how they are read \(dates, "):
        opened(path)


def test_a_long_name_of_a_map_makes_no_long_sentence(owner_folder, table_maker):
    path = pinned(owner_folder, table_maker(50, seed=3))
    own = path.parent / "features.json"
    own.write_text(own.read_text().replace('"column-0"', f'"{"y" * 200_000}"'))
    with pytest.raises(InputError, match="no column 'yyy") as refused:
        loaded(path)
    assert len(str(refused.value)) < 600


def test_a_large_table_is_seen_whole_and_held_in_part(owner_folder, table_maker, monkeypatch):
    table = table_maker(50, seed=3).assign(other="a secret")
    path = pinned(owner_folder, table)
    at_once = loaded(path)
    monkeypatch.setattr("owner.loading.BYTES_AT_ONCE", 2000)
    in_parts = loaded(path)
    assert (
        in_parts.fingerprint
        == at_once.fingerprint
        == fingerprint([pd.read_csv(path.parent / "shard.csv", dtype=str, keep_default_na=False)])
    )
    assert list(in_parts.raw.columns) == ["column-0", "column-1", "column-2", "y"]
    pd.testing.assert_frame_equal(in_parts.raw, at_once.raw)


@pytest.mark.parametrize(
    ("rows", "is_taken"),
    [
        ("::2", False),
        ("4:90:3", False),
        ("::-2", False),
        (":50", True),
        ("-9:", True),
        ("9::1", True),
    ],
)
def test_no_replaced_record_of_a_database_moves_others_in_and_out(tmp_path, rows, is_taken):
    with contextlib.closing(sqlite3.connect(tmp_path / "stays.sqlite")) as database, database:
        database.execute("create table stays (id, x)")
        database.executemany("insert into stays values (?, ?)", [(i, i % 2) for i in range(100)])
    data = {"path": "stays.sqlite", "query": "select * from stays", "rows": rows}
    policy = {"epsilon_per_study": "1", "epsilon_lifetime": "1"}
    for more in ({}, {"cache": True}):
        settings = OwnerSettings.model_validate(
            {"name": "a", "data": data | more, "policy": policy}
        )
        if is_taken:
            assert len(load_to_serve(settings, base=tmp_path, pinned=None).rows)
            continue
        with pytest.raises(InputError, match=r"data\.rows = .* give a range without a step"):
            load_to_serve(settings, base=tmp_path, pinned=None)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("select * from stays order by random() limit 5", "random"),
        ("SELECT * FROM stays\nLIMIT 5", "limit"),
        ("select *, row_number() over (order by x) as r from stays", "over"),
        ("select * from stays where id < strftime('%s', 'now')", "'now'"),
        ('select "limit" from (select x as "limit", \'random()\' as o from stays) -- limit', None),
    ],
    ids=range(5),
)
@pytest.mark.parametrize("cache", [False, True])
def test_a_query_that_may_select_other_rows_the_next_time_is_doubted_once(
    query, word, cache, tmp_path
):
    with contextlib.closing(sqlite3.connect(tmp_path / "stays.sqlite")) as database, database:
        database.execute("create table stays (id, x)")
        database.executemany("insert into stays values (?, ?)", [(i, i % 2) for i in range(100)])
    data = {"path": "stays.sqlite", "query": query, "cache": cache}
    policy = {"epsilon_per_study": "1", "epsilon_lifetime": "1"}
    settings = OwnerSettings.model_validate({"name": "a", "data": data, "policy": policy})
    with warnings.catch_warnings(record=True, action="always", category=DoubtWarning) as found:
        load_to_serve(settings, base=tmp_path, pinned=None)
    begins = f"a: data.query has {word}: where it selects other rows at the next start"
    told = [str(one.message)[: len(begins)] for one in found]
    assert told == [begins] * (word is not None)


def in_parts(folder, monkeypatch, meanwhile=lambda part: None, **data):
    """The records of a table that is read a column at a time, while somebody writes to it."""
    monkeypatch.setattr("owner.loading.BYTES_AT_ONCE", 1)
    read, parts = read_selected, itertools.count(1)

    def reading(*arguments):
        part = read(*arguments)
        meanwhile(next(parts))
        return part

    monkeypatch.setattr("owner.loading.read_selected", reading)
    policy = {"epsilon_per_study": "1", "epsilon_lifetime": "1"}
    settings = OwnerSettings.model_validate({"name": "a", "data": data, "policy": policy})
    return load_records(settings, base=folder, pinned=None)


def test_texts_that_a_database_takes_for_equal_stay_with_their_records(tmp_path, monkeypatch):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "t.duckdb")) as database:
        database.execute("create table t (a varchar collate nocase, b varchar collate nocase)")
        database.execute(
            "insert into t select v, v from "
            "(select if(random() < 0.5, 'x', 'X') as v from range(300000))"
        )
    # Of equal ones it gives any first, so one cell of a record would stand beside another's.
    once, again = (
        in_parts(tmp_path, monkeypatch, path="t.duckdb", query="select * from t") for _ in range(2)
    )
    assert (once.raw["a"] == once.raw["b"]).all()
    assert once.fingerprint == again.fingerprint


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_database_that_is_written_to_is_read_in_one_state(tmp_path, monkeypatch, journal):
    path = tmp_path / "t.sqlite"
    with contextlib.closing(sqlite3.connect(path, timeout=0.1)) as database:
        database.execute(f"pragma journal_mode = {journal}")
        database.execute("create table t (a, b)")
        database.executemany("insert into t values (?, ?)", [(i, i) for i in range(1, 9)])
        database.commit()

        def write(_):
            with contextlib.suppress(sqlite3.OperationalError):
                # First in its order: each column that is read later would be moved by a row.
                database.execute("insert into t values (0, 0)")
                database.commit()

        raw = in_parts(tmp_path, monkeypatch, write, path="t.sqlite", query="select * from t").raw
    assert raw["a"].tolist() == raw["b"].tolist() == [*map(str, range(1, 9))]


def test_a_file_that_is_written_to_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,1\n2,2\n")

    def write(part):
        path.write_text("a,b\n0,0\n1,1\n2,2\n" if part == 1 else path.read_text())

    with pytest.raises(InputError, match=r"t\.csv: was written to while it was read"):
        in_parts(tmp_path, monkeypatch, write, path="t.csv")


@pytest.mark.parametrize(
    ("ending", "name", "cell"),
    [
        ("sqlite", "x", "abc"),
        ("sqlite", "x", b"\xff"),
        ("sqlite", "yes", None),
        ("sqlite", "count", "z"),
        ("parquet", "yes", None),
        ("parquet", "count", None),
    ],
)
def test_no_cell_decides_how_its_column_is_held(ending, name, cell, owner_folder):
    # Numbers are read many at once, other cells one by one: an enrolment would take another time.
    path, kinds = owner_folder(), []
    columns = {"x": [0.5, 1.5, 2.5], "yes": [True, False, True], "count": [1, 2, 3], "y": [1, 2, 3]}
    for last in (columns[name][-1], cell):
        table = pd.DataFrame(columns | {name: [*columns[name][:-1], last]})
        file = path.parent / f"{len(kinds)}.{ending}"
        data = {"path": file.name}
        if ending == "parquet":
            table.to_parquet(file)
        else:
            data["query"] = "select * from t"
            cells = table.astype(object).where(table.notna(), None)
            with contextlib.closing(sqlite3.connect(file)) as database, database:
                database.execute("create table t (x, yes, count, y)")
                rows = cells.itertuples(index=False, name=None)
                database.executemany("insert into t values (?, ?, ?, ?)", rows)
        settings = tomllib.loads(path.read_text()) | {"data": data}
        settings.pop("features", None)
        path.write_text(tomli_w.dumps(settings))
        kinds.append(loaded(path).raw.dtypes.to_dict())
    assert kinds[0] == kinds[1]


def test_cells_read_the_same_however_they_are_held():
    cells = [1.5, -0.0, 1e-7, 1e300, 5e-324, float("inf"), 2.0, 36, 10**18, -(2**62), None, "36"]
    cells += [" 12 months", "Dec-2011", "2011-12-01", "1,5", "abc", "NaN", "", "x" * 5000]
    cells += [b"36", b"12 months", b"2011-12-01", b"abc", b"\xff", b"", b"y" * 5000, "true"]
    column = pd.Series(cells, dtype=object, name="a")
    numbers = pd.Series([True, False]), pd.Series([1, 2**60 + 1]), pd.Series([0.1, np.nan])
    tables = [(column, False), (numbers[2], False), *((own, True) for own in numbers)]
    for own, is_typed in tables:
        held = evenly_held(own.to_frame("a"), is_typed=is_typed)["a"]
        np.testing.assert_array_equal(parse_numbers(held), parse_numbers(own))
        np.testing.assert_array_equal(parse_months(held), parse_months(own))
        keys = [
            [None if code < 0 else texts[code] for code in codes]
            for codes, texts in map(category_keys, (held, own))
        ]
        assert keys[0] == keys[1]


def test_columns_that_stay_as_they_are_are_not_copied():
    table = pd.DataFrame({"x": [0.5, 1.5], "n": [1, 2]})
    held = evenly_held(table, is_typed=True)
    assert np.shares_memory(held["x"].to_numpy(), table["x"].to_numpy())
