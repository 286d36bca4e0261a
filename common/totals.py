"""Rows of a raw table that are no records but the sums of those above them.

For the holder of the table: nothing of this may be shown to anybody else.
"""

from __future__ import annotations

import numpy as np

from common.errors import InputError
from common.looking import FEWEST_RECORDS, Column, Look

# Cells are rounded, and some rows may occur twice, so their sum is not quite the one written.
ROUNDED = 1e-3
# A cell that is empty where at most this many are says that the row is no record.
MOST_EMPTY = 0.5


def refuse_totals(look: Look, *, where: str) -> None:
    """Refuse a table that has a row of totals: one such number outweighs all records.

    Args:
      look: Its columns.
      where: What the table is called.

    Raises:
      InputError: A number far out is the sum of those above it, and its row lacks another value or
        has another such sum.
    """
    columns = look.columns.values()
    sums = {column.name: _sums(column) for column in columns}
    for column in columns:
        for place in sums[column.name]:
            others = [other for other in columns if other is not column]
            if any(_lacks(other, place) or place in sums[other.name] for other in others):
                raise InputError(
                    f"{where}: row {place + 1:,} below the header is not a record: its "
                    f"{column.shown}, {column.numbers[place]:,.10g}, is the sum of those above "
                    "it; remove rows of totals"
                )


def _sums(column: Column) -> list[int]:
    """The places of outliers that are sums of many above them, all since another or not.

    >>> _sums(Column("days", "number", 3, 0, np.array([*[3.0, 4.0] * 20, 140.0])))
    [40]
    """
    numbers = np.nan_to_num(column.numbers, posinf=0.0, neginf=0.0)
    far = set(column.far_out.tolist())
    found: list[int] = []
    if not far or np.any(numbers < 0):
        return found
    above, counts = np.cumsum(numbers), np.cumsum(numbers > 0)
    since, few, totals = 0.0, 0, 0.0
    for place in np.flatnonzero(np.isin(numbers, list(far))):
        number = numbers[place]
        before = above[place] - number - totals
        many = counts[place] - few > FEWEST_RECORDS
        if many and any(abs(number - s) <= ROUNDED * number for s in (before, before - since)):
            found.append(int(place))
            totals += number
            since, few = before, counts[place]
    return found


def _lacks(column: Column, place: int) -> bool:
    """Whether a row has no value that can be read in a column where most rows have one."""
    gaps = np.isnan(column.numbers)
    return bool(gaps[place]) and float(np.mean(gaps)) <= MOST_EMPTY
