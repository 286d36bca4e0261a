"""Studies of many features: how long the decision and an owner's start take.

Run it:  python benchmarks/wide.py [--features 50 100 200] [--columns 10000]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import tick

RECORDS = 4_000
DECIDED = re.compile(r"planned .* \(([\d.]+) s\)")


def decision_seconds(num_features: int) -> float:
    """Seconds in which a study of three owners that leaves all open is decided."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        study = str(_study(folder, num_features))
        command = [sys.executable, "-m", "learner.cli", "simulate", study]
        told = subprocess.run(
            [*command, "--in-memory", "--yes", "--out", str(folder / "run")],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    found = DECIDED.search(told)
    if found is None:
        raise SystemExit("copriv simulate did not say how long its decision took")
    return float(found[1])


def _study(folder: Path, num_features: int) -> Path:
    """A table whose target depends on five of its columns; three quarters are three owners'."""
    rng = np.random.default_rng(0)
    columns = [f"x{i}" for i in range(num_features - 1)]
    table = pd.DataFrame(rng.normal(size=(RECORDS, num_features - 1)), columns=columns)
    table["y"] = table[columns[:5]].sum(axis=1) + rng.normal(size=RECORDS)
    table.to_parquet(folder / "table.parquet")
    size = RECORDS // 4
    owners = (
        f'[[owners]]\nname = "owner-{i}"\ndata = {{ rows = "{i * size}:{(i + 1) * size}" }}\n'
        for i in range(3)
    )
    study = folder / "study.toml"
    study.write_text(
        f"""name = "wide"
seed = 1
[data]
path = "table.parquet"
[features]
public = {{ rows = "-{size}:" }}
target = "y"
[model]
loss = "squared"
regularisation = 1e-3
theta_max = 2.0
[privacy]
epsilon = 10
{"".join(owners)}"""
    )
    return study


def start_seconds(num_columns: int) -> float:
    """Seconds until an owner of a table of this many columns serves."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        tick.make_shard(folder, num_columns)
        began = time.perf_counter()
        with tick.owner_process(folder, "owner-a", 1, num_columns, encrypted=False):
            return time.perf_counter() - began


def main() -> None:
    """Print each number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=int, nargs="*", default=[50, 100, 200])
    parser.add_argument("--columns", type=int, default=10_000)
    options = parser.parse_args()
    for num_features in options.features:
        print(f"{num_features} features: decided in {decision_seconds(num_features):.1f} s")
    print(f"{options.columns:,} columns: an owner starts in {start_seconds(options.columns):.1f} s")


if __name__ == "__main__":
    main()
