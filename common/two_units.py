"""Whether a column's numbers are in two units, as shares beside percent, and what is asked."""

from __future__ import annotations

import numpy as np

from common.arrays import Vector
from common.looking import FEWEST_RECORDS, Column
from common.texts import number_words

# How many times as much a number in one unit is of the same in the other: years and months, days
# and hours, hours and minutes, shares and percent, units and thousands or millions.
FACTORS = (12, 24, 60, 100, 1000, 1_000_000)
# Each part has this share of the records, and so many different numbers.
SMALLEST_PART = 0.05
FEWEST_DIFFERENT = 10
# The upper part begins so many times as far from 0 as the lower one ends.
GAP = 1.5
# The quarters of one part are those of the other times the factor, but for this.
ALIKE = 1.3
_QUARTERS = (0.25, 0.5, 0.75)


def two_units_note(column: Column) -> str:
    """That its numbers may be in two units; empty where nothing looks so.

    They lie in two parts with nothing between, and one part is like the other times a factor of
    units. A code for missing, or an outlier, is not like the others.

    >>> rates = np.linspace(0.05, 0.25, 100)
    >>> note = two_units_note(Column("rate", "number", 200, 0, np.array([*rates, *100 * rates])))
    >>> note.partition("?")[0]
    '100 lie from 0.05 to 0.25 and 100 from 5 to 25, about 100 times as far: in two units'
    """
    parts = _parts(column)
    if parts is None:
        return ""
    low, high = (np.quantile(part, _QUARTERS) for part in parts)
    factor = min(FACTORS, key=lambda each: abs(float(np.log(high[1] / low[1] / each))))
    if np.any(np.abs(np.log(high / low / factor)) > np.log(ALIKE)):
        return ""
    lie, others = (
        f"{part.size:,} {lie}from {number_words(float(part[0]))} to {number_words(float(part[-1]))}"
        for part, lie in zip(parts, ("lie ", ""), strict=True)
    )
    return f"{lie} and {others}, about {factor:,} times as far: in two units? then write all in one"


def _parts(column: Column) -> tuple[Vector, Vector] | None:
    """The numbers below and above the widest gap, each sorted; None where there is none so wide."""
    if column.kind != "number" or column.is_code:
        return None
    known = np.sort(column.numbers[np.isfinite(column.numbers)])
    if known.size and known[0] < 0:
        return None
    known = known[known > 0]
    fewest = max(FEWEST_RECORDS, int(np.ceil(SMALLEST_PART * known.size)))
    if known.size < 2 * fewest:
        return None
    jumps = known[fewest : known.size - fewest + 1] / known[fewest - 1 : known.size - fewest]
    split = fewest + int(np.argmax(jumps))
    low, high = known[:split], known[split:]
    is_wide = jumps.max() >= GAP
    is_many = min(np.unique(low).size, np.unique(high).size) >= FEWEST_DIFFERENT
    return (low, high) if is_wide and is_many else None
