"""One raw column as numbers: what the columns of public files look like, and how they are read.

A value is read by what it says, never by how it is stored, so that the text ``"36"``, the
integer 36, ``"36.0"`` and ``" 36 months"`` mean the same to every owner.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.extensions import ExtensionArray

from common.arrays import Flags, Indices, Vector, either
from common.cells import Label, holds_numbers, months_of, readable

# "none" is not among them: it is an answer in public files (home_ownership = NONE).
_MISSING_TEXTS = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "nat", "<na>", "-", "."})
_TRUTH = {"true": 1.0, "false": 0.0}
# What compares equal among cells of these types reads the same.
_EQUAL_AS_READ = frozenset({str, bool, type(None)})
_UNITS = r"(?P<unit>years?|yrs?|months?|mos?|weeks?|days?|hours?|hrs?)"
# Nothing that repeats stands beside something else that matches the same characters, and
# possessive repetitions (++) give nothing back: a text is read in linear time, whatever it says.
# Groups are not possessive: before 3.11.5 Python takes with them what did not match ("1,204,").
# The classes are spelt out, and with re.ASCII only a to z have two cases: what these match,
# float() and int() read.
_PLAIN = (
    r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*+)?|[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)"
    r"(?:e[+-]?[0-9]{1,4}+)?|inf(?:inity)?"
)
_FLAGS = re.ASCII | re.IGNORECASE
_NUMBER = re.compile(
    rf"(?P<bound>[<>])? ?(?P<sign>[+-])? ?(?:[$€£] ?(?P<inner>-)?)?(?P<digits>{_PLAIN})"
    rf" ?(?P<percent>%)? ?\+? ?{_UNITS}?",
    _FLAGS,
)
_PLAIN_NUMBER = re.compile(rf"[+-]?(?:{_PLAIN})", _FLAGS)
# The plainest of them, which pyarrow reads to the same bits and many at once.
_PLAINEST = r"^-?[0-9]{1,40}(?:\.[0-9]{1,40})?$"
_MONTH_NAMES = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DATE_FORMS = tuple(
    re.compile(form, _FLAGS)
    for form in (
        r"(?P<year>[0-9]{4})-(?P<month>[0-9]{1,2})(?:-(?P<day>[0-9]{1,2}))?(?:[T ][0-9:.+Z-]*+)?",
        r"(?:(?P<day>[0-9]{1,2})[- ])?(?P<name>[a-z]{3})[a-z]*+[- ](?P<year>[0-9]{4})",
        r"(?P<month>[0-9]{1,2})/(?P<day>[0-9]{1,2})/(?P<year>[0-9]{4})",
    )
)


def is_missing_text(text: str) -> bool:
    """Whether a cell's text says that there is no value.

    >>> is_missing_text(" "), is_missing_text("NaN"), is_missing_text("NONE")
    (True, True, False)
    """
    return text.strip().lower() in _MISSING_TEXTS


def missing_texts() -> frozenset[str]:
    """The texts, in small letters, that say that there is no value.

    >>> "n/a" in missing_texts()
    True
    """
    return _MISSING_TEXTS


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
    cell = readable(value)
    if isinstance(cell, str):
        return _number_of_text(cell, shares)
    return cell if isinstance(cell, float) else math.nan


def _number_of_text(text: str, shares: bool) -> float:
    """The number of a text; "< 1" is halfway between 0 and 1."""
    cleaned = " ".join(text.split())
    match = _NUMBER.fullmatch(cleaned)
    if match is None:
        return _TRUTH.get(cleaned.lower(), math.nan)
    number = float(match["digits"].replace(",", ""))
    if match["bound"] == "<":
        number /= 2.0
    if match["percent"] and shares:
        number /= 100.0
    return -number if "-" in (match["sign"], match["inner"]) else number


def end_in_words(text: str) -> str:
    """What is wrong with a code for missing that says from or up to where; empty for any other.

    >>> end_in_words("> 90").startswith("'> 90' is read as 90")
    True
    >>> [end_in_words(text) for text in ("90", "+90", "999 days", "unknown")]
    ['', '', '', '']
    """
    match = _NUMBER.fullmatch(" ".join(text.split()))
    if match is None or not (match["bound"] or "+" in match.string[match.end("digits") :]):
        return ""
    number = f"{_number_of_text(text, shares=False):.10g}"
    return (
        f"{text!r} is read as {number}, so that every {number} would be none, too; give {number} "
        "if that is meant, or empty these cells"
    )


def unit_of(text: str) -> str:
    """The unit of time that stands behind a text's number, by its first letter; empty for none.

    >>> [unit_of(text) for text in ("10+ years", "3 Yrs", "1 mo", "36", "two years")]
    ['y', 'y', 'm', '', '']
    """
    match = _NUMBER.fullmatch(" ".join(text.split()))
    return ((match and match["unit"]) or "")[:1].lower()


def parse_month(value: object) -> float:
    """Months since January 2000 that one cell says, NaN where it says no date.

    >>> parse_month("Dec-2011"), parse_month("2011-12-01"), parse_month("1/1/1999")
    (143.0, 143.0, -12.0)
    """
    cell = readable(value)
    if isinstance(cell, str):
        return _month_of_text(cell.strip())
    return cell.months if isinstance(cell, Label) else math.nan


def _month_of_text(text: str) -> float:
    """The months of the first form that a text has."""
    for form in _DATE_FORMS:
        match = form.fullmatch(text)
        if match is not None:
            parts = match.groupdict()
            month = _month_number(parts)
            day = int(parts["day"] or 1)
            valid = 1 <= month <= 12 and 1 <= day <= 31
            return months_of(int(parts["year"]), month, day) if valid else math.nan
    return math.nan


def _month_number(parts: dict[str, str | None]) -> int:
    """The month 1 to 12 of a date's parts; 0 for a name that is no month."""
    name = (parts.get("name") or "").lower()
    if name:
        return _MONTH_NAMES.index(name) + 1 if name in _MONTH_NAMES else 0
    return int(parts["month"] or 0)


def category_key(value: object) -> str | None:
    """The text that stands for one category, the same for 36, "36.0" and " 36 "; None if missing.

    >>> category_key(36), category_key("36.0"), category_key("  New   York "), category_key("")
    ('36', '36', 'New York', None)
    """
    cell = readable(value)
    if isinstance(cell, str):
        text = " ".join(cell.split())
        if is_missing_text(text):
            return None
        if _PLAIN_NUMBER.fullmatch(text) is None and text.lower() not in _TRUTH:
            return text
        cell = _number_of_text(text, shares=False)
    if isinstance(cell, float):
        return _key_of(cell)
    return cell if cell is None else " ".join(cell.text.split())


def _key_of(number: float) -> str:
    """The text that stands for a number's category."""
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def parse_numbers(column: pd.Series, *, shares: bool = False) -> Vector:
    """Each cell's :func:`parse_number`, shape (n,); each depends on its own cell only.

    >>> parse_numbers(pd.Series(["36", " 60 months", None]))
    array([36., 60., nan])
    """
    kind = _kind(column)
    if kind in "iufb":
        # The bits of a NaN may raise a flag in arithmetic, of which numpy would warn.
        with np.errstate(all="ignore"):
            numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
            return either(np.isnan(numbers), np.nan, numbers)
    if kind in "Mm":
        return np.full(len(column), np.nan)
    codes, distinct = _distinct(column)
    parsed, left = _plain_numbers(distinct)
    for place, value in left:
        parsed[place] = parse_number(value, shares=shares)
    return np.append(parsed, math.nan)[codes]


def parse_months(column: pd.Series) -> Vector:
    """Each cell's :func:`parse_month`, shape (n,).

    >>> parse_months(pd.Series(pd.to_datetime(["2000-03-01", None])))
    array([ 2., nan])
    """
    if _kind(column) in "iufb":
        return np.full(len(column), np.nan)
    codes, distinct = _distinct(column)
    parsed = np.array([*map(parse_month, distinct), math.nan], dtype=np.float64)
    return parsed[codes]


def category_keys(column: pd.Series) -> tuple[Indices, list[str]]:
    """Each cell's :func:`category_key`, as positions in a list of the distinct ones.

    A cell without a value has position -1.

    >>> category_keys(pd.Series(["a", "1", " a", None, "1.0", "n/a"]))
    (array([ 0,  1,  0, -1,  1, -1]), ['a', '1'])
    """
    codes, distinct = _distinct(column)
    plain, left = _plain_numbers(distinct)
    keys: list[str | None] = [_key_of(number) for number in plain.tolist()]
    for place, value in left:
        keys[place] = category_key(value)
    number: dict[str | None, int] = {None: -1}
    numbers = [number.setdefault(key, len(number) - 1) for key in keys]
    positions = np.array([*numbers, -1], dtype=np.intp)[codes]
    return positions, [key for key in number if key is not None]


def have_values(column: pd.Series, values: Collection[str]) -> Flags:
    """Which cells have one of these values, however either is written, shape (n,).

    >>> have_values(pd.Series(["999", "-1.0", "7", None]), ["-1", "999.0"])
    array([ True,  True, False, False])
    """
    positions, keys = category_keys(column)
    wanted = {category_key(value) for value in values} - {None}
    found: Flags = np.array([*(key in wanted for key in keys), False])[positions]
    for parse, parse_all in ((parse_number, parse_numbers), (parse_month, parse_months)):
        found |= np.isin(parse_all(column), [*map(parse, values)])
    return found


def with_gaps(table: pd.DataFrame, missing: Mapping[str, Collection[str]]) -> pd.DataFrame:
    """The table, whose cells are empty where they have a value that says that there is none.

    Args:
      table: Raw records.
      missing: These values of each column that has some.

    >>> with_gaps(pd.DataFrame({"age": [30, 999]}), {"age": ["999"]})["age"].tolist()
    [30.0, nan]
    """
    made = {name: table[name].mask(have_values(table[name], v)) for name, v in missing.items()}
    return table.assign(**made) if made else table


def has_percent_sign(column: pd.Series) -> bool:
    """Whether a text of the column carries a percent sign."""
    if _kind(column) != "O":
        return False
    _, distinct = _distinct(column)
    _, left = _plain_numbers(distinct)
    cells = (readable(value) for _, value in left)
    return any(isinstance(cell, str) and cell.rstrip().endswith("%") for cell in cells)


_Distinct = ExtensionArray | NDArray[Any] | list[object]


def _plain_numbers(distinct: _Distinct) -> tuple[Vector, Iterator[tuple[int, object]]]:
    """What is read many at once: numbers, and texts of digits and a point alone.

    Returns:
      Their numbers, NaN for any other value, shape (n,); and the place and value of each other.
    """
    if isinstance(distinct, list):
        return np.full(len(distinct), math.nan), enumerate(distinct)
    if isinstance(distinct, np.ndarray):
        return distinct.astype(np.float64), iter(())
    import pyarrow as pa  # noqa: PLC0415 (its compute part is needed for texts alone)
    from pyarrow import compute  # noqa: PLC0415

    texts = pa.array(distinct)
    is_plain = compute.match_substring_regex(texts, _PLAINEST)
    plain = compute.if_else(is_plain, texts, None).cast(pa.float64())
    numbers = np.array(plain, dtype=np.float64)
    left = np.flatnonzero(np.isnan(numbers))
    return numbers, zip(left.tolist(), distinct.take(left), strict=True)


def _distinct(column: pd.Series) -> tuple[Indices, _Distinct]:
    """(position of each cell's value, -1 for a missing one; the distinct values).

    Only texts, truth values, gaps and columns of one simple type are searched for repetitions:
    elsewhere, values that compare equal may read differently, and a record would depend on those
    before it.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if _kind(column) == "O" and not isinstance(column.dtype, pd.StringDtype):
        return _distinct_objects(list(column))
    if isinstance(column.dtype, pd.StringDtype):
        return pd.factorize(column.array)
    if holds_numbers(column):
        return pd.factorize(column.to_numpy())
    codes, distinct = pd.factorize(column)
    return codes, list(distinct)


def _distinct_objects(cells: list[object]) -> tuple[Indices, list[object]]:
    """As :func:`_distinct`, for cells of any kind."""
    seen: dict[object, int] = {}
    distinct: list[object] = []
    codes = np.empty(len(cells), dtype=np.intp)
    for i, cell in enumerate(cells):
        is_simple = type(cell) in _EQUAL_AS_READ
        code = seen.get(cell) if is_simple else None
        if code is None:
            code = len(distinct)
            distinct.append(cell)
            if is_simple:
                seen[cell] = code
        codes[i] = code
    return codes, distinct


def _kind(column: pd.Series) -> str:
    """The numpy kind letter of a column, "O" for texts and mixtures, whoever stores it."""
    if pd.api.types.is_bool_dtype(column.dtype):
        return "b"
    if pd.api.types.is_numeric_dtype(column.dtype):
        return "O" if pd.api.types.is_complex_dtype(column.dtype) else "f"
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return "M"
    return "m" if pd.api.types.is_timedelta64_dtype(column.dtype) else "O"
