"""What the columns of a raw table look like, before anything is made of them.

For the holder of the table: nothing of this may be shown to anybody else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from common import column_names as called
from common.arrays import Indices, Vector
from common.cells import distinct_texts, holds_several
from common.columns import (
    category_keys,
    parse_month,
    parse_months,
    parse_number,
    parse_numbers,
)
from common.date_marks import unsure_date
from common.fitting import MOST_CATEGORIES, is_free_text, read_as_numbers
from common.number_marks import MOSTLY, has_decimal_commas, unread_number
from common.suggestions import spelt_alike
from common.texts import brief

PLAINLY = "if they are amounts, write them plainly and in one unit, such as -1234"

# A column with so large a share of different values names records.
IDENTIFYING = 0.9
FEWEST_RECORDS = 20
# So often each value stands in a column that says something of groups, and a code for missing.
REPEATED = 10
# Numbers that are names lie so far from each other on average.
APART = 5
LARGEST_WHOLE = 2.0**53
# So few whole numbers may stand for kinds.
FEW = range(3, 11)
# A column of fewer different numbers has no gap that says anything.
DIFFERENT = 3
_PADDED = re.compile(r"0[0-9]+", re.ASCII)
# Less than a number, more than it, or it and more.
_BOUND = re.compile(r"^[<>]|(?<=[0-9]) ?\+", re.ASCII)
# Values beyond this many deviations of the middle are outliers.
FAR_OUT = 12.0


@dataclass(frozen=True)
class Column:
    """One column.

    Args:
      name: Its name.
      kind: "number", "date", "category", "text" for free text, or "empty" of values to read.
      distinct: How many different values it has.
      missing: How many cells have no value.
      numbers: Its numbers or months, shape (n,), NaN elsewhere; of categories their positions.
      unsure_date: One of its cells that is or may be another date than is read; empty for none.
      comma_number: One of its cells where these are numbers with a decimal comma, which are read
        as names; empty for none.
      unread_number: One of its cells where these are numbers in a form that is not read, such as
        beside a unit; empty for none.
      odd_one: Of names that mostly are numbers or dates the most frequent other; empty for none.
      spelt_alike: Categories that differ in nothing but how they are spelt, in groups.
      padded: One of its numbers that begins with 0, as codes do; empty for none.
      bounds: What its cells that only bound a number count as, in words; empty for none.
      dates: Of dates, which value each cell is, shape (n,), NaN for none: times of a day differ.
      is_nested: Whether it is empty since its cells hold several values each, as lists do.
    """

    name: str
    kind: str
    distinct: int
    missing: int
    numbers: Vector
    unsure_date: str = ""
    comma_number: str = ""
    unread_number: str = ""
    odd_one: str = ""
    spelt_alike: tuple[tuple[str, ...], ...] = ()
    padded: str = ""
    bounds: str = ""
    dates: Vector | None = None
    is_nested: bool = False

    @property
    def shown(self) -> str:
        """Its name as sentences have it; one of blanks in quotes."""
        return brief(self.name if self.name.strip() else repr(self.name))

    @property
    def kind_shown(self) -> str:
        """Its kind as a list of columns has it."""
        return "nested" if self.is_nested else self.kind

    @property
    def empty_words(self) -> str:
        """What a sentence says of a column that is empty."""
        if self.is_nested:
            return "its cells hold several values each; give these columns of their own"
        return "it has no values that can be read"

    @property
    def count(self) -> int:
        """How many cells have a value."""
        return len(self.numbers) - self.missing

    @property
    def unread(self) -> int:
        """How many cells of a column of numbers or dates have another value, which is a gap."""
        if self.kind not in {"number", "date"}:
            return 0
        return int(np.count_nonzero(np.isnan(self.numbers))) - self.missing

    @property
    def infinite_words(self) -> str:
        """What a sentence says of infinite numbers; empty where there are none."""
        infinite = int(np.count_nonzero(np.isinf(self.numbers)))
        counts = f"infinite numbers: {infinite:,}; they count as the nearest public bound: leave "
        return f"{counts}their cells empty if they say that there is none" if infinite else ""

    @property
    def has_times(self) -> bool:
        """Whether dates of one day differ, as those with a time of the day do."""
        days = np.unique(self.numbers[np.isfinite(self.numbers)]).size
        return self.kind == "date" and self.distinct > days + self.unread

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
        named = called.is_called(self.name, called.RECORD)
        return self.kind != "number" or (self.is_whole and (named or self._counts))

    @cached_property
    def most_of_a_person(self) -> int:
        """How many records share a value at most, where values may name persons; else 0."""
        is_person = self.distinct >= FEWEST_RECORDS and called.is_called(self.name, called.PERSON)
        is_numbered = called.is_called(self.name, called.PERSONS_NUMBER)
        is_named = is_person or (is_numbered and self.names_few)
        if not is_named or self.kind in {"date", "empty"} or self.distinct >= self.count:
            return 0
        known = self.numbers[np.isfinite(self.numbers)]
        return int(np.unique(known, return_counts=True)[1].max(initial=0))

    @property
    def names_few(self) -> bool:
        """Whether a value stands for few records on average."""
        return self.distinct * REPEATED > self.count

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
    def may_be_kinds(self) -> bool:
        """Whether its numbers are whole and so few that they may stand for kinds."""
        return self.kind == "number" and self.is_whole and self.distinct in FEW

    @property
    def reads_unsure_date(self) -> bool:
        """Whether the date that may be meant otherwise is read at all."""
        return self.kind == "date" and not math.isnan(parse_month(self.unsure_date))

    @property
    def unread_words(self) -> str:
        """What a sentence says of numbers in a form that is not read."""
        return f"its numbers have a form that is not read ({self.unread_number})"

    @property
    def odd_words(self) -> str:
        """What a sentence says of names among numbers or dates."""
        return (
            f"most of its values are numbers or dates, but others such as {self.odd_one!r} are not"
        )

    @property
    def is_code(self) -> bool:
        """Whether its numbers are names: whole, and called so."""
        return self.kind == "number" and self.is_whole and called.is_called(self.name, called.CODE)

    @cached_property
    def far_out(self) -> Vector:
        """The numbers that are so far out that the rest would be squeezed, shape (k,)."""
        known = self.numbers[np.isfinite(self.numbers)]
        # Of two numbers, such as a rare yes among noes, neither is far from others.
        if self.kind != "number" or known.size < FEWEST_RECORDS or self.distinct < DIFFERENT:
            return np.empty(0)
        far: Vector = known[within_reach(known) != known]
        return far

    @cached_property
    def looks_coded(self) -> bool:
        """Whether its numbers look like names: whole, often repeated, and far from each other.

        Amounts that repeat are round: all of them multiples of 5, or 100.
        """
        if self.kind != "number" or not self.is_whole:
            return False
        if not FEWEST_RECORDS <= self.distinct <= self.count / REPEATED:
            return False
        steps = np.diff(np.unique(self.numbers[np.isfinite(self.numbers)]))
        if steps.sum() > LARGEST_WHOLE or np.mean(steps) < APART:
            return False
        return bool(np.gcd.reduce(steps.astype(np.int64)) == 1)

    @property
    def measures(self) -> bool:
        """Whether its numbers are amounts, or dates, and surely no names."""
        if self.kind not in {"number", "date"} or self.is_constant:
            return False
        return not (self.is_whole and (self.is_code or self.looks_coded or self._counts))


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


def within_reach(numbers: Vector) -> Vector:
    """Numbers that are far out moved to where that begins, shape (n,); all must be finite.

    >>> within_reach(np.array([1.0, 2.0, 3.0, 4.0, 900.0]))
    array([ 1.,  2.,  3.,  4., 27.])
    """
    low, high = np.quantile(numbers, [0.25, 0.75])
    middle, reach = np.median(numbers), FAR_OUT * (high - low if high > low else np.std(numbers))
    return np.clip(numbers, middle - reach, middle + reach) if reach > 0 else numbers


def look_at(table: pd.DataFrame) -> Look:
    """What the columns of a table look like."""
    columns = {str(name): _column(str(name), cells) for name, cells in table.items()}
    return Look(columns, len(table))


def _column(name: str, cells: pd.Series) -> Column:
    positions, keys = category_keys(cells)
    present = positions >= 0
    coded = np.where(present, positions, np.nan)
    missing, distinct = int(np.count_nonzero(~present)), len(keys)
    if not present.any():
        is_nested = cells.map(holds_several).any()
        return Column(name, "empty", 0, missing, coded, is_nested=bool(is_nested))
    unsure = brief(unsure_date(keys))
    read = read_as_numbers(cells, present, shares=False)
    if read is not None:
        is_date = read[0] == "date"
        found = Column(name, read[0], distinct, missing, read[1], unsure)
        if is_date:
            return replace(found, dates=coded)
        return replace(found, padded=_padded(cells), bounds=_bounds(cells))
    kind = "text" if is_free_text(keys, MOST_CATEGORIES) else "category"
    comma = next((key for key in keys if "," in key), "") if has_decimal_commas(keys) else ""
    alike = tuple(map(tuple, spelt_alike(keys))) if kind == "category" else ()
    comma = brief(comma)
    worded = brief(unread_number(keys))
    odd = "" if unsure or comma or worded else _odd_one(cells, positions, keys)
    odd = brief(odd)
    return Column(name, kind, distinct, missing, coded, unsure, comma, worded, odd, alike)


def _padded(cells: pd.Series) -> str:
    """A whole number of a column that begins with 0, as codes do; empty for none."""
    texts = (text.strip() for text in distinct_texts(cells))
    return next((text for text in texts if _PADDED.fullmatch(text)), "")


def _bounds(cells: pd.Series) -> str:
    """What becomes of the cells that only say above or below what a number is; empty for none.

    >>> _bounds(pd.Series(["7", "< 0.5", "90+", "<1", "+3"]))
    "cells such as '< 0.5' and '90+' count as 0.25 and 90; leave them so, or write other numbers"
    """
    kinds: dict[str, str] = {}
    for text in (" ".join(cell.split()) for cell in distinct_texts(cells)):
        sign = _BOUND.search(text)
        if sign is not None and not math.isnan(parse_number(text)):
            kinds.setdefault(sign[0].strip(), text)
    shown = " and ".join(repr(brief(text)) for text in kinds.values())
    read = " and ".join(f"{parse_number(text):g}" for text in kinds.values())
    cure = "leave them so, or write other numbers"
    return f"cells such as {shown} count as {read}; {cure}" if kinds else ""


def _odd_one(cells: pd.Series, positions: Indices, keys: Sequence[str]) -> str:
    """The most frequent value that is none, where most cells with one are numbers, or dates."""
    present = positions >= 0
    for parse in (parse_numbers, parse_months):
        others = present & np.isnan(parse(cells))
        if 0 < np.count_nonzero(others) <= (1.0 - MOSTLY) * np.count_nonzero(present):
            return keys[int(np.bincount(positions[others]).argmax())]
    return ""
