"""Which number or date may be a code that says that there is none, and what is asked of it."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from common import column_names as called
from common.arrays import Vector
from common.cells import months_of
from common.looking import DIFFERENT, FEWEST_RECORDS, REPEATED, Column

# 0, -1, and any number of sevens, eights or nines, as -9, 99 and 999.9; and the ends of integers.
_SENTINEL = re.compile(
    r"0|-1|-?9|-?(?:77+|88+|99+(?:\.9+)?)|-32768|32767|-2147483648|2147483647", re.ASCII
)
# The ends of time, and the days from which programs count.
_DAYS = (
    *((9999, 12, 31), (9999, 1, 1), (2999, 12, 31), (2100, 1, 1), (2099, 12, 31), (2079, 6, 6)),
    *((1970, 1, 1), (1960, 1, 1), (1904, 1, 1), (1901, 1, 1), (1900, 1, 1), (1899, 12, 31)),
    *((1899, 12, 30), (1800, 1, 1), (1753, 1, 1), (1582, 10, 14), (1111, 11, 11), (1, 1, 1)),
)
_DATES = {
    round(months_of(year, month, day), 6): f"{year:04d}-{month:02d}-{day:02d}"
    for year, month, day in _DAYS
}
# A gap is wider than this many of the typical ones.
TYPICAL_GAPS = 3.0


def code_for_missing(column: Column) -> str:
    """A number or date that may say that there is none, as text; empty where nothing looks so.

    It is 0 where the column's name says that no amount can be 0; or one of those that people write
    so (999, -1, 0, 9999-12-31), that stands again and again and lies beyond all others, with a gap
    between.

    >>> chol = np.array([*np.arange(150.0, 250.0), 0.0])
    >>> code_for_missing(Column("chol", "number", 101, 0, chol))
    '0'
    >>> ages = np.array([*np.tile(np.arange(20.0, 60.0), 5), *[999.0] * 30])
    >>> code_for_missing(Column("Age", "number", 41, 0, ages))
    '999'
    """
    return _code(column)[1]


def code_note(column: Column, cure: str) -> str:
    """What to ask of that number, and what to do; empty where nothing looks so.

    Args:
      column: The column.
      cure: What to do, in the imperative.

    >>> chol = np.array([*np.arange(150.0, 250.0), 0.0])
    >>> code_note(Column("chol", "number", 101, 0, chol), "leave it empty")
    '0 stands once, where no amount can be 0: a code for missing? then leave it empty'
    """
    value, code = _code(column)
    if not code:
        return ""
    count = np.count_nonzero(column.numbers == value)
    times = "once" if count == 1 else f"{count:,} times"
    where = ", where no amount can be 0" if _is_never_zero(column) else ""
    return f"{code} stands {times}{where}: a code for missing? then {cure}"


def _code(column: Column) -> tuple[float, str]:
    """The value of such a code, and its text; empty where nothing looks so."""
    if column.kind == "number":
        return (0.0, "0") if _is_never_zero(column) else _beyond_a_gap(column.numbers, _number_code)
    if column.kind == "date":
        return _beyond_a_gap(column.numbers, _date_code)
    return 0.0, ""


def _is_never_zero(column: Column) -> bool:
    """Whether cells are 0 where the name says that none can be."""
    # Beside numbers below 0 it is a score, of which 0 is the middle.
    has_zeros = bool(np.any(column.numbers == 0)) and not np.any(column.numbers < 0)
    return (
        has_zeros
        and column.distinct >= FEWEST_RECORDS
        and called.is_called(column.name, called.NEVER_ZERO)
    )


def _beyond_a_gap(numbers: Vector, code_of: Callable[[float], str]) -> tuple[float, str]:
    """The most frequent number that people write so, beyond all others; its text empty for none."""
    known = numbers[np.isfinite(numbers)]
    # What is beyond all others is an end: few columns need to be sorted.
    if not known.size or not (code_of(known.min()) or code_of(known.max())):
        return 0.0, ""
    values, counts = np.unique(known, return_counts=True)
    code = counts >= REPEATED
    code[code] = [bool(code_of(value)) for value in values[code]]
    rest, times = values[~code], counts[~code]
    if not code.any() or rest.size < DIFFERENT or times.sum() < FEWEST_RECORDS:
        return 0.0, ""
    low, high = np.quantile(np.repeat(rest, times), [0.25, 0.75])
    gap = max((high - low) / 2.0, TYPICAL_GAPS * float(np.median(np.diff(rest))))
    beyond = code & ((rest[0] - values > gap) | (values - rest[-1] > gap)) & (high > low)
    if not beyond.any():
        return 0.0, ""
    value = float(values[np.argmax(np.where(beyond, counts, 0))])
    return value, code_of(value)


def _number_code(value: float) -> str:
    """A number as text, if it is one of those that stand for none.

    >>> [_number_code(number) for number in (-999.0, 99.9, 0.0, 16.0)]
    ['-999', '99.9', '0', '']
    """
    text = f"{value:.10g}"
    return text if _SENTINEL.fullmatch(text) else ""


def _date_code(months: float) -> str:
    """A date as text, if it is one of those that stand for none.

    >>> _date_code(months_of(9999, 12, 31)), _date_code(months_of(2020, 1, 1))
    ('9999-12-31', '')
    """
    return _DATES.get(round(float(months), 6), "")
