"""What a setting says that a column must hold: a value, several values, or a range."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import pandas as pd
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
        return _cell(value)
    if isinstance(value, Mapping):
        if not {*value} <= {"min", "max"}:
            raise ValueError("expected a range with min, max or both, such as { min = 18 }")
        return Between.model_validate(value)
    if isinstance(value, float):
        return parse_number(value)
    if isinstance(value, list | tuple) and value and all(_is_value(part) for part in value):
        return tuple(map(_cell, value))
    raise ValueError(
        "expected a value, a list of values, or a range such as { min = 18, max = 65 }"
    )


def _cell(value: Any) -> Any:
    """A value as it is compared: true is the cell that says 1, as in tables of flags."""
    return int(value) if isinstance(value, bool) else value


def _is_value(value: object) -> bool:
    return isinstance(value, str | int | float) and not (
        isinstance(value, float) and math.isnan(value)
    )


Condition = Annotated[
    str | int | float | tuple[str | int | float, ...] | Between, BeforeValidator(_condition)
]


def matches(column: pd.Series, condition: Any) -> Flags:
    """Which cells satisfy a condition, however they are stored, shape (n,).

    A cell without a value, and one that does not read as the range's kind, satisfy none.

    >>> matches(pd.Series(["36", "60", ""]), Between(min=40)), matches(pd.Series([1, 2]), (2, "x"))
    (array([False,  True, False]), array([False,  True]))
    """
    if isinstance(condition, Between):
        cells = parse_months(column) if condition.is_of_dates else parse_numbers(column)
        low, high = limits_of(condition)
        within: Flags = (cells >= low) & (cells <= high)
        return within
    wanted = keys_of(condition)
    codes, keys = category_keys(column)
    matching: Flags = np.array([*(key in wanted for key in keys), False])[codes]
    return matching


def limits_of(condition: Between) -> tuple[float, float]:
    """A range's ends as cells are compared with them, infinite where it has none.

    >>> limits_of(Between(min=18)), limits_of(Between(max="2000-03-01"))
    ((18.0, inf), (-inf, 2.0))
    """
    low = -math.inf if condition.min is None else _end(condition.min)
    high = math.inf if condition.max is None else _end(condition.max)
    return low, high


def keys_of(condition: Any) -> set[str]:
    """The keys of the cells that satisfy a condition of one value or of several.

    >>> sorted(keys_of((36, "36.0", "  New   York ", "")))
    ['36', 'New York']
    """
    values = condition if isinstance(condition, tuple) else (condition,)
    return {key for value in values if (key := category_key(value)) is not None}


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
