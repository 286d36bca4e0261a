"""Does the time of an enrolment, which reads all cells again, tell what one cell of them is?

Tables are the same but for one cell, which is far outside of its bounds, missing, nearly 0,
infinite, long, a text among numbers, another category, no date, or a code for missing. They are in
CSV, Parquet and SQLite files. Each is loaded as an owner loads it, and its records are made by
turns under maps that are new each time. Compared is the processor's time, which other work on the
machine disturbs little, by the rank test of Mann and Whitney.

It exits 1 if some table's median is above --limit times the plain one's, or as much below, and
chance alone makes such ranks in fewer than one of a thousand tests.

Usage: python tests/tools/time_enrolments.py [--records 2000] [--rounds 100] [--limit 1.02]
"""

import argparse
import random
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import mannwhitneyu

from common.features import FeatureMap
from owner.loading import load_to_serve
from owner.policy import OwnerSettings

NUMBERS = [f"x{j}" for j in range(6)]
ONE_IN = 1e-3
# The first ones find nothing in the caches.
WARM_UP = 3
# The table's column and what its cell is; a column of numbers of a Parquet file holds no text.
CELLS = {
    "an ordinary cell": ("x3", 0.5),
    "outside": ("x3", 1e300),
    "missing": ("x3", None),
    "nearly 0": ("x3", 5e-324),
    "infinite": ("x3", "inf"),
    "a text": ("x3", "abc"),
    "a decimal comma": ("x3", "1,5"),
    "900 digits": ("x3", "9" * 900),
    "5,000 letters": ("x3", "z" * 5000),
    "another category": ("kind", "violet"),
    "no category": ("kind", None),
    "a number for a category": ("kind", "7"),
    "no date": ("day", "abc"),
    "a day that is none": ("day", "2020-13-45"),
    "a zone": ("day", "2020-01-01T00:00:00+02:00"),
    "far away": ("day", "9999-12-31 00:00"),
    "no truth value": ("yes", None),
    "no whole number": ("count", None),
    "no target": ("y", None),
    "a text for a target": ("y", "abc"),
    "a code for missing": ("x3", 999.0),
    "one of a category": ("kind", "z" * 99 + "9"),
    "one of a date": ("day", "9999-12-31"),
    "one of a target": ("y", 999.0),
}
# As many as a map may have, and alike as far as can be; what a cell has comes last.
CODES = [*(str(code) for code in range(980, 999)), "999"]
TEXTS = [*("z" * 99 + letter for letter in "abcdefghijklmnopqrs"), "z" * 99 + "9"]
DAYS = [*(f"9999-11-{day}" for day in range(10, 29)), "9999-12-31"]


def plain_table(num_records):
    rng = np.random.default_rng(1)
    table = pd.DataFrame({name: rng.normal(size=num_records).round(6) for name in [*NUMBERS, "y"]})
    table["kind"] = rng.choice(["red", "green", "blue"], num_records)
    table["yes"] = rng.random(num_records) < 0.5
    table["count"] = rng.integers(1, 9, num_records)
    days = pd.Series(pd.date_range("2020-01-01", periods=num_records, freq="h"))
    table["day"] = days.dt.strftime("%Y-%m-%d %H:%M")
    table.loc[num_records // 2, "x3"] = 0.25
    return table


def with_cell(table, name, cell):
    changed = table.copy()
    if not isinstance(cell, float):
        changed[name] = changed[name].astype(object)
    changed.loc[len(changed) // 2, name] = cell
    return changed


def write_sqlite(table, file):
    """Columns without a type: each cell is stored as it is."""
    cells = table.astype(object).where(table.notna(), None)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(f"create table records ({', '.join(table.columns)})")
        places = ", ".join("?" * len(table.columns))
        database.executemany(
            f"insert into records values ({places})",
            cells.itertuples(index=False, name=None),
        )


def as_served(table, file):
    data = {"path": file.name}
    if file.suffix == ".csv":
        table.to_csv(file, index=False)
    elif file.suffix == ".parquet":
        table.to_parquet(file)
    else:
        write_sqlite(table, file)
        data["query"] = "select * from records"
    settings = OwnerSettings.model_validate(
        {
            "name": "a",
            "data": data,
            "policy": {"epsilon_per_study": "1", "epsilon_lifetime": "1"},
        }
    )
    return load_to_serve(settings, base=file.parent, pinned=None).table


def new_map(number):
    """One that no owner has seen: its bounds are a little larger each time."""
    usual = {"fill": 0.0, "low": -5.0, "high": 5.0, "center": 0.0, "scale": 1.0}
    number_rule = {"kind": "number", "missing": CODES} | usual
    columns = [{"name": name} | number_rule for name in NUMBERS]
    columns.append({"name": "yes", "kind": "number"} | usual)
    day_rule = {"kind": "date", "missing": DAYS} | usual | {"low": 0.0, "high": 3e4}
    columns.append({"name": "day"} | day_rule)
    counts = {str(count): count / 9 for count in range(1, 9)}
    columns.append({"name": "count", "kind": "category", "codes": counts} | usual)
    codes = {"red": 1.0, "green": 2.0, "blue": 3.0}
    kind_rule = {"kind": "category", "codes": codes, "missing": TEXTS} | usual
    columns.append({"name": "kind"} | kind_rule)
    return FeatureMap.model_validate(
        {
            "source": "public.csv",
            "num_public_records": 9,
            "intercept": False,
            "bounds": [5.0 + 1e-9 * number] * len(columns),
            "columns": columns,
            "target": {"name": "y", "bound": 5.0, "fill": 0.0, "missing": CODES},
        }
    )


def times(tables, rounds):
    """Milliseconds of the processor, of each table; in another order each time."""
    took = {name: [] for name in tables}
    for number in range(rounds + WARM_UP):
        feature_map = new_map(number)
        for name in random.sample(list(tables), len(tables)):
            began = time.process_time()
            tables[name].shard(feature_map)
            took[name].append(1e3 * (time.process_time() - began))
    return {name: ms[WARM_UP:] for name, ms in took.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--limit", type=float, default=1.02)
    arguments = parser.parse_args()
    plain, told = plain_table(arguments.records), 0
    for suffix in (".csv", ".parquet", ".sqlite"):
        with tempfile.TemporaryDirectory() as folder:
            tables = {"plain": as_served(plain, Path(folder) / f"plain{suffix}")}
            for count, (words, (name, cell)) in enumerate(CELLS.items()):
                if suffix != ".parquet" or not (isinstance(cell, str) and name in {"x3", "y"}):
                    file = Path(folder) / f"{count}{suffix}"
                    tables[words] = as_served(with_cell(plain, name, cell), file)
            took = times(tables, arguments.rounds)
        usual = float(np.median(took["plain"]))
        for words, ms in took.items():
            ratio = float(np.median(ms)) / usual
            chance = float(mannwhitneyu(ms, took["plain"]).pvalue)
            tells = max(ratio, 1 / ratio) > arguments.limit and chance < ONE_IN
            told += tells
            print(
                f"{suffix:9}{words:25}{1e3 * usual * (ratio - 1):+8.1f} us of {usual:.2f} ms, "
                f"p = {chance:.2g}{'  TELLS' * tells}"
            )
    sys.exit(1 if told else 0)


if __name__ == "__main__":
    main()
