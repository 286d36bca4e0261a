"""What the columns of a raw table look like, before anything is made of them.

For the holder of the table: nothing of this may be shown to anybody else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from common.arrays import Vector
from common.columns import category_keys, parse_months, parse_numbers

__all__ = ["Column", "Look", "look_at", "same_partition", "tells_target"]

# So much of a column must read as numbers or dates for it to be one.
READABLE = 0.95
# A column with so large a share of different values names records.
IDENTIFYING = 0.9
FEWEST_RECORDS = 20
FREE_TEXT = 1000
# So often each value stands in a column that says something of groups.
REPEATED = 10
# A column that explains so much of the target's variance says what the target is.
TELLING = 0.95
# Values beyond so many deviations of the middle are far out.
FAR_OUT = 12.0
_CODE_NAME = re.compile(r"(?:^|[^a-z])(?:id|code|codes|number|nr|no|key|zip)(?:$|[^a-z])", re.ASCII)


@dataclass(frozen=True)
class Column:
    """One column.

    Args:
      name: Its name.
      kind: "number", "date", "category", "text" for free text, or "empty".
      distinct: How many different values it has.
      missing: How many cells have no value.
      numbers: Its numbers or months, shape (n,), NaN elsewhere; of categories their positions.
    """

    name: str
    kind: str
    distinct: int
    missing: int
    numbers: Vector

    @property
    def count(self) -> int:
        """How many cells have a value."""
        return len(self.numbers) - self.missing

    @property
    def is_constant(self) -> bool:
        """Whether it says the same of every record."""
        return self.distinct < 2

    @property
    def is_identifier(self) -> bool:
        """Whether it names records: nearly all values differ, and they are names or counted."""
        if self.kind == "date" or self.count < FEWEST_RECORDS:
            return False
        differing = self.distinct >= IDENTIFYING * self.count
        return differing and (self.kind != "number" or self.is_whole)

    @property
    def is_whole(self) -> bool:
        """Whether all its numbers are whole."""
        known = self.numbers[np.isfinite(self.numbers)]
        return bool(known.size) and bool(np.all(known == np.round(known)))

    @property
    def is_code(self) -> bool:
        """Whether its numbers are names: whole, and called so."""
        called = _CODE_NAME.search(self.name.lower().replace("_", " ")) is not None
        return self.kind == "number" and self.is_whole and called

    @property
    def has_heavy_tails(self) -> bool:
        """Whether a few numbers are so far out that the rest would be squeezed."""
        known = self.numbers[np.isfinite(self.numbers)]
        if self.kind != "number" or known.size < FEWEST_RECORDS:
            return False
        low, high = np.quantile(known, [0.25, 0.75])
        spread = high - low if high > low else np.std(known)
        middle = np.median(known)
        return bool(spread > 0 and np.max(np.abs(known - middle)) > FAR_OUT * spread)


@dataclass(frozen=True)
class Look:
    """All columns of a table.

    Args:
      columns: By name.
      num_records: How many rows there are.
    """

    columns: dict[str, Column]
    num_records: int

    def candidates_for_owners(self) -> list[str]:
        """Columns that may say whose a record is: some categories, each of many records."""
        return [
            column.name
            for column in self.columns.values()
            if column.kind in {"category", "number"}
            and 2 <= column.distinct <= 200
            and not column.missing
            and (column.kind == "category" or column.is_code)
        ]


def look_at(table: pd.DataFrame) -> Look:
    """What the columns of a table look like."""
    columns = {str(name): _column(str(name), cells) for name, cells in table.items()}
    return Look(columns, len(table))


def _column(name: str, cells: pd.Series) -> Column:
    positions, keys = category_keys(cells)
    names = {key: i for i, key in enumerate(dict.fromkeys(k for k in keys if k is not None))}
    codes = np.array([*(np.nan if k is None else float(names[k]) for k in keys), np.nan])
    coded = codes[positions]
    present = ~np.isnan(coded)
    missing, distinct = int(np.count_nonzero(~present)), len(names)
    if not present.any():
        return Column(name, "empty", 0, missing, coded)
    for kind, parse in (("number", parse_numbers), ("date", parse_months)):
        parsed = parse(cells)
        if np.mean(~np.isnan(parsed[present])) >= READABLE:
            return Column(name, kind, distinct, missing, parsed)
    return Column(name, "text" if distinct > FREE_TEXT else "category", distinct, missing, coded)


def tells_target(column: Column, target: Vector) -> float:
    """Share of the target's variance that a column explains by itself: 1 tells it exactly.

    Numbers by a straight line, categories of many records by their means.
    """
    known = np.isfinite(column.numbers) & np.isfinite(target)
    x, y = column.numbers[known], target[known]
    total = float(np.var(y)) if y.size else 0.0
    if y.size < FEWEST_RECORDS or not total > 0:
        return 0.0
    if column.kind in {"number", "date"}:
        spread = float(np.std(x))
        if not spread > 0:
            return 0.0
        return float(np.mean((x - x.mean()) * (y - y.mean())) ** 2 / (spread**2 * total))
    if column.distinct > y.size / FEWEST_RECORDS:
        return 0.0
    means = pd.Series(y).groupby(x).transform("mean").to_numpy()
    return float(np.var(means) / total)


def same_partition(columns: Sequence[Column]) -> dict[str, str]:
    """Columns that say the same as an earlier one under other names, such as a code's text."""
    seen: dict[bytes, str] = {}
    same: dict[str, str] = {}
    for column in columns:
        # Values that hardly repeat divide any table alike.
        if column.distinct * REPEATED > column.count:
            continue
        codes = pd.factorize(pd.Series(column.numbers), use_na_sentinel=True)[0]
        mark = codes.astype("<i8").tobytes()
        if mark in seen:
            same[column.name] = seen[mark]
        else:
            seen[mark] = column.name
    return same
