"""Shards on the disk are those in memory, bit for bit, and nobody else's to read or to change."""

import errno
import os
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from maps import map_of

from common import batches
from common.columns import parse_numbers
from common.config import check_settings
from common.errors import InputError, PolicyError
from common.features import FeatureMap
from common.terms import Records
from owner import shard
from owner.loading import load_to_serve
from owner.policy import OwnerSettings
from owner.shard_cache import KEPT_FILES, ShardCache


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    """Tables of a few rows come in several batches, too."""
    monkeypatch.setattr(shard, "ROWS_AT_ONCE", 5)
    for module in ("common.parquet_files", "common.csv_files", "common.databases"):
        monkeypatch.setattr(f"{module}.BATCH_ROWS", 7)
    assert batches.BATCH_ROWS > 7


def serve(folder, pinned, **data):
    folder.chmod(0o700)
    values = {
        "name": "owner-a",
        "data": data,
        "policy": {"epsilon_per_study": 1, "epsilon_lifetime": 1},
        "threads": 1,
    }
    settings = check_settings(OwnerSettings, values, where="test")
    return load_to_serve(settings, base=folder, pinned=pinned)


def equal(one, other):
    np.testing.assert_array_equal(one.features, other.features)
    np.testing.assert_array_equal(one.targets, other.targets)


def written(table, folder, kind):
    path = folder / f"t.{kind}"
    if kind == "parquet":
        table.to_parquet(path, index=False)
        return {"path": path.name}
    if kind == "csv":
        table.to_csv(path, index=False)
        return {"path": path.name}
    if kind == "sqlite":
        import sqlite3  # noqa: PLC0415

        opened = sqlite3.connect(path)
        table.to_sql("t", opened, index=False)
        opened.close()
        return {"path": path.name, "query": "select * from t"}
    half = len(table) // 2
    (folder / "parts").mkdir()
    table.iloc[:half].to_parquet(folder / "parts" / "a.parquet", index=False)
    table.iloc[half:].to_csv(folder / "parts" / "b.csv", index=False)
    return {"path": "parts"}


@pytest.mark.parametrize("storage", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["parquet", "csv", "sqlite"])
@pytest.mark.parametrize("rows", [None, "5:60:3", "-31:"])
def test_a_shard_on_the_disk_is_the_one_in_memory(
    tmp_path, feature_map, table_maker, kind, rows, storage
):
    table = table_maker(80, seed=5)
    table.iloc[3:9, 0] = np.nan
    table.iloc[60:70, -1] = np.nan
    data = written(table, tmp_path, kind) | {"storage": storage}
    if rows is not None:
        # A database's rows take no step.
        data["rows"] = rows.removesuffix(":3") if kind == "sqlite" else rows
    held = serve(tmp_path, feature_map, cache=False, **data)
    far = serve(tmp_path, feature_map, cache=True, **data)
    assert far.fingerprint == held.fingerprint
    assert far.table.num_records == held.table.num_records
    assert far.table.columns == held.table.columns
    mine, theirs = (made.table.shard(feature_map) for made in (far, held))
    assert mine.records.features.dtype == storage
    equal(mine.records, theirs.records)
    np.testing.assert_array_equal(mine.gram, theirs.gram)
    np.testing.assert_array_equal(parse_numbers(far.rows["y"]), parse_numbers(held.rows["y"]))


def test_records_without_a_target_are_left_out_alike(tmp_path, feature_map, table_maker):
    table = table_maker(80, seed=5)
    table.loc[[0, 6, 7, 30, 79], "y"] = np.nan
    data = written(table, tmp_path, "parquet") | {"missing_target": "drop"}
    held = serve(tmp_path, feature_map, cache=False, **data)
    far = serve(tmp_path, feature_map, cache=True, **data)
    assert far.fingerprint == held.fingerprint
    assert far.table.num_records == 75
    equal(far.table.shard(feature_map).records, held.table.shard(feature_map).records)


def files(folder):
    return sorted((folder / "ledger.sqlite.shards").glob("*.*"))


@pytest.mark.parametrize(
    "words",
    [
        {"units": {"column-0": 0.01}},
        {"rename": {"column-0": "column-1", "column-1": "column-0"}},
        {"spellings": {"column-0": {"0": "1"}}},
    ],
)
def test_the_same_records_in_other_words_meet_no_old_file(
    tmp_path, feature_map, table_maker, words
):
    table = table_maker(60, seed=3)
    table["column-0"] = np.arange(60) % 2
    data = written(table, tmp_path, "parquet")
    before = serve(tmp_path, feature_map, **data, cache=True)
    made = before.table.shard(feature_map).records
    after = serve(tmp_path, feature_map, **data, cache=True, **words)
    expected = serve(tmp_path, feature_map, **data, cache=False, **words)
    records = after.table.shard(feature_map).records
    assert not np.array_equal(records.features, made.features)
    equal(records, expected.table.shard(feature_map).records)
    assert after.fingerprint == before.fingerprint


def test_files_are_for_their_user_alone_and_made_once(tmp_path, feature_map, table_maker):
    data = written(table_maker(30, seed=5), tmp_path, "parquet")
    first = serve(tmp_path, feature_map, cache=True, **data).table.shard(feature_map).records
    assert (tmp_path / "ledger.sqlite.shards").stat().st_mode & 0o777 == 0o700
    assert [file.suffix for file in files(tmp_path)] == [".sha256", ".shard"]
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files(tmp_path))
    made = files(tmp_path)[1].stat().st_ino
    again = serve(tmp_path, feature_map, cache=True, **data).table.shard(feature_map).records
    assert files(tmp_path)[1].stat().st_ino == made
    equal(first, again)
    with pytest.raises(ValueError, match="read-only"):
        again.features[0, 0] = 1e9


@pytest.mark.parametrize(
    "damage", ["a flipped bit", "cut short", "no digest", "another digest", "a pipe"]
)
def test_a_damaged_file_is_made_again(tmp_path, feature_map, table_maker, damage):
    data = written(table_maker(30, seed=5), tmp_path, "parquet")
    expected = serve(tmp_path, feature_map, cache=False, **data).table.shard(feature_map).records
    serve(tmp_path, feature_map, cache=True, **data).table.shard(feature_map)
    noted, shard = files(tmp_path)
    if damage == "a flipped bit":
        content = bytearray(shard.read_bytes())
        content[-3] ^= 64
        shard.write_bytes(content)
    elif damage == "cut short":
        os.truncate(shard, shard.stat().st_size - 8)
    elif damage == "no digest":
        noted.unlink()
    elif damage == "a pipe":
        noted.unlink()
        os.mkfifo(noted)
    else:
        noted.write_bytes(b"\xff\x00")
    again = serve(tmp_path, feature_map, cache=True, **data).table.shard(feature_map).records
    equal(again, expected)


def test_other_records_meet_no_old_file(tmp_path, feature_map, table_maker):
    table = table_maker(30, seed=5)
    data = written(table, tmp_path, "parquet")
    serve(tmp_path, feature_map, cache=True, **data).table.shard(feature_map)
    table.loc[7, "y"] += 1.0
    written(table, tmp_path, "parquet")
    held = serve(tmp_path, feature_map, cache=False, **data).table.shard(feature_map).records
    far = serve(tmp_path, feature_map, cache=True, **data).table.shard(feature_map).records
    equal(far, held)


def shard_of(cache, digest, value):
    def fill(records):
        records.features[:] = value
        records.targets[:] = 1.0

    return cache.records(digest, (3, 2), storage="float64", fill=fill)


def test_learners_maps_fill_no_disk(tmp_path):
    cache = ShardCache(tmp_path / "shards", fingerprint="f")
    held = [shard_of(cache, str(k), float(k)) for k in range(3 * KEPT_FILES)]
    assert len(list((tmp_path / "shards").glob("*.shard"))) == KEPT_FILES
    assert len(list((tmp_path / "shards").glob("*.*"))) == 2 * KEPT_FILES
    # Who uses one whose file is gone has it still.
    assert [records.features[0, 0] for records in held] == list(range(3 * KEPT_FILES))


def test_a_clock_that_was_set_back_takes_no_file_away_that_was_just_made(tmp_path):
    cache = ShardCache(tmp_path / "shards", fingerprint="f")
    for k in range(KEPT_FILES):
        shard_of(cache, str(k), float(k))
    tomorrow = time.time() + 86_400
    for file in (tmp_path / "shards").glob("*.shard"):
        os.utime(file, (tomorrow, tomorrow))
    assert shard_of(cache, "new", 9.0).features[0, 0] == 9.0
    assert cache.has("new", (3, 2), storage="float64")
    assert len(list((tmp_path / "shards").glob("*.shard"))) == KEPT_FILES


def test_no_word_names_a_file_which_confirms_a_guess_of_all_records(tmp_path, caplog, monkeypatch):
    folder = tmp_path / "shards"
    cache = ShardCache(folder, fingerprint="f")
    with caplog.at_level("INFO", "copriv.owner"):
        shard_of(cache, "a", 1.0)
    (file,) = folder.glob("*.shard")
    assert f"written to {folder}" in caplog.text
    assert file.stem not in caplog.text

    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(InputError, match="shards: a shard cannot be kept there"):
        shard_of(cache, "b", 1.0)


def test_a_folder_that_others_may_enter_is_refused(tmp_path):
    (tmp_path / "shards").mkdir(mode=0o755)
    with pytest.raises(InputError, match=r"chmod 700 it, or set data\.cache = false"):
        ShardCache(tmp_path / "shards", fingerprint="f")


def test_a_full_disk_is_said_before_anything_is_read(tmp_path, monkeypatch):
    cache = ShardCache(tmp_path / "shards", fingerprint="f")

    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(InputError, match=r"No space left on device.*make room"):
        shard_of(cache, "a", 1.0)
    assert list((tmp_path / "shards").glob("*.*")) == []


def test_what_was_not_finished_does_not_count(tmp_path):
    cache = ShardCache(tmp_path / "shards", fingerprint="f")

    def fails(records):
        records.features[0, 0] = 5.0
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.records("a", (3, 2), storage="float64", fill=fails)
    assert list((tmp_path / "shards").glob("*.*")) == []
    assert shard_of(cache, "a", 2.0).features[0, 0] == 2.0


def test_what_a_killed_process_had_not_finished_is_in_nobodys_way(tmp_path):
    """Whatever number it had: in a container every start has the same."""
    cache = ShardCache(tmp_path / "shards", fingerprint="f")
    shard_of(cache, "a", 1.0)
    (made,) = (tmp_path / "shards").glob("*.shard")
    left = [made.rename(made.with_suffix(".part")), made.with_name(f"other.{os.getpid()}.part")]
    left[1].touch()
    assert shard_of(cache, "a", 2.0).features[0, 0] == 2.0
    assert not any(path.exists() for path in left)


def test_two_that_make_the_same_shard_wait_for_each_other(tmp_path):
    caches = [ShardCache(tmp_path / "shards", fingerprint="f") for _ in range(2)]
    waits, made = threading.Event(), list[Records]()

    def fill(records):
        made.append(records)
        waits.wait(0.2)
        records.features[:], records.targets[:] = 3.0, 1.0

    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(cache.records, "a", (3, 2), storage="float64", fill=fill)
            for cache in caches
        ]
        equal(*(one.result() for one in both))
    assert len(made) == 1


def test_rows_that_run_backwards_are_refused_where_they_are(tmp_path, feature_map, table_maker):
    data = written(table_maker(30, seed=5), tmp_path, "parquet") | {"rows": "::-1"}
    far = serve(tmp_path, feature_map, cache=True, **data)
    with pytest.raises(InputError, match="run backwards"):
        far.table.shard(feature_map)


@pytest.mark.parametrize("kind", ["parquet", "csv", "sqlite"])
def test_how_a_batch_is_stored_decides_nothing(tmp_path, kind):
    """Gaps in one batch make other types of its columns than the whole table has."""
    n = 60
    rng = np.random.default_rng(3)
    table = pd.DataFrame(
        {
            "code": rng.integers(1, 4, n).astype(object),
            "flag": rng.integers(0, 2, n).astype(bool).astype(object),
            "word": rng.choice(["a", "b", "2"], n).astype(object),
            "amount": rng.integers(0, 50, n).astype(object),
            "y": rng.normal(size=n),
        }
    )
    made = map_of(table.infer_objects(), categorical=["code", "flag"])
    for k, name in enumerate(("code", "flag", "word", "amount")):
        table.loc[7 * k + 3, name] = None
    whole = pd.DataFrame({name: table[name].convert_dtypes() for name in table})
    if kind == "sqlite":
        whole = whole.astype(object).where(whole.notna(), None)
    data = written(whole, tmp_path, kind)
    held = serve(tmp_path, made, cache=False, **data)
    far = serve(tmp_path, made, cache=True, **data)
    assert far.fingerprint == held.fingerprint
    equal(far.table.shard(made).records, held.table.shard(made).records)


@pytest.mark.parametrize("cache", [False, True])
def test_an_owner_with_a_map_of_its_own_holds_no_raw_record(
    tmp_path, feature_map, table_maker, cache
):
    data = written(table_maker(30, seed=5), tmp_path, "parquet")
    served = serve(tmp_path, feature_map, cache=cache, **data)
    before, rows = served.table.shard(feature_map), weakref.ref(served.rows)
    table = served.table
    table.keep_only(feature_map)
    del served
    assert rows() is None
    assert table.num_records == 30
    assert table.shard(feature_map) is before
    changed = feature_map.model_copy(update={"source": "another"})
    other = FeatureMap.from_json(changed.to_json())
    with pytest.raises(PolicyError, match="its own feature map only"):
        table.shard(other)
