"""What an owner's records take of its memory, held and left where they are.

Each case is a process of its own that loads a Parquet table, makes the shard of a feature map and
answers one gradient query and one of moments. It prints its largest resident size beyond that of a
process that has only imported the same modules, beside the size of the float64 features, and what
of it can be dropped by the system at any time because it is mapped from a file. The case "moments"
answers from second moments alone, in one pass and without a file.

Then what an owner reads that takes 300 of 92,000 rows by a condition: milliseconds of processor
time for reading them, and for reading all and choosing afterwards, taken in turns, medians.

Usage: python benchmarks/big_shards.py [--rows 250000] [--features 10]
"""

from __future__ import annotations

import argparse
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common.row_filters import RowFilter
from common.tables import TableSource, read_table

OWNERS, OWN_RECORDS, OWN, TURNS = 307, 300, 17, 15

CASE = """
import os, resource, sys, time
from pathlib import Path
import numpy as np
from common.config import check_settings
from common.feature_settings import FeatureSettings
from common.features import FeatureMap
from common.losses import LOSSES
from common.map_fitting import fit_feature_map
from common.tables import TableSource, read_table
from owner.core import mean_gradient
from owner.loading import load_to_serve
from owner.policy import OwnerSettings
import owner.server

folder, mode, storage = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
pinned = FeatureMap.from_json((folder / "map.json").read_text())


def pages():
    told = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return [int(told[key].split()[0]) / 1024 for key in ("VmHWM", "RssAnon", "RssFile")]


before, start = pages(), time.perf_counter()
if mode != "imports":
    values = {"name": "owner", "threads": 1, "ledger": f"{mode}-{storage}.sqlite",
        "policy": {"epsilon_per_study": 1, "epsilon_lifetime": 1},
        "data": {"path": "t.parquet", "storage": storage, "cache": mode != "held"}}
    settings = check_settings(OwnerSettings, values, where="benchmark")
    served = load_to_serve(settings, base=folder, pinned=pinned)
    shard = served.table.moments(pinned) if mode == "moments" else served.table.shard(pinned)
    shard.gram
    if mode != "moments":
        theta = np.zeros(shard.num_features)
        mean_gradient(shard, theta, loss=LOSSES["squared"](), clip=1.0)
after = pages()
print(after[0] - before[0], after[1] - before[1], after[2] - before[2], time.perf_counter() - start)
"""

MAP = """
import sys
from pathlib import Path
from common.feature_settings import FeatureSettings
from common.map_fitting import fit_feature_map
from common.tables import TableSource, read_table
folder = Path(sys.argv[1])
public = read_table(TableSource(path=folder / "t.parquet", rows=":5000"), base=folder)
settings = FeatureSettings(target="y", public=TableSource())
(folder / "map.json").write_text(fit_feature_map(public, settings, source="t").to_json())
"""


def write_table(path: Path, rows: int, features: int) -> None:
    """A table of random numbers, a million rows at a time."""
    rng = np.random.default_rng(0)
    names = [f"x{j}" for j in range(features - 1)]  # the constant feature is the last one
    schema = pa.schema([(name, pa.float64()) for name in (*names, "y")])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, 10**6):
            count = min(10**6, rows - start)
            columns = {name: rng.normal(size=count) for name in (*names, "y")}
            writer.write_table(pa.table(columns, schema=schema))


def write_many_owners(folder: Path) -> dict[str, TableSource]:
    """Records of all owners in one table, as files and databases; each owner's place in them."""
    rng, count = np.random.default_rng(0), OWNERS * OWN_RECORDS
    columns = {f"x{j}": rng.normal(size=count) for j in range(10)}
    owner = np.repeat(np.arange(OWNERS), OWN_RECORDS)
    table = pa.table({"owner": owner, "name": [f"owner-{i:03}" for i in owner], **columns})
    pq.write_table(table, folder / "sorted.parquet", row_group_size=OWN_RECORDS)
    pq.write_table(table, folder / "large.parquet", row_group_size=2**14)
    pq.write_table(table, folder / "one.parquet")
    mixed = table.take(rng.permutation(count))
    with duckdb.connect(str(folder / "t.duckdb")) as opened:
        opened.register("mixed", mixed)
        opened.execute("create table t as select * from mixed")
    lite = sqlite3.connect(folder / "t.sqlite")
    lite.execute(f"create table t ({', '.join(mixed.column_names)})")
    marks = ", ".join("?" * mixed.num_columns)
    lite.executemany(f"insert into t values ({marks})", zip(*mixed.to_pydict().values()))  # noqa: S608, B905
    lite.commit()
    lite.close()
    number, name = {"where": {"owner": OWN}}, {"where": {"name": f"owner-{OWN:03}"}}
    rows = f"{OWN * OWN_RECORDS}:{(OWN + 1) * OWN_RECORDS}"
    query = "select * from t"
    sources: dict[str, dict[str, Any]] = {
        "Parquet, a group for each owner": {"path": "sorted.parquet", **number},
        "the same, by a name": {"path": "sorted.parquet", **name},
        "the same, by rows": {"path": "sorted.parquet", "rows": rows},
        "Parquet, groups of 16,384": {"path": "large.parquet", **number},
        "Parquet, one group": {"path": "one.parquet", **number},
        "DuckDB, unsorted": {"path": "t.duckdb", "query": query, **number},
        "the same, by the name": {"path": "t.duckdb", "query": query, **name},
        "SQLite, unsorted": {"path": "t.sqlite", "query": query, **number},
    }
    return {title: TableSource(**source) for title, source in sources.items()}


def milliseconds(folder: Path, source: TableSource) -> float:
    """Processor time of reading an owner's records."""
    start = time.process_time()
    table = read_table(source, base=folder)
    taken = time.process_time() - start
    if len(table) != OWN_RECORDS:
        raise SystemExit(f"{source}: {len(table)} rows")
    return 1000 * taken


def some_rows() -> None:
    """What an owner reads that takes 300 of 92,000 rows."""
    everything = mock.patch.multiple(
        RowFilter,
        conditions=property(lambda self: {}),
        passes_over=lambda self, start, num_rows, extent: False,
    )
    print(f"\n{OWN_RECORDS} of {OWNERS * OWN_RECORDS:,} rows: all read, what may count (ms)")
    with tempfile.TemporaryDirectory() as name:
        for title, source in write_many_owners(Path(name)).items():
            few, every = [], []
            for _ in range(TURNS):
                few.append(milliseconds(Path(name), source))
                with everything:
                    every.append(milliseconds(Path(name), source))
            print(f"{title:34}{median(every):10.1f}{median(few):10.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=250_000)
    parser.add_argument("--features", type=int, default=10)
    asked = parser.parse_args()
    size = asked.rows * asked.features * 8 / 2**20
    print(f"{asked.rows:,} x {asked.features}: features of {size:.0f} MiB in float64")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_table(folder / "t.parquet", asked.rows, asked.features)
        subprocess.run([sys.executable, "-c", MAP, name], check=True)
        print(f"{'':28}{'largest':>10}{'own':>10}{'mapped':>10}  MiB beyond imports")
        cases = [("held", "float64"), ("held", "float32")]
        cases += [("moments", "float64")]
        cases += [("far", "float64"), ("far, again", "float64"), ("far", "float32")]
        for mode, storage in cases:
            done = subprocess.run(
                [sys.executable, "-c", CASE, name, mode.split(",")[0], storage],
                check=True,
                capture_output=True,
                text=True,
            )
            largest, own, mapped, took = map(float, done.stdout.split())
            print(
                f"{mode + ', ' + storage:28}{largest:10.0f}{own:10.0f}{mapped:10.0f}  {took:.1f} s"
            )
    some_rows()


if __name__ == "__main__":
    main()
