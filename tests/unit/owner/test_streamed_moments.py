"""Moments of records that stay where they are: one pass, no file, and the bits of a held shard."""

import os
import signal
import sqlite3
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.config import check_settings
from common.errors import InputError, PolicyError
from common.features import FeatureMap
from common.stretches import block_records, stretches
from common.terms import Query
from owner import raw_rows
from owner import shard as shard_module
from owner.core import EXACT, exact_answer
from owner.loading import load_to_serve
from owner.open_study import StudyMaker
from owner.policy import OwnerSettings, Policy
from owner.server import open_owner
from owner.shards import MomentShard, Shard, by_moments
from owner.sums import MomentStream, moment_sums

APPLY = FeatureMap.apply
POLICY = {"epsilon_per_study": 9, "epsilon_lifetime": 99}
MOSTLY_MOMENTS = {"losses": ["squared"], "validation": False}
MOMENTS_ONCE = {"release": "moments", "clip": None, "responses": 1}
THETA = np.array([0.25, -0.5, 0.125, 1.0])


def settings_of(folder, policy=None, **data):
    folder.chmod(0o700)
    values = {
        "name": "owner-a",
        "data": {"path": "t.parquet", "cache": True, **data},
        "policy": POLICY | (policy or {}),
        "threads": 1,
    }
    return check_settings(OwnerSettings, values, where="test")


def serve(folder, pinned, **data):
    return load_to_serve(settings_of(folder, **data), base=folder, pinned=pinned)


def maker(served):
    """Makes studies ready without drawing noise."""

    class NoNoise:
        def __init__(self, plan):
            """Whatever the plan."""

        def epsilon(self, *, responses):
            return Fraction(0)

        def wait(self):
            """Nothing is drawn."""

        def stop(self):
            """Nothing is drawn."""

    return StudyMaker(
        table=served.table,
        policy=Policy.model_validate(POLICY),
        noise=NoNoise,
        insecure_noise=True,
    )


def files(folder):
    return sorted(file.suffix for file in (folder / "ledger.sqlite.shards").glob("*.*"))


# --- the sums ---------------------------------------------------------------------------------


@pytest.mark.parametrize("num_features", [1, 7, 100, 300])
@pytest.mark.parametrize("blocks", [0.01, 1, 1.5, 16, 17, 40.3])
@pytest.mark.parametrize("storage", ["float64", "float32"])
def test_sums_of_a_stream_have_the_bits_of_held_records(monkeypatch, num_features, blocks, storage):
    monkeypatch.setattr("common.stretches.BLOCK_CELLS", 2**12)
    stretches.cache_clear()
    n = max(1, int(blocks * block_records(num_features)))
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(n, num_features)).astype(storage), rng.normal(size=n)
    stream, first = MomentStream(n, num_features), 0
    while first < n:
        some = slice(first, first + int(rng.integers(0, 3 + n // 3)))
        stream.add(x[some], y[some])
        first += len(y[some])
    held = moment_sums(x, y, threads=2)
    stretches.cache_clear()
    for mine, theirs in zip(stream.sums(), held, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_stream_that_ends_early_has_no_sums():
    stream = MomentStream(3, 2)
    stream.add(np.ones((2, 2)), np.ones(2))
    with pytest.raises(RuntimeError, match="2 of 3 records came"):
        stream.sums()


# --- an owner ---------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    """Tables of a few rows come in several batches, and are several blocks."""
    monkeypatch.setattr(shard_module, "ROWS_AT_ONCE", 5)
    for module in ("common.parquet_files", "common.csv_files", "common.databases"):
        monkeypatch.setattr(f"{module}.BATCH_ROWS", 7)


@pytest.mark.parametrize("storage", ["float64", "float32"])
@pytest.mark.parametrize(
    "changes",
    [
        {"release": "gradient", "clip": None},
        MOMENTS_ONCE,
    ],
)
@pytest.mark.parametrize("pinned", [True, False])
def test_a_study_of_moments_makes_no_file_and_answers_as_a_held_shard(
    tmp_path, feature_map, table_maker, make_terms, changes, pinned, storage
):
    table_maker(80, seed=5).to_parquet(tmp_path / "t.parquet", row_group_size=11)
    own = feature_map if pinned else None
    terms = make_terms(**changes)
    held = maker(serve(tmp_path, own, cache=False, storage=storage)).prepare(terms).shard
    served = serve(tmp_path, own, storage=storage)
    far = maker(served).prepare(terms).shard
    assert isinstance(held, Shard)
    assert isinstance(far, MomentShard)
    assert far.num_features == held.num_features
    np.testing.assert_array_equal(exact_answer(far, THETA, terms), exact_answer(held, THETA, terms))
    assert files(tmp_path) == []
    # A second study of the same map reads nothing.
    assert maker(served).prepare(terms).shard is far


NEEDY = [
    {"clip": 1.0},
    {"loss": "huber", "delta": 1.0, "clip": None},
    {"release": "newton", "clip": 1.0, "curvature_scale": 1.0},
    {"release": "newton", "clip": None, "curvature_scale": 1.0},
    {"release": "validation", "clip": None, "responses": 1, "loss_bound": 1.0},
]


@pytest.mark.parametrize("changes", NEEDY)
def test_a_study_that_needs_records_makes_their_file_when_it_comes(
    tmp_path, feature_map, table_maker, make_terms, changes
):
    table_maker(80, seed=5).to_parquet(tmp_path / "t.parquet", row_group_size=11)
    moments, terms = make_terms(clip=None), make_terms(**changes)
    assert by_moments(moments)
    assert not by_moments(terms)
    served = serve(tmp_path, feature_map)
    served.table.keep_only(feature_map, by_moments=True)
    first = maker(served).prepare(moments).shard
    assert files(tmp_path) == []
    far = maker(served).prepare(terms).shard
    assert files(tmp_path) == [".sha256", ".shard"]
    held = maker(serve(tmp_path, feature_map, cache=False)).prepare(terms).shard
    np.testing.assert_array_equal(exact_answer(far, THETA, terms), exact_answer(held, THETA, terms))
    # The study under way goes on; and after a restart the file is used, with the same bits.
    assert maker(served).prepare(moments).shard is first
    again = maker(serve(tmp_path, feature_map)).prepare(moments).shard
    assert isinstance(again, Shard)
    np.testing.assert_array_equal(again.gram, first.gram)
    np.testing.assert_array_equal(again.cross, first.cross)


def test_moments_alone_answer_nothing_else(make_terms):
    shard = MomentShard(np.eye(4), np.zeros(4))
    for name in set(EXACT) - {"gradient", "moments"}:
        with pytest.raises(KeyError, match=name):
            exact_answer(shard, THETA, make_terms(release=name, clip=None))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (MOSTLY_MOMENTS, []),
        ({}, [".sha256", ".shard"]),
        ({"losses": ["squared"]}, [".sha256", ".shard"]),
        (MOSTLY_MOMENTS | {"losses": ["squared", "huber"]}, [".sha256", ".shard"]),
    ],
)
def test_an_owner_whose_studies_may_need_records_makes_its_file_before_it_serves(
    tmp_path, feature_map, table_maker, policy, expected
):
    table_maker(40, seed=5).to_parquet(tmp_path / "t.parquet")
    (tmp_path / "map.json").write_text(feature_map.to_json())
    settings = settings_of(tmp_path, policy).model_copy(update={"features": "map.json"})
    open_owner(settings, base=tmp_path, insecure_noise_seed=1).stop()
    assert files(tmp_path) == expected


def test_an_owner_of_moments_takes_no_other_map(tmp_path, feature_map, table_maker):
    table_maker(40, seed=5).to_parquet(tmp_path / "t.parquet")
    table = serve(tmp_path, feature_map).table
    table.keep_only(feature_map, by_moments=True)
    other = FeatureMap.from_json(feature_map.model_copy(update={"source": "another"}).to_json())
    for ask in (table.shard, table.moments):
        with pytest.raises(PolicyError, match="its own feature map only"):
            ask(other)


def test_a_reader_that_begins_again_adds_no_record_twice(tmp_path, feature_map, table_maker):
    """A date that pandas cannot hold comes late: the file is read once more from its beginning."""
    table = pa.Table.from_pandas(table_maker(80, seed=5), preserve_index=False)
    name = next(name for name in feature_map.columns_needed if name != feature_map.target_name)
    days = pa.array([*range(70), 2**31 - 1, *range(9)], pa.int32()).cast(pa.date32())
    table = table.set_column(table.schema.get_field_index(name), name, days)
    pq.write_table(table, tmp_path / "t.parquet")
    held = serve(tmp_path, feature_map, cache=False).table.shard(feature_map)
    far = serve(tmp_path, feature_map).table.moments(feature_map)
    assert isinstance(far, MomentShard)
    np.testing.assert_array_equal(far.gram, held.gram)
    np.testing.assert_array_equal(far.cross, held.cross)


@pytest.mark.parametrize("change", ["a row less", "a row more", "another value"])
@pytest.mark.parametrize("what", ["moments", "shard"])
def test_a_table_that_changed_is_not_read_again(tmp_path, feature_map, table_maker, change, what):
    table = table_maker(40, seed=5)
    table.to_parquet(tmp_path / "t.parquet")
    served = serve(tmp_path, feature_map)
    if change == "another value":
        table.loc[3, "y"] += 1
    rows = {"a row less": slice(0, -1), "another value": slice(None)}
    changed = table.iloc[rows[change]] if change in rows else pd.concat([table, table.head(1)])
    changed.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match="has changed since this owner started; start it again"):
        getattr(served.table, what)(feature_map)
    assert files(tmp_path) == []
    # So it is where nothing but the number of records tells.
    if change != "another value":
        unnoticed = serve(tmp_path, feature_map)
        table.to_parquet(tmp_path / "t.parquet")
        unnoticed.rows._stamps = unnoticed.rows._opened.stamps()
        with pytest.raises(InputError, match="has changed since"):
            getattr(unnoticed.table, what)(feature_map)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
@pytest.mark.parametrize("what", ["moments", "shard"])
def test_a_database_that_changed_is_not_read_again(tmp_path, feature_map, table_maker, kind, what):
    """Its budget is of the records that were there at the start; of a file the time tells."""
    library = pytest.importorskip("sqlite3" if kind == "sqlite" else "duckdb")
    path, table = tmp_path / f"t.{kind}", table_maker(40, seed=5)

    def run(*statements):
        with closing(library.connect(str(path))) as db:
            for statement in statements:
                db.execute(statement)
            db.commit()

    rows = ", ".join(str(tuple(row)) for row in table.to_numpy(dtype=float).tolist())
    names = ", ".join(f'"{name}" double' for name in table.columns)
    run(f"create table t ({names})", f"insert into t values {rows}", "create table other (a int)")
    served = serve(tmp_path, feature_map, path=path.name, query="select * from t")
    make = getattr(served.table, what)
    run("insert into other values (1)")
    text = feature_map.to_json()
    *maps, other = (FeatureMap.from_json(text.replace("public.parquet", word)) for word in "abc")
    # At once, as learners may enrol.
    with ThreadPoolExecutor(2) as pool:
        assert [made.num_features for made in pool.map(make, maps)] == [
            feature_map.num_features
        ] * 2
    run("update t set y = y + 1 where y = (select min(y) from t)")
    with pytest.raises(InputError, match="has changed since this owner started; start it again"):
        make(other)


def test_a_database_is_read_in_the_state_that_was_looked_at(
    tmp_path, feature_map, table_maker, monkeypatch
):
    """Somebody writes to it in between."""
    path = tmp_path / "t.sqlite"
    with closing(sqlite3.connect(path)) as db:
        # Who reads keeps nobody from writing.
        db.execute("pragma journal_mode = wal")
        table_maker(40, seed=5).to_sql("t", db, index=False)
    served = serve(tmp_path, feature_map, path=path.name, query="select * from t")
    before = served.table.moments(feature_map)
    stream_selected = raw_rows.stream_selected

    def written_to(*given):
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("update t set y = y + 1")
        return stream_selected(*given)

    monkeypatch.setattr(raw_rows, "stream_selected", written_to)
    other = FeatureMap.from_json(feature_map.to_json().replace("public.parquet", "other"))
    after = served.table.moments(other)
    np.testing.assert_array_equal(after.cross, before.cross)


def test_memory_is_a_batch_whatever_the_table(tmp_path, feature_map, table_maker, monkeypatch):
    monkeypatch.setattr(shard_module, "ROWS_AT_ONCE", 2**10)
    monkeypatch.setattr("common.parquet_files.BATCH_ROWS", 2**12)
    # Of columns that are read at once for the fingerprint nothing is measured.
    most = {}
    for rows in (2**14, 2**18):
        folder = tmp_path / str(rows)
        folder.mkdir()
        table_maker(rows, seed=5).to_parquet(folder / "t.parquet", row_group_size=2**12)
        served = serve(folder, feature_map)
        held = [pa.default_memory_pool().bytes_allocated()]

        def watched(*given, held=held, **rest):
            held.append(pa.default_memory_pool().bytes_allocated())
            return APPLY(*given, **rest)

        tracemalloc.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FeatureMap, "apply", watched)
            served.table.moments(feature_map)
        most[rows] = tracemalloc.get_traced_memory()[1] + max(held) - held[0]
        tracemalloc.stop()
    assert most[2**18] < 1.5 * most[2**14]
    assert most[2**18] < 2**18 * 8 * feature_map.num_features / 3


KILLED = """
import os, signal, sys
from pathlib import Path
from common.features import FeatureMap
from owner import shard
from tests.unit.owner.test_streamed_moments import serve
folder, what = Path(sys.argv[1]), sys.argv[2]
shard.ROWS_AT_ONCE = 5
own = FeatureMap.from_json((folder / "map.json").read_text())
served, count, apply = serve(folder, own), 0, FeatureMap.apply
def killed(*given, **rest):
    global count
    count += 1
    if count == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return apply(*given, **rest)
FeatureMap.apply = killed
getattr(served.table, what)(own)
"""


@pytest.mark.parametrize(("what", "left"), [("moments", []), ("shard", [".part"])])
def test_an_owner_killed_in_the_middle_begins_again(tmp_path, feature_map, table_maker, what, left):
    table_maker(80, seed=5).to_parquet(tmp_path / "t.parquet")
    (tmp_path / "map.json").write_text(feature_map.to_json())
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path, what], check=False, env={**os.environ}
    )
    assert ended.returncode == -signal.SIGKILL
    assert files(tmp_path) == left
    held = serve(tmp_path, feature_map, cache=False).table.shard(feature_map)
    far = getattr(serve(tmp_path, feature_map).table, what)(feature_map)
    np.testing.assert_array_equal(far.gram, held.gram)
    # What was not finished is gone.
    assert files(tmp_path) == ([".sha256", ".shard"] if what == "shard" else [])


def test_a_database_may_hold_other_tables_that_change(tmp_path, feature_map, table_maker):
    with closing(sqlite3.connect(tmp_path / "t.db")) as opened:
        table_maker(40, seed=5).to_sql("t", opened, index=False)
        served = serve(tmp_path, feature_map, path="t.db", query="select * from t")
        opened.execute("create table other (x)")
        opened.commit()
        assert isinstance(served.table.moments(feature_map), MomentShard)
        again = serve(tmp_path, feature_map, path="t.db", query="select * from t")
        opened.execute("delete from t where rowid = 3")
        opened.commit()
        with pytest.raises(InputError, match="has changed since"):
            again.table.moments(feature_map)


@pytest.mark.parametrize("changes", [{"clip": None, "responses": 3}, MOMENTS_ONCE])
def test_an_owner_answers_the_same_bytes_held_and_far_and_after_a_restart(
    tmp_path, feature_map, table_maker, make_terms, changes
):
    terms, given = make_terms(**changes), dict[bool, list[bytes]]()
    for cache in (False, True):
        folder = tmp_path / str(cache)
        folder.mkdir()
        table_maker(80, seed=5).to_parquet(folder / "t.parquet", row_group_size=11)
        (folder / "map.json").write_text(feature_map.to_json())
        settings = settings_of(folder, MOSTLY_MOMENTS, cache=cache)
        settings = settings.model_copy(update={"features": "map.json"})

        def ask(number, *, settings=settings, folder=folder):
            owner = open_owner(settings, base=folder, insecure_noise_seed=1)
            try:
                owner.enroll(terms, learner="ann")
                query = Query(study_id=terms.study_id, sequence=number, theta=THETA)
                return owner.answer(query, learner="ann").gradient.tobytes()
            finally:
                owner.stop()

        numbers = [*range(1, terms.responses + 1), terms.responses]
        given[cache] = [ask(number) for number in numbers]
        assert given[cache][-1] == given[cache][-2 if terms.responses > 1 else 0]
    assert given[True] == given[False]
    assert files(tmp_path / "True") == []
