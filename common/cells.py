"""The one boundary between what a cell holds and what is made of it.

Nothing outside may show what a private cell holds, so no cell may raise, be logged, or take a
time of its own: what cannot be read is a missing value here, and a public fill value later.
"""

from __future__ import annotations

import datetime as dt
import math
import numbers
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from common.arrays import Flags

# A longer text is no number and no date, and all longer ones are one category: decided by the
# length alone, before anything whose time depends on what the text says.
LONGEST_TEXT = 1000


class Label(NamedTuple):
    """A value that is neither a number nor a text: its name, and its months if it is a date."""

    text: str
    months: float = math.nan


Plain = str | float | Label | None
_LONG = Label("(long text)")
_NESTED = (list, tuple, dict, set, frozenset, np.ndarray)


def readable(value: object) -> Plain:
    """A cell as a text, a number or a label; None where there is no value or none is readable.

    >>> readable(" 36 "), readable(36), readable(float("nan")), readable([36])
    (' 36 ', 36.0, None, None)
    >>> readable(dt.date(2000, 3, 1)), readable("x" * 10_000)
    (Label(text='2000-03-01', months=2.0), Label(text='(long text)', months=nan))
    """
    try:
        return _plain(value)
    except Exception:  # Whatever reading a cell raises, nothing of it is shown.
        return None


def holds_several(value: object) -> bool:
    """Whether a cell holds several values, as a list does: none of them is read.

    >>> holds_several([36]), holds_several("36")
    (True, False)
    """
    return isinstance(value, _NESTED)


def written(value: object) -> str | None:
    """A cell as a text that reads as the cell does; None where none of it is readable.

    >>> written(" 36 "), written(36), written(b"36"), written(dt.date(2000, 3, 1)), written([36])
    (' 36 ', '36', '36', '2000-03-01', None)
    """
    if isinstance(value, str):
        return str(value)
    cell = readable(value)
    if isinstance(cell, Label):
        return cell.text
    return cell if cell is None else repr(cell).removesuffix(".0")


def _plain(value: Any) -> Plain:
    """As :func:`readable`, but a cell that cannot be read may raise."""
    if isinstance(value, str | bytes | bytearray):
        return _plain_text(value)
    if value is None or value is pd.NA or value is pd.NaT or isinstance(value, _NESTED):
        return None
    if isinstance(value, numbers.Real | Decimal | np.bool_):
        return _number(value)
    if isinstance(value, np.datetime64):
        value = pd.Timestamp(value)
    text = str(value)
    if isinstance(value, dt.date):
        return Label(text, months_of(value.year, value.month, value.day))
    return Label(text) if len(text) <= LONGEST_TEXT else _LONG


def _plain_text(value: str | bytes | bytearray) -> Plain:
    if len(value) > LONGEST_TEXT:
        return _LONG
    if isinstance(value, str):
        return str(value)
    try:
        return _number(value)
    except ValueError:
        return Label(str(bytes(value)))


def _number(value: Any) -> float | None:
    """A finite or infinite number, None for NaN."""
    try:
        number = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return None if math.isnan(number) else number


def months_of(year: int, month: int, day: int) -> float:
    """Months since 2000-01-01; days are parts of 31.

    >>> months_of(2000, 3, 1)
    2.0
    """
    return (year - 2000) * 12 + (month - 1) + (day - 1) / 31


def month_words(months: float) -> str:
    """The month in which such a number lies, as YEAR-MONTH; a number of no year stays one.

    >>> month_words(months_of(2023, 12, 28)), month_words(-0.5), month_words(1e300)
    ('2023-12', '1999-12', '1e+300')
    """
    year, month = divmod(math.floor(months), 12)
    return f"{2000 + year}-{month + 1:02d}" if 0 <= 2000 + year <= 9999 else f"{months:g}"


def as_text(value: object) -> str:
    """What ``str`` makes of a cell, or the name of its type where it makes nothing.

    >>> as_text(36), as_text(10**5000)
    ('36', '<unreadable int>')
    """
    try:
        return str(value)
    except Exception:
        return f"<unreadable {type(value).__name__}>"


def distinct_texts(column: pd.Series) -> list[str]:
    """The texts of a column, each once, in their order; lists and the like cannot be compared.

    >>> distinct_texts(pd.Series(["b", [1], "a", None, "b"], dtype=object))
    ['b', 'a']
    """
    try:
        cells = list(column.unique())
    except TypeError:
        cells = list(column)
    return list(dict.fromkeys(cell for cell in cells if isinstance(cell, str)))


def holds_numbers(column: pd.Series) -> bool:
    """Whether no cell of a column can be anything but a number or a truth value, by its type.

    >>> [holds_numbers(pd.Series(cells)) for cells in ([1, 2], [True], [1, "2"], ["2"])]
    [True, True, False, False]
    """
    return isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb"


def missing_cells(column: pd.Series) -> Flags:
    """Which cells have no value, shape (n,); one that cannot be asked has one.

    >>> missing_cells(pd.Series([Decimal("sNaN"), None, [1]], dtype=object))
    array([False,  True, False])
    """
    try:
        return column.isna().to_numpy(dtype=bool)
    except Exception:
        return np.array([_is_missing(cell) for cell in column], dtype=bool)


def _is_missing(cell: object) -> bool:
    return (
        cell is None
        or cell is pd.NA
        or cell is pd.NaT
        or (type(cell) is float and math.isnan(cell))
    )
