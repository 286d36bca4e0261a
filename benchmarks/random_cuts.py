"""How the ways of learning do on studies that nobody chose.

    .venv/bin/python benchmarks/random_cuts.py DATA --out docs/results.md

Each study takes one of the record files of ``families.FILES`` and draws a target, features, owners
and public records. Its rows are *shuffled*, so that owners are like the public records; or
*ordered* by a column that is no feature, so that the public records lie at one end and owners have
drifted away from them. A quarter have classes (the target above its median) and logistic loss. Or
it has *few* public records of classes, in random order.
"""

from __future__ import annotations

import argparse
import os
from functools import cache
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import tables
from families import FILES
from record_cases import Case, case_of
from results import EPSILONS, WAYS, family_rows
from tables import Measured, Run

from common.errors import InputError
from learner.reproduction.documents import replace_section

KINDS = ("shuffled", "ordered", "few")
ROWS = ("public", *WAYS)
FEATURES, OWNERS, RECORDS = (2, 12), (2, 12), (4_000, 60_000)
# Public records from and to, and the share of studies that have classes, of each kind.
PUBLIC = {"shuffled": (300, 5_000), "ordered": (300, 5_000), "few": (60, 500)}
CLASSES = {"shuffled": 0.25, "ordered": 0.25, "few": 1.0}
# What a column needs: few gaps, and values enough for a target or an order, or few for a category.
FILLED, MANY, CATEGORIES = 0.9, 20, 30
# Features that are the target in other words make the best fitness next to nothing.
SAME = 0.95
TEXT = """\
## Studies that nobody chose

Printed by `.venv/bin/python benchmarks/random_cuts.py DATA --studies {studies} --seeds {seeds}
--out docs/results.md`: {studies} studies of each kind, whose table, target, features, owners and
public records are drawn at random, at each epsilon. *Shuffled*: owners are like the public records.
*Ordered* by a column that is no feature: the public records lie at one end, and the owners have
drifted away from them, often far. *Few*: shuffled, with classes and 60 to 500 public records. The
columns are those of the table of all families above. A single run varies by half of its mean and
more, so that of two ways that are level one is often 1.25 times worse in a mean of ten seeds.
"""


@cache
def table_of(path: Path) -> pd.DataFrame:
    """A file's columns that have few gaps; dates as numbers."""
    table = pd.read_parquet(path)
    for name in table.columns:
        if "date" in str(table[name].dtype):
            table[name] = table[name].astype("int64")
    return table.loc[:, table.notna().mean() >= FILLED]


def drawn(data: Path, kind: str, rng: np.random.Generator) -> Case:
    """A study of a kind."""
    name = rng.choice(list(FILES))
    whole = table_of(data / FILES[name])
    distinct = whole.nunique().to_dict()
    # A number of its own for each row is a name.
    numbers = [str(c) for c in whole.select_dtypes("number") if MANY <= distinct[c] < len(whole)]
    if len(numbers) < 2:
        raise InputError(f"{name} has fewer than two columns of many numbers")
    target, order = rng.permutation(numbers)[:2]
    table = whole.dropna(subset=[target, order])
    table = table.iloc[rng.permutation(len(table))]
    owners, count, public = (
        int(np.exp(rng.uniform(*np.log(limits)))) for limits in (OWNERS, RECORDS, PUBLIC[kind])
    )
    table = table.iloc[:count]
    same = table.select_dtypes("number").corrwith(table[target]).abs()
    usable = [
        c
        for c in whole.columns
        if c not in (target, order)
        and (c in numbers or 1 < distinct[c] <= CATEGORIES)
        and not same.get(c, 0.0) > SAME
    ]
    columns = rng.permutation(usable)[: int(rng.integers(*FEATURES, endpoint=True))]
    if kind == "ordered":
        table = table.sort_values(order, ascending=bool(rng.integers(2)), kind="stable")
    public = min(public, len(table) // 4)
    is_classes = rng.random() < CLASSES[kind]
    features = {"target": target, "columns": tuple(sorted(columns))}
    if is_classes:
        table = table.assign(**{target: (table[target] > table[target].median()).astype(int)})
        features["positive"] = 1
    parts = np.array_split(np.arange(public, len(table)), owners)
    return case_of(
        f"{kind}: {target} of {name} by {order}",
        table.iloc[:public],
        [table.iloc[rows] for rows in parts],
        features,
        loss="logistic" if is_classes else "squared",
    )


def measured(asked: argparse.Namespace, kind: str) -> dict[str, Measured]:
    """What the ways reach on studies of a kind; what no map can be made for is drawn anew."""
    rows = {name: row for name, row in family_rows(None).items() if name in ROWS}
    rng, found = np.random.default_rng([asked.seed, KINDS.index(kind)]), dict[str, Measured]()
    for tried in range(4 * asked.studies):
        if len(found) == asked.studies:
            break
        try:
            case = drawn(asked.data, kind, rng)
            found[f"{tried}"] = tables.measure(case, rows, EPSILONS, Run(asked.seeds, asked.jobs))
        except InputError as error:
            print(f"left out: {error}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of the record files")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--studies", type=int, default=20, help="studies of each kind")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a document with a section random-cuts")
    asked = parser.parse_args()
    lines = [TEXT.format(studies=asked.studies, seeds=asked.seeds)]
    for kind in asked.kinds:
        summed = tables.summary(measured(asked, kind), tuple(WAYS), EPSILONS)
        lines += [f"### {kind.capitalize()} studies", "", *summed]
    print("\n".join(lines))
    if asked.out:
        replace_section(asked.out, "random-cuts", "\n".join(lines))


if __name__ == "__main__":
    main()
