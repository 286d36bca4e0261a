"""Whether a column's numbers are in two units, as shares beside percent, and what is asked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from common.arrays import Indices, Vector
from common.looking import FEWEST_RECORDS, Column
from common.texts import first_few, number_words

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
# So many owners a sentence names.
NAMED = 3
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
    factor = _factor(*(np.quantile(part, _QUARTERS) for part in parts))
    if factor is None:
        return ""
    lie, others = (
        f"{part.size:,} {lie}from {number_words(float(part[0]))} to {number_words(float(part[-1]))}"
        for part, lie in zip(parts, ("lie ", ""), strict=True)
    )
    return f"{lie} and {others}, about {factor:,} times as far: in two units? then write all in one"


def unit_of_owners_note(column: Column, owners: Mapping[str, Indices]) -> str:
    """That some owners' numbers are in another unit; empty where nothing looks so.

    The quarters of theirs are those of the other owners times a factor of units, also where the
    two lie across each other, as days and hours do.

    Args:
      column: The column.
      owners: The rows of each owner.

    >>> days = np.geomspace(1, 90, 300)
    >>> numbers = np.array([*days, *days, *24 * days])
    >>> whose = {name: np.arange(300) + 300 * i for i, name in enumerate(("a", "b", "c"))}
    >>> unit_of_owners_note(Column("los", "number", 600, 0, numbers), whose).partition("?")[0]
    'the numbers of c are about 24 times those of the others: in another unit'
    """
    if column.kind != "number" or column.is_code:
        return ""
    its = {name: _quarters(column.numbers[rows]) for name, rows in owners.items()}
    quarters = {name: own for name, own in its.items() if own is not None}
    if len(quarters) < 2:
        return ""
    together, found = np.array([*quarters.values()]), dict[int, list[str]]()
    for place, (name, own) in enumerate(quarters.items()):
        factor = _factor(np.median(np.delete(together, place, axis=0), axis=0), own)
        if factor is not None:
            found.setdefault(factor, []).append(name)
    if not found:
        return ""
    factor, names = max(found.items(), key=lambda each: len(each[1]))
    return (
        f"the numbers of {first_few(names, NAMED)} are about {factor:,} times those of the others: "
        "in another unit? then write all in one"
    )


def _quarters(part: Vector) -> Vector | None:
    """The quarters of many different numbers above 0; None of any others."""
    known = part[np.isfinite(part)]
    if known.size < FEWEST_RECORDS or np.unique(known).size < FEWEST_DIFFERENT:
        return None
    found: Vector = np.quantile(known, _QUARTERS)
    return found if found[0] > 0 and known.min() >= 0 else None


def _factor(low: Vector, high: Vector) -> int | None:
    """The factor of units between the quarters of two parts; None where none is."""
    apart = np.log(high) - np.log(low)
    factor = min(FACTORS, key=lambda each: abs(float(apart[1] - np.log(each))))
    is_other = np.any(np.abs(apart - np.log(factor)) > np.log(ALIKE))
    return None if is_other else factor


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
