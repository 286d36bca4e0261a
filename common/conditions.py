"""Which rows of a table count: a range of rows, and what columns must say there."""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from common.arrays import Flags
from common.columns import (
    category_key,
    category_keys,
    parse_month,
    parse_months,
    parse_number,
    parse_numbers,
)
from common.config import Settings

__all__ = [
    "AnyFilter",
    "Between",
    "Condition",
    "RowFilter",
    "condition_in_words",
    "matches",
    "parse_rows",
]

_ROW = re.compile(r"(?:-?[0-9]{1,18})?", re.ASCII)


def _limit(value: object) -> object:
    """A bound as a number or as the text of a date."""
    if isinstance(value, dt.date):
        return value.isoformat()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None or (is_number and math.isfinite(float(str(value)))):
        return value
    if isinstance(value, str) and not math.isnan(parse_month(value)):
        return value
    raise ValueError('expected a number, or a date such as "2020-01-31"')


Limit = Annotated[int | float | str | None, BeforeValidator(_limit)]


class Between(Settings):
    """A range of numbers or dates, both ends within it."""

    min: Limit = Field(default=None, description="The smallest value that counts.", examples=[18])
    max: Limit = Field(default=None, description="The largest value that counts.", examples=[65])

    @model_validator(mode="after")
    def _is_a_range(self) -> Between:
        ends = [end for end in (self.min, self.max) if end is not None]
        if not ends:
            raise ValueError("expected min, max or both")
        if len({isinstance(end, str) for end in ends}) > 1:
            raise ValueError("expected two numbers or two dates, not one of each")
        numbers = [_end(end) for end in ends]
        if numbers != sorted(numbers):
            raise ValueError("expected min to be at most max")
        return self

    @property
    def is_of_dates(self) -> bool:
        """Whether the ends are dates."""
        return isinstance(self.min, str) or isinstance(self.max, str)


def _end(limit: int | float | str) -> float:
    """A bound as it is compared."""
    return parse_month(limit) if isinstance(limit, str) else float(limit)


def _condition(value: object) -> object:
    """One value, a list of values or a range; one sentence for all else."""
    if isinstance(value, Between | str | int):
        return value
    if isinstance(value, Mapping):
        if not {*value} <= {"min", "max"}:
            raise ValueError("expected a range with min, max or both, such as { min = 18 }")
        return Between.model_validate(value)
    if isinstance(value, float):
        return parse_number(value)
    if isinstance(value, list | tuple) and value and all(_is_value(part) for part in value):
        return tuple(value)
    raise ValueError(
        "expected a value, a list of values, or a range such as { min = 18, max = 65 }"
    )


def _is_value(value: object) -> bool:
    return isinstance(value, str | int | float) and not (
        isinstance(value, float) and math.isnan(value)
    )


Condition = Annotated[
    str | int | float | tuple[str | int | float, ...] | Between, BeforeValidator(_condition)
]


def parse_rows(text: str) -> slice:
    """The slice that a text such as ":10800" stands for.

    Raises:
      ValueError: It is not a slice.

    >>> parse_rows("-10000:")
    slice(-10000, None, None)
    """
    parts = [part.strip() for part in text.split(":")]
    numbers = [int(part) if part else None for part in parts if _ROW.fullmatch(part)]
    if not 2 <= len(parts) == len(numbers) <= 3 or numbers[2:] == [0]:
        raise ValueError('expected a range of rows such as ":10800", "100:200" or "-10000:"')
    return slice(*numbers)


def matches(column: pd.Series, condition: Any) -> Flags:
    """Which cells satisfy a condition, however they are stored, shape (n,).

    A cell without a value, and one that does not read as the range's kind, satisfy none.

    >>> matches(pd.Series(["36", "60", ""]), Between(min=40)), matches(pd.Series([1, 2]), (2, "x"))
    (array([False,  True, False]), array([False,  True]))
    """
    if isinstance(condition, Between):
        cells = parse_months(column) if condition.is_of_dates else parse_numbers(column)
        low = -math.inf if condition.min is None else _end(condition.min)
        high = math.inf if condition.max is None else _end(condition.max)
        within: Flags = (cells >= low) & (cells <= high)
        return within
    values = condition if isinstance(condition, tuple) else (condition,)
    wanted = {category_key(value) for value in values} - {None}
    codes, keys = category_keys(column)
    matching: Flags = np.array([*(key in wanted for key in keys), False])[codes]
    return matching


def condition_in_words(name: str, condition: Any) -> str:
    """A condition as an error says it.

    >>> condition_in_words("age", Between(min=18)), condition_in_words("site", (1, 2))
    ('age from 18', 'site = 1 or 2')
    """
    if isinstance(condition, Between):
        ends = [("from", condition.min), ("to", condition.max)]
        return " ".join([name, *(f"{word} {end}" for word, end in ends if end is not None)])
    values = condition if isinstance(condition, tuple) else (condition,)
    return f"{name} = {' or '.join(map(str, values))}"


class RowFilter:
    """Tells which rows count: first the range, then the conditions.

    Args:
      rows: The range, in Python's slice notation; None for all.
      where: Columns and the condition of each.
      count: Says how many rows the table has; asked only where the range counts from the end.
    """

    def __init__(
        self, rows: str | None, where: Mapping[str, Any], *, count: Callable[[], int]
    ) -> None:
        wanted = slice(None) if rows is None else parse_rows(rows)
        from_the_end = any((part or 0) < 0 for part in (wanted.start, wanted.stop, wanted.step))
        self._range = range(count() if from_the_end else sys.maxsize)[wanted]
        self._where = dict(where)
        # Where the rows that count are, by the start of their batch.
        self._places: dict[int, NDArray[np.int64]] = {}

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it must see."""
        return list(self._where)

    @property
    def is_backwards(self) -> bool:
        """Whether the range runs from the last row to the first."""
        return self._range.step < 0

    @property
    def places(self) -> NDArray[np.int64]:
        """Where in the table the rows are that counted so far."""
        return np.concatenate([np.empty(0, dtype=np.int64), *self._places.values()])

    def __call__(self, start: int, num_rows: int, batch: pd.DataFrame) -> Flags:
        """Which of the rows from a place on count, shape (num_rows,)."""
        inside = _within(self._range, start, num_rows)
        keep = np.zeros(num_rows, dtype=np.bool_)
        keep[inside] = True
        if keep.any():
            for name, condition in self._where.items():
                keep[inside] &= matches(batch[name].iloc[inside], condition)
        self._places[start] = start + np.flatnonzero(keep)
        return keep


class AnyFilter:
    """Tells which rows any of several filters wants, each of which keeps its own places."""

    def __init__(self, filters: Sequence[RowFilter]) -> None:
        self._filters = filters

    @property
    def columns(self) -> Sequence[str]:
        """The columns that they must see."""
        return list(dict.fromkeys(name for each in self._filters for name in each.columns))

    @property
    def places(self) -> NDArray[np.int64]:
        """Where in the table the rows are that counted so far, in order."""
        return np.unique(np.concatenate([each.places for each in self._filters]))

    def __call__(self, start: int, num_rows: int, batch: pd.DataFrame) -> Flags:
        """Which of the rows from a place on count for any, shape (num_rows,)."""
        keep = np.zeros(num_rows, dtype=np.bool_)
        for each in self._filters:
            keep |= each(start, num_rows, batch)
        return keep


def _within(wanted: range, start: int, num_rows: int) -> slice:
    """Where a range is among the rows from a place on.

    >>> _within(range(10, 100, 3), 11, 5), _within(range(4, -1, -1), 3, 9)
    (slice(2, 5, 3), slice(0, 2, 1))
    """
    forwards = wanted if wanted.step > 0 else wanted[::-1]
    first, step = forwards.start - start, forwards.step
    # The first that is not before these rows.
    first = max(first, first % step)
    return slice(first, max(first, min(forwards.stop - start, num_rows)), step)
