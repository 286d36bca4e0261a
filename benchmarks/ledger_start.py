"""How soon does an owner serve again whose ledger has a gigabyte of history?

Run it:  python benchmarks/ledger_start.py [--bytes 1000000000] [--starts 3]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import tomli_w

from common.terms import StudyTerms
from owner.ledger_ahead import charge_next
from owner.ledger_rows import terms_to_text, text_digest
from owner.ledger_tables import (
    AccountRow,
    StudyRow,
    charge_record,
    insert_account,
    insert_study,
    insert_text,
)

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
        before, number = b"", 0
        while ledger.stat().st_size < size:
            number += 1
            terms = StudyTerms(
                study_id=f"study-{number:06}",
                loss="squared",
                theta_max=1.0,
                feature_map="{}",
                horizon=RESPONSES,
                responses=RESPONSES,
                epsilon=Fraction(1),
            )
            db.execute("BEGIN")
            before = add_study(db, number, terms, before)
            db.execute("COMMIT")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def add_study(db: sqlite3.Connection, number: int, terms: StudyTerms, before: bytes) -> bytes:
    """Add one finished study; returns its row's checksum."""
    text, now = terms_to_text(terms), "2026-01-01T00:00:00.000+00:00"
    digests = (text_digest(text), text_digest(terms.feature_map))
    row = StudyRow(number, terms.study_id, "learner", "1", 1.0, 0, now, *digests)
    checksum = insert_study(db, row, before)
    account = AccountRow(number, terms.responses)
    for sequence in range(terms.responses):
        record = charge_record(text_digest(f"{number} {sequence}"), 1_700_000_000_000 + sequence)
        account, _ = charge_next(db, account, record, bytes(800), count=1)
    insert_account(db, account._replace(closed=now), checksum)
    for kept in (text, terms.feature_map):
        insert_text(db, kept)
    return checksum


def drop_cache(path: Path) -> None:
    """Forget this file's pages, as after a restart of the machine."""
    os.sync()
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    main()
