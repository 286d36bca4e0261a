"""One raw column as numbers: what the columns of public files look like, and how they are read.

A value is read by what it says, never by how it is stored, so that the text ``"36"``, the
integer 36, ``"36.0"`` and ``" 36 months"`` mean the same to every owner.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from common.arrays import Vector

__all__ = [
    "category_key",
    "category_keys",
    "has_percent_sign",
    "is_missing_text",
    "parse_month",
    "parse_months",
    "parse_number",
    "parse_numbers",
]


# "none" is not among them: it is an answer in public files (home_ownership = NONE).
_MISSING_TEXTS = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "nat", "<na>", "-", "."})
_TRUTH = {"true": 1.0, "false": 0.0}
_UNITS = r"(?:years?|yrs?|months?|mos?|weeks?|days?|hours?|hrs?)"
_PLAIN = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?|inf(?:inity)?"
_NUMBER = re.compile(
    rf"(?P<bound>[<>])?\s*(?P<sign>[+-])?\s*(?:[$€£]\s*(?P<inner>-)?)?(?P<digits>{_PLAIN})"
    rf"\s*(?P<percent>%)?\s*\+?\s*{_UNITS}?",
    re.IGNORECASE,
)
_PLAIN_NUMBER = re.compile(rf"[+-]?(?:{_PLAIN})", re.IGNORECASE)
_MONTH_NAMES = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DATE_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"(?P<year>\d{4})-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?(?:[T ][\d:.+Z-]*)?",
        r"(?:(?P<day>\d{1,2})[- ])?(?P<name>[a-z]{3})[a-z]*[- ](?P<year>\d{4})",
        r"(?P<month>\d{1,2})/(?P<day>\d{1,2})/(?P<year>\d{4})",
    )
)


def is_missing_text(text: str) -> bool:
    """Whether a cell's text says that there is no value.

    >>> is_missing_text(" "), is_missing_text("NaN"), is_missing_text("NONE")
    (True, True, False)
    """
    return text.strip().lower() in _MISSING_TEXTS


def parse_number(value: object, *, shares: bool = False) -> float:
    """The number that one cell says, NaN where it says none.

    Args:
      value: A number, a truth value, a decimal or a text.
      shares: Whether the column's numbers are shares of one, so that 10.65% is 0.1065;
        else it is 10.65.

    >>> [parse_number(text) for text in ("10.65%", " 36 months", "120 +", "1,458", "10+ years")]
    [10.65, 36.0, 120.0, 1458.0, 10.0]
    >>> [parse_number(v) for v in ("$1,234.5", "-2e3", True, "< 1 year", "70 or Older", "")]
    [1234.5, -2000.0, 1.0, 0.5, nan, nan]
    """
    if isinstance(value, str):
        return _number_of_text(value, shares)
    if isinstance(value, dt.date | dt.timedelta | np.datetime64 | np.timedelta64):
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]
    except (TypeError, ValueError):
        return math.nan


def _number_of_text(text: str, shares: bool) -> float:
    """The number of a text; "< 1" is halfway between 0 and 1."""
    cleaned = text.strip()
    match = _NUMBER.fullmatch(cleaned)
    if match is None:
        return _TRUTH.get(cleaned.lower(), math.nan)
    number = float(match["digits"].replace(",", ""))
    if match["bound"] == "<":
        number /= 2.0
    if match["percent"] and shares:
        number /= 100.0
    return -number if "-" in (match["sign"], match["inner"]) else number


def parse_month(value: object) -> float:
    """Months since January 2000 that one cell says, NaN where it says no date.

    >>> parse_month("Dec-2011"), parse_month("2011-12-01"), parse_month("1/1/1999")
    (143.0, 143.0, -12.0)
    """
    if value is pd.NaT:
        return math.nan
    if isinstance(value, dt.date):
        return _months(value.year, value.month, value.day)
    if isinstance(value, np.datetime64):
        return parse_month(pd.Timestamp(value))
    if not isinstance(value, str):
        return math.nan
    for form in _DATE_FORMS:
        match = form.fullmatch(value.strip())
        if match is not None:
            parts = match.groupdict()
            month = _month_number(parts)
            day = int(parts["day"] or 1)
            valid = 1 <= month <= 12 and 1 <= day <= 31
            return _months(int(parts["year"]), month, day) if valid else math.nan
    return math.nan


def _month_number(parts: dict[str, str | None]) -> int:
    """The month 1 to 12 of a date's parts; 0 for a name that is no month."""
    name = (parts.get("name") or "").lower()
    if name:
        return _MONTH_NAMES.index(name) + 1 if name in _MONTH_NAMES else 0
    return int(parts["month"] or 0)


def _months(year: int, month: int, day: int) -> float:
    """Months since 2000-01-01; days are parts of 31."""
    return (year - 2000) * 12 + (month - 1) + (day - 1) / 31


def category_key(value: object) -> str | None:
    """The text that stands for one category, the same for 36, "36.0" and " 36 "; None if missing.

    >>> category_key(36), category_key("36.0"), category_key("  New   York "), category_key("")
    ('36', '36', 'New York', None)
    """
    if isinstance(value, str):
        text = " ".join(value.split())
        if is_missing_text(text):
            return None
        if _PLAIN_NUMBER.fullmatch(text) is None and text.lower() not in _TRUTH:
            return text
    number = parse_number(value)
    if not math.isnan(number):
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
    return " ".join(str(value).split()) if _is_present(value) else None


def _is_present(value: object) -> bool:
    """Whether a value that is no number is a value at all."""
    return not (
        value is None or value is pd.NA or value is pd.NaT or isinstance(value, float | Decimal)
    )


def parse_numbers(column: pd.Series, *, shares: bool = False) -> Vector:
    """Each cell's :func:`parse_number`, shape (n,); each depends on its own cell only.

    >>> parse_numbers(pd.Series(["36", " 60 months", None]))
    array([36., 60., nan])
    """
    kind = _kind(column)
    if kind in "iufb":
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    if kind in "Mm":
        return np.full(len(column), np.nan)
    return _each_distinct(column, lambda value: parse_number(value, shares=shares))


def parse_months(column: pd.Series) -> Vector:
    """Each cell's :func:`parse_month`, shape (n,).

    >>> parse_months(pd.Series(pd.to_datetime(["2000-03-01", None])))
    array([ 2., nan])
    """
    if _kind(column) in "iufb":
        return np.full(len(column), np.nan)
    return _each_distinct(column, parse_month)


def category_keys(column: pd.Series) -> tuple[NDArray[np.intp], list[str | None]]:
    """Each cell's :func:`category_key`, as positions in a list of the distinct ones.

    A cell without a value has position -1.

    >>> category_keys(pd.Series(["a", "b", "a", None]))
    (array([ 0,  1,  0, -1]), ['a', 'b'])
    """
    codes, distinct = _distinct(column)
    return codes, [category_key(value) for value in distinct]


def has_percent_sign(column: pd.Series) -> bool:
    """Whether a text of the column carries a percent sign."""
    if _kind(column) != "O":
        return False
    _, distinct = _distinct(column)
    return any(isinstance(value, str) and value.rstrip().endswith("%") for value in distinct)


def _each_distinct(column: pd.Series, parse: Callable[[object], float]) -> Vector:
    """Parse every distinct value once: columns repeat themselves."""
    codes, distinct = _distinct(column)
    parsed = np.array([*(parse(value) for value in distinct), math.nan], dtype=np.float64)
    return parsed[codes]


def _distinct(column: pd.Series) -> tuple[NDArray[np.intp], list[object]]:
    """(position of each cell's value, -1 for a missing one; the distinct values).

    Only columns of one type are searched for repetitions: in a mixture, values that compare
    equal may read differently, and a record would depend on the records before it.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if column.dtype == object and pd.api.types.infer_dtype(column, skipna=True) != "string":
        return np.arange(len(column)), list(column)
    codes, distinct = pd.factorize(column)
    return codes, list(distinct)


def _kind(column: pd.Series) -> str:
    """The numpy kind letter of a column, "O" for texts and mixtures, whoever stores it."""
    if pd.api.types.is_bool_dtype(column.dtype):
        return "b"
    if pd.api.types.is_numeric_dtype(column.dtype):
        return "O" if pd.api.types.is_complex_dtype(column.dtype) else "f"
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return "M"
    return "m" if pd.api.types.is_timedelta64_dtype(column.dtype) else "O"
