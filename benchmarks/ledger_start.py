"""How soon does an owner serve again whose ledger has a gigabyte of history?

Run it:  python benchmarks/ledger_start.py [--bytes 1000000000] [--starts 3]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import tomli_w

RESPONSES = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=10**9)
    parser.add_argument("--starts", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_owner(folder)
        start(folder)
        ledger = folder / "ledger.sqlite"
        fill(ledger, options.bytes)
        for cold in (False, True):
            seconds = []
            for _ in range(options.starts):
                if cold:
                    drop_cache(ledger)
                seconds.append(start(folder))
            kind = "file not cached" if cold else "file cached"
            print(
                f"ledger of {ledger.stat().st_size / 1e9:.2f} GB, {kind}: ready after "
                f"{statistics.median(seconds):.2f} s (median of {options.starts}, "
                f"longest {max(seconds):.2f} s)"
            )


def write_owner(folder: Path) -> None:
    rng = np.random.default_rng(1)
    pd.DataFrame(rng.normal(size=(1000, 4)), columns=list("abcy")).to_parquet(folder / "s.parquet")
    settings = {
        "name": "historic",
        "data": {"path": "s.parquet", "columns": list("abcy")},
        "policy": {"epsilon_per_study": "1", "epsilon_lifetime": "1000000"},
    }
    (folder / "owner.toml").write_text(tomli_w.dumps(settings))


def start(folder: Path) -> float:
    """Seconds from the start of the process until it serves; then it is stopped."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "owner.cli", "serve", folder / "owner.toml"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101
    line = process.stdout.readline()
    seconds = time.monotonic() - began
    process.terminate()
    process.communicate()
    if not line.startswith("serving"):
        raise SystemExit("the owner did not start")
    return seconds


def fill(ledger: Path, size: int) -> None:
    """Add finished studies, as a life of serving leaves them, until the file is so large."""
    with contextlib.closing(sqlite3.connect(ledger, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        study = 0
        while ledger.stat().st_size < size:
            study += 1
            name, now = f"study-{study:06}", "2026-01-01T00:00:00.000+00:00"
            digests = [hashlib.sha256(f"{study}-{k}".encode()).hexdigest() for k in range(997)]
            db.execute("BEGIN")
            db.execute(
                "INSERT INTO studies VALUES (?, 'learner', '1', 1.0, 0, ?, '{}')", (name, now)
            )
            db.execute(
                "INSERT INTO accounts VALUES (?, ?, ?, ?, ?, ?)",
                (name, RESPONSES, RESPONSES, now, digests[0], bytes(800)),
            )
            db.executemany(
                "INSERT INTO charges VALUES (?, ?, ?, ?)",
                ((name, k + 1, digests[k % 997], now) for k in range(RESPONSES)),
            )
            db.execute("COMMIT")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def drop_cache(path: Path) -> None:
    """Forget this file's pages, as after a restart of the machine."""
    os.sync()
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()
