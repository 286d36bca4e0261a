"""What an owner's records take of its memory, held and left where they are.

Each case is a process of its own that loads a Parquet table, makes the shard of a feature map and
answers one gradient query and one of moments. It prints its largest resident size beyond that of a
process that has only imported the same modules, beside the size of the float64 features, and what
of it can be dropped by the system at any time because it is mapped from a file.

Usage: python benchmarks/big_shards.py [--rows 250000] [--features 10]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CASE = """
import os, resource, sys, time
from pathlib import Path
import numpy as np
from common.config import check_settings
from common.features import FeatureMap, FeatureSettings
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
    shard = served.table.shard(pinned)
    shard.gram
    theta = np.zeros(shard.num_features)
    mean_gradient(shard, theta, loss=LOSSES["squared"](), clip=1.0)
after = pages()
print(after[0] - before[0], after[1] - before[1], after[2] - before[2], time.perf_counter() - start)
"""

MAP = """
import sys
from pathlib import Path
from common.features import FeatureSettings
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


if __name__ == "__main__":
    main()
