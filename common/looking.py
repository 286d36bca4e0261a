"""What the columns of a raw table look like, before anything is made of them.

For the holder of the table: nothing of this may be shown to anybody else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from common.arrays import Vector
from common.columns import category_keys
from common.fitting import MOST_CATEGORIES, READABLE_SHARE, is_free_text, read_as_numbers

__all__ = ["Column", "Look", "look_at", "same_partition", "tells_target"]

# A column with so large a share of different values names records.
IDENTIFYING = 0.9
FEWEST_RECORDS = 20
# So often each value stands in a column that says something of groups.
REPEATED = 10
# A column that explains so much of the target's variance says what the target is.
TELLING = 0.95
# Values beyond so many deviations of the middle are far out.
FAR_OUT = 12.0
MONTHS = 12
_CODE_NAME = re.compile(
    r"(?<![a-z])(?:id|code|codes|number|nr|no|key|zip)(?![a-z])",
    re.ASCII,
)
_RECORD_NAME = re.compile(
    r"(?<![a-z])(?:ids?|uid|uuid|nr|no|num|number|nummer|key|code|serial|index|row|ssn|mrn|account|"
    r"iban|phone)(?![a-z])",
    re.ASCII,
)
_CAPITAL_WITHIN = re.compile(r"(?<=[a-z])(?=[A-Z])", re.ASCII)
# Dates as they are written by hand: day and month, in whatever order, and the year.
_DAY_MONTH_YEAR = re.compile(
    r"(?P<first>[0-9]{1,2})(?P<mark>[./-])(?P<second>[0-9]{1,2})(?P=mark)(?:[0-9]{2}){1,2}(?: .*)?",
    re.ASCII,
)


@dataclass(frozen=True)
class Column:
    """One column.

    Args:
      name: Its name.
      kind: "number", "date", "category", "text" for free text, or "empty".
      distinct: How many different values it has.
      missing: How many cells have no value.
      numbers: Its numbers or months, shape (n,), NaN elsewhere; of categories their positions.
      unsure_date: One of its cells that is or may be another date than is read; empty for none.
    """

    name: str
    kind: str
    distinct: int
    missing: int
    numbers: Vector
    unsure_date: str = ""

    @property
    def count(self) -> int:
        """How many cells have a value."""
        return len(self.numbers) - self.missing

    @property
    def is_constant(self) -> bool:
        """Whether it says the same of every record."""
        return self.distinct < 2

    @property
    def hardly_repeats(self) -> bool:
        """Whether nearly all of its values differ."""
        return self.count >= FEWEST_RECORDS and self.distinct >= IDENTIFYING * self.count

    @property
    def is_identifier(self) -> bool:
        """Whether it names records: nearly all values differ, and they are names or counted.

        Whole numbers may as well be amounts of money: they name records where the column is called
        so, or where they count.
        """
        if self.kind == "date" or not self.hardly_repeats:
            return False
        named = _is_called(self.name, _RECORD_NAME)
        return self.kind != "number" or (self.is_whole and (named or self._counts))

    @property
    def _counts(self) -> bool:
        """Whether its numbers are those between the smallest and the largest, hardly one left."""
        known = self.numbers[np.isfinite(self.numbers)]
        return bool(np.ptp(known) + 1 <= self.distinct / IDENTIFYING)

    @property
    def is_whole(self) -> bool:
        """Whether all its numbers are whole."""
        known = self.numbers[np.isfinite(self.numbers)]
        return bool(known.size) and bool(np.all(known == np.round(known)))

    @property
    def is_code(self) -> bool:
        """Whether its numbers are names: whole, and called so."""
        return self.kind == "number" and self.is_whole and _is_called(self.name, _CODE_NAME)

    @cached_property
    def far_out(self) -> Vector:
        """The numbers that are so far out that the rest would be squeezed, shape (k,)."""
        known = self.numbers[np.isfinite(self.numbers)]
        if self.kind != "number" or known.size < FEWEST_RECORDS:
            return np.empty(0)
        low, high = np.quantile(known, [0.25, 0.75])
        spread = high - low if high > low else np.std(known)
        far = np.abs(known - np.median(known)) > FAR_OUT * spread
        return known[far & (spread > 0)]

    @property
    def repeated_far_out(self) -> str:
        """Which number far out stands again and again, as a question; empty for none."""
        values, counts = np.unique(self.far_out, return_counts=True)
        if not counts.size or counts.max() < REPEATED:
            return ""
        most = int(np.argmax(counts))
        return (
            f"{values[most]:g} stands {counts[most]:,} times: a code for missing? then leave these "
            "cells empty"
        )


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
    unsure = _unsure_date([key for key in keys if key is not None])
    read = read_as_numbers(cells, present, shares=False)
    if read is not None:
        return Column(name, read[0], distinct, missing, read[1], unsure)
    kind = "text" if is_free_text(keys, MOST_CATEGORIES) else "category"
    return Column(name, kind, distinct, missing, coded, unsure)


def _unsure_date(keys: Sequence[str]) -> str:
    """One of a column's values that is or may be a date of day, month and year; empty for none.

    Dates between strokes are read as month/day/year: a day above 12 shows that they are.

    >>> _unsure_date(["01/07/2020"]), _unsure_date(["01/07/2020", "01/28/2020"])
    ('01/07/2020', '')
    >>> _unsure_date(["01/07/2020", "28/07/2020"]), _unsure_date(["23.06.2018"])
    ('28/07/2020', '23.06.2018')
    """
    found = [match for key in keys if (match := _DAY_MONTH_YEAR.fullmatch(key))]
    if len(found) < READABLE_SHARE * len(keys) or not found:
        return ""
    days_first = [match for match in found if int(match["first"]) > MONTHS]
    is_clear = not days_first and any(
        match["mark"] == "/" and int(match["second"]) > MONTHS for match in found
    )
    return "" if is_clear else (days_first or found)[0].string


def _is_called(name: str, words: re.Pattern[str]) -> bool:
    """Whether one of the words of a column's name is among these.

    >>> _is_called("customerId", _CODE_NAME), _is_called("PAID", _CODE_NAME)
    (True, False)
    """
    apart = _CAPITAL_WITHIN.sub(" ", name).lower().replace("_", " ")
    return words.search(apart) is not None


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
