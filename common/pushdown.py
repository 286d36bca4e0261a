"""Conditions as readers use them: what surely does not count is not read.

Every row that is read is looked at by :mod:`common.row_filters`, whoever read it. So a reader may
leave out rows that cannot count, and may as well read others: what is said here of a condition is
wider than the condition. A cell that satisfies it lies within, one within may not satisfy it. Only
columns whose type has an order that is ours are looked at: numbers, days, texts by their bytes.

A reader believes what a table says of itself. A Parquet file whose statistics are wrong loses rows,
those of its own owner, who wrote it and could have left them out as well. How many rows are read is
compared with what it says, since places of rows follow from that.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from common.cells import LONGEST_TEXT, months_of
from common.columns import category_key, parse_number
from common.conditions import Between, keys_of, limits_of

Kind = Literal["number", "day", "text"]


class ColumnExtent(NamedTuple):
    """Between what the cells of a column lie, as far as a file says.

    Args:
      kind: What they are.
      low: None of them is smaller: a number, a day, or the bytes of a text.
      high: None of them is larger.
    """

    kind: Kind
    low: Any
    high: Any


# The extent of a column by its name; None where nothing is known.
Extent = Callable[[str], ColumnExtent | None]

# All that str.split takes for whitespace.
_WHITESPACE = tuple(chr(code).encode() for code in range(0x3001) if chr(code).isspace())
_LONG_TEXT = category_key("x" * (LONGEST_TEXT + 1))
# Ranges reach this much further: whole numbers beyond 2^53 are rounded before we compare them, and
# not every database reads the last digits of a number.
_WIDER, _LEAST = 1e-9, 1e-300
# More values of a condition are not looked for one by one.
_MOST_VALUES = 64
# Words that a query may carry: in no database does such a text end before its quote.
_PLAIN_WORD = re.compile(r"[!-\[\]-~]+", re.ASCII)
_NEVER, _ALWAYS = "1 = 0", "1 = 1"
_LARGEST_WHOLE = 2**63 - 1


def kind_of(stored: pa.DataType) -> Kind | None:
    """What the cells of a type are; None for types whose order may not be ours.

    Times of a zone are other days there; decimals, truth values and bytes are read in other ways.

    >>> [kind_of(stored) for stored in (pa.int8(), pa.date32(), pa.string(), pa.bool_())]
    ['number', 'day', 'text', None]
    """
    if pa.types.is_integer(stored) or pa.types.is_float32(stored) or pa.types.is_float64(stored):
        return "number"
    if pa.types.is_date32(stored) or (pa.types.is_timestamp(stored) and stored.tz is None):
        return "day"
    cells = stored.value_type if pa.types.is_dictionary(stored) else stored
    return "text" if pa.types.is_string(cells) or pa.types.is_large_string(cells) else None


class Wanted:
    """What cells that satisfy a condition may be.

    >>> counties = ColumnExtent("text", b"Bronx", b"Kings")
    >>> [Wanted(each).may_be_in(counties) for each in ("Kings", "Queens", 36, Between(min=3))]
    [True, False, True, True]
    """

    def __init__(self, condition: Any) -> None:
        self._condition = condition

    def may_be_in(self, extent: ColumnExtent | None) -> bool:
        """Whether a cell of such an extent may satisfy the condition."""
        if extent is None:
            return True
        # All is compared so that a NaN, which is no extent, leaves nothing out.
        if extent.kind == "number":
            return any(not (extent.high < low or extent.low > high) for low, high in self._ranges)
        if extent.kind == "day":
            wanted = _months(self._condition)
            first, last = _months_of_day(extent.low), _months_of_day(extent.high)
            return wanted is None or not (last < wanted[0] or first > wanted[1])
        # Texts that begin so come one after the other, the shortest of them first.
        return self._starts is None or any(
            not (extent.high < start or (extent.low > start and not extent.low.startswith(start)))
            for start in self._starts
        )

    @cached_property
    def _ranges(self) -> Sequence[tuple[float, float]]:
        return _numbers(self._condition)

    @cached_property
    def _starts(self) -> Sequence[bytes] | None:
        """How texts begin that satisfy the condition; None where they may begin otherwise."""
        words = _first_words(self._condition)
        return None if words is None else [*(word.encode() for word in words), *_WHITESPACE]


def clause(column: str, stored: pa.DataType, condition: Any, *, collation: str = "") -> str:
    r"""What a query of DuckDB or PostgreSQL may ask of a column where a condition is to hold.

    Nothing in it is as a setting has it: numbers and days are written anew, and a word that
    contains more than plain letters is not looked for. So there is nothing to escape, and nothing
    to bind: PostgreSQL's reader gives rows in a stream only to queries without parameters.

    Args:
      column: The column's name, quoted.
      stored: Its type.
      condition: The condition.
      collation: What makes texts be compared by their bytes.

    >>> clause('"age"', pa.int64(), Between(min=18)), clause('"sex"', pa.string(), ("f", "v"))
    ('("age" >= 18)', '(strpos("sex"::text, \'f\') > 0 or strpos("sex"::text, \'v\') > 0)')
    """
    kind = kind_of(stored)
    if kind == "number":
        write = _whole if pa.types.is_integer(stored) else _real
        return _any_of(_within(column, low, high, write) for low, high in _numbers(condition))
    if kind == "day":
        return _days_within(column, condition)
    if kind == "text" and not pa.types.is_dictionary(stored):
        return _containing(f"strpos({column}::text{collation}, ", condition)
    return _ALWAYS


def sqlite_clause(column: str, condition: Any) -> str:
    """The same for SQLite, where each cell has a type of its own, whatever its column says.

    >>> print(sqlite_clause('"age"', Between(max=5)))
    (typeof("age") in ('text', 'blob') or (+"age" <= 5.000000005e0))
    >>> print(sqlite_clause('"sex"', "f"))
    (typeof("sex") = 'blob' or (typeof("sex") = 'text' and (instr("sex", 'f') > 0)) or 1 = 0)
    """
    # Without the plus a column of texts would make a text of the number.
    numbers = _any_of(_within(f"+{column}", *ends, _real) for ends in _numbers(condition))
    texts = _containing(f"instr({column}, ", condition)
    if texts == _ALWAYS:
        return f"(typeof({column}) in ('text', 'blob') or {numbers})"
    is_such_a_text = f"(typeof({column}) = 'text' and {texts})"
    return f"(typeof({column}) = 'blob' or {is_such_a_text} or {numbers})"


def _numbers(condition: Any) -> Sequence[tuple[float, float]]:
    """The ranges in which all numbers lie that satisfy a condition."""
    if isinstance(condition, Between):
        # No number is a date.
        ranges = [] if condition.is_of_dates else [limits_of(condition)]
    else:
        numbers = {parse_number(key) for key in keys_of(condition)}
        # Some texts begin with a number, and no number is such a text.
        exact = sorted(x for x in numbers if category_key(x) in keys_of(condition))
        few = len(exact) <= _MOST_VALUES
        ranges = [(x, x) for x in exact] if few else [(exact[0], exact[-1])]
    return [(low - _margin(low), high + _margin(high)) for low, high in ranges]


def _margin(end: float) -> float:
    """How much further a range reaches at its end."""
    return 0.0 if math.isinf(end) else max(_LEAST, _WIDER * abs(end))


def _months(condition: Any) -> tuple[float, float] | None:
    """The range in which the months of all days lie that satisfy a condition; None for any."""
    is_range = isinstance(condition, Between) and condition.is_of_dates
    return limits_of(condition) if is_range else None


def _months_of_day(day: dt.date) -> float:
    return months_of(day.year, day.month, day.day)


def _first_words(condition: Any) -> Sequence[str] | None:
    """Each text that satisfies a condition begins with one of these words, or with whitespace.

    None where it need not: a number, and nothing else, may be written in many ways.
    """
    keys = () if isinstance(condition, Between) else sorted(keys_of(condition))
    may_be_told = all(math.isnan(parse_number(key)) and key != _LONG_TEXT for key in keys)
    return [key.split()[0] for key in keys] if keys and may_be_told else None


def _within(column: str, low: float, high: float, write: Callable[[float, bool], str]) -> str:
    """That a column lies in a range."""
    ends = ((f"{column} >= ", write(low, True)), (f"{column} <= ", write(high, False)))
    return " and ".join(f"{side}{end}" for side, end in ends if end) or _ALWAYS


def _real(end: float, _: bool) -> str:
    """A range's end for real numbers, empty where there is none."""
    if math.isinf(end):
        return ""
    text = repr(end)
    # With an exponent, or DuckDB takes it for a decimal, and casts columns to that.
    return text if "e" in text else f"{text}e0"


def _whole(end: float, is_low: bool) -> str:
    """A range's end for whole numbers, empty where there is none."""
    if math.isinf(end):
        return ""
    whole = math.ceil(end) if is_low else math.floor(end)
    return str(whole) if abs(whole) <= _LARGEST_WHOLE else ""


def _days_within(column: str, condition: Any) -> str:
    """That a column lies in the months of a condition, from the first to the last."""
    months = _months(condition)
    if months is None:
        return _ALWAYS
    first, behind = _first_day(months[0]), _first_day(months[1] + 1.0)
    sides = ((" >= ", first), (" < ", behind))
    ends = [f"{column}{side}date '{day.isoformat()}'" for side, day in sides if day is not None]
    return " and ".join(ends) or _ALWAYS


def _first_day(months: float) -> dt.date | None:
    """The first day of a month; None where the calendar has no such month."""
    if math.isinf(months):
        return None
    years, month = divmod(math.floor(months), 12)
    year = 2000 + years
    return dt.date(year, month + 1, 1) if dt.MINYEAR <= year <= dt.MAXYEAR else None


def _containing(search: str, condition: Any) -> str:
    """That one of a condition's words is found somewhere, by a function of (column, word)."""
    words = _first_words(condition)
    if words is None or len(words) > _MOST_VALUES or not all(map(_PLAIN_WORD.fullmatch, words)):
        return _ALWAYS
    return _any_of(f"{search}{_literal(word)}) > 0" for word in words)


def _literal(word: str) -> str:
    """A text in a query; neither a backslash nor a zero is in it."""
    doubled = word.replace("'", "''")
    return f"'{doubled}'"


def _any_of(clauses: Any) -> str:
    parts = list(clauses)
    return f"({' or '.join(parts)})" if parts else _NEVER
