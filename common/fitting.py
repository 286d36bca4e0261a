"""The rules of single columns and of the target: how they map a cell, how columns' are fitted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Literal, Self

import numpy as np
import pandas as pd
from pydantic import Field, model_validator

from common.arrays import Flags, Vector, either
from common.columns import (
    category_keys,
    has_percent_sign,
    parse_month,
    parse_months,
    parse_number,
    parse_numbers,
)
from common.config import Lasting
from common.domain import without_specks
from common.map_numbers import center_and_scale, tidy, tidy_for

# So large that public files do not come near, so small that sums of products stay finite.
LARGEST_NUMBER = 1e15
SMALLEST_SCALE = 1e-15
# Values that say that there is none: a few, and short ones.
MOST_MISSING, LONGEST_MISSING = 20, 100

Number = Annotated[float, Field(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
Scale = Annotated[float, Field(ge=SMALLEST_SCALE, le=LARGEST_NUMBER)]
Bound = Annotated[float, Field(ge=0, le=LARGEST_NUMBER)]
Kind = Literal["number", "date", "category"]
CategoryOrder = Literal["target", "mean", "name"]
NoValue = Annotated[str, Field(min_length=1, max_length=LONGEST_MISSING)]
NoValues = Annotated[tuple[NoValue, ...], Field(max_length=MOST_MISSING)]

NO_VARIATION = "constant"  # of a column that is left out: its values are alike within the bounds
TOO_LARGE = f"only numbers beyond {LARGEST_NUMBER:g}"
# This many of a column's values must read as numbers (or dates) for the column to be one.
READABLE_SHARE = 0.95
# A text column with more distinct values is free text, unless its settings say otherwise.
MOST_CATEGORIES = 1000
# A category's mean target counts as if this many average records were added to it.
PRIOR_RECORDS = 20.0
# A class of more values than this is better written as a column of its own.
MOST_POSITIVE = 1000
# A target of more values is none of words that people spell.
MOST_PUBLIC_VALUES = 100


class ColumnRule(Lasting):
    """How one raw column becomes one standardised number.

    Args:
      name: The column.
      kind: A number, a date (months since January 2000) or a category (its code).
      shares: Whether its numbers are shares of one, so that 10% is 0.1; else it is 10.
      codes: The code of each category of the public records.
      unknown: The code of a category that the public records do not have.
      fill: What stands for a missing value; of a category, its code.
      low: Lower public bound of the number.
      high: Upper public bound of the number.
      center: Subtracted from the clamped number.
      scale: The difference is divided by it.
      missing: Values that say that there is none, such as 999, as
        :func:`common.columns.category_key` writes them.
    """

    FIRST_FIELDS = (
        "name",
        "kind",
        "shares",
        "codes",
        "unknown",
        "fill",
        "low",
        "high",
        "center",
        "scale",
    )

    name: str
    kind: Kind
    shares: bool = False
    codes: dict[str, Number] = Field(default_factory=dict)
    unknown: Number = 0.0
    fill: Number
    low: Number
    high: Number
    center: Number
    scale: Scale
    missing: NoValues = ()

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"column {self.name!r}: low is above high")
        return self

    def raw(self, column: pd.Series) -> Vector:
        """The numbers, dates or codes of a column, shape (n,), NaN where a value is missing."""
        match self.kind:
            case "number":
                return _without(parse_numbers(column, shares=self.shares), self.numbers_missing)
            case "date":
                return _without(parse_months(column), self.numbers_missing)
            case "category":
                return self._coded(column)

    def _coded(self, column: pd.Series) -> Vector:
        positions, keys = category_keys(column)
        # One table for both: whatever a cell says is found in the same time.
        known = {**self.codes, **dict.fromkeys(self.missing, np.nan)}
        codes = [known.get(key, self.unknown) for key in keys]
        return np.array([*codes, np.nan], dtype=np.float64)[positions]

    @property
    def numbers_missing(self) -> list[float]:
        """The numbers, or months, that say that there is no value, each in one spelling."""
        parse = parse_month if self.kind == "date" else partial(parse_number, shares=self.shares)
        codes = dict.fromkeys(map(parse, self.missing))
        return [code for code in codes if not math.isnan(code)]

    def clamped(self, column: pd.Series) -> Vector:
        """The raw numbers, filled and clamped to the public bounds, shape (n,)."""
        raw = self.raw(column)
        filled = either(np.isnan(raw), self.fill, raw)
        return without_specks(np.clip(filled, self.low, self.high))

    def standardised(self, column: pd.Series) -> Vector:
        """The clamped numbers, centred and scaled, shape (n,)."""
        return (self.clamped(column) - without_specks(np.array([self.center]))) / self.scale


class TargetRule(Lasting):
    """How the raw target becomes a bounded number, or one of the classes -1 and +1.

    Args:
      name: The column.
      positive: The category that is +1, every other being -1; None for a number.
      also_positive: More categories that are +1.
      shares: Whether its numbers are shares of one, so that 10% is 0.1; else it is 10.
      center: Subtracted from the number.
      scale: The difference is divided by it.
      bound: Largest absolute target after that.
      fill: The target, after all this, of a record without one.
      public_values: The values of the public records, of classes only and where they are few.
        They help whoever looks at records to see that a class is spelt otherwise. No record is
        read by them, so they stand in files and are no part of a map's canonical text.
      missing: As of :class:`ColumnRule`.
    """

    FIRST_FIELDS = ("name", "positive", "shares", "center", "scale", "bound", "fill")

    name: str
    positive: str | None = None
    also_positive: Annotated[tuple[str, ...], Field(max_length=MOST_POSITIVE)] = ()
    shares: bool = False
    center: Number = 0.0
    scale: Scale = 1.0
    bound: Annotated[float, Field(gt=0, le=LARGEST_NUMBER)]
    fill: Number
    public_values: Annotated[
        tuple[str, ...], Field(max_length=MOST_PUBLIC_VALUES, exclude=True)
    ] = ()
    missing: NoValues = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.positive is not None and not (self.bound == 1.0 and abs(self.fill) == 1.0):
            raise ValueError("target: classes need bound 1 and fill -1 or 1")
        if abs(self.fill) > self.bound:
            raise ValueError("target: fill is outside the bound")
        if self.also_positive and self.positive is None:
            raise ValueError("target: also_positive needs positive")
        if self.public_values and self.positive is None:
            raise ValueError("target: public_values needs positive")
        if set(self.missing) & set(self.class_values):
            raise ValueError("target: a value of class +1 cannot be one that says there is none")
        return self

    @property
    def class_values(self) -> tuple[str, ...]:
        """The values of class +1; none of a number."""
        return () if self.positive is None else (self.positive, *self.also_positive)

    def raw(self, column: pd.Series) -> Vector:
        """Numbers, or classes -1 and +1, shape (n,), NaN where a target is missing."""
        if self.positive is None:
            missing = (parse_number(value, shares=self.shares) for value in self.missing)
            return _without(parse_numbers(column, shares=self.shares), missing)
        positions, keys = category_keys(column)
        wanted, none = set(self.class_values), set(self.missing)
        signs = [np.nan if key in none else 2.0 * (key in wanted) - 1.0 for key in keys]
        return np.array([*signs, np.nan], dtype=np.float64)[positions]

    def scaled(self, raw: Vector) -> Vector:
        """Raw targets, centred, scaled and clamped to the bound, shape (n,)."""
        with np.errstate(over="ignore"):  # A giant target becomes infinite, then the bound.
            scaled = (without_specks(raw) - without_specks(np.array([self.center]))) / self.scale
        return np.clip(either(np.isnan(scaled), self.fill, scaled), -self.bound, self.bound)


def _without(numbers: Vector, missing: Iterable[float]) -> Vector:
    """The same, NaN where a number says that there is none; each takes the same time."""
    for code in missing:
        numbers = either(numbers == code, np.nan, numbers)
    return numbers


def fit_column(
    column: pd.Series,
    targets: Vector,
    *,
    coverage: float,
    order: CategoryOrder,
    max_categories: int,
    categorical: bool,
) -> ColumnRule | str:
    """The rule of one column, or the reason why it has none.

    Args:
      column: The public records' cells, n of them.
      targets: Their targets after the target's rule, shape (n,).
      coverage: Share of the numbers within their bounds.
      order: What orders the codes of categories.
      max_categories: A text column with more distinct values is free text.
      categorical: Treat numbers as names.
    """
    positions, keys = category_keys(column)
    present = positions >= 0
    if not present.any():
        return "no values"
    name, shares = str(column.name), are_shares(column)
    read = None if categorical else read_as_numbers(column, present, shares=shares)
    if read is not None:
        kind, raw = read
        return _fit_number(name, kind, raw, coverage, shares and kind == "number")
    if is_free_text(keys, max_categories):
        return "free text"
    cells = [keys[i] if i >= 0 else None for i in positions]
    return _fit_category(name, cells, targets, coverage, order)


def read_as_numbers(
    column: pd.Series, present: Flags, *, shares: bool
) -> tuple[Literal["number", "date"], Vector] | None:
    """A column as numbers, or else as dates, where enough of its values read so; None elsewhere.

    Args:
      column: Its cells, n of them.
      present: Which of them have a value, shape (n,).
      shares: Whether its numbers are shares of one.

    Returns:
      (what they are, the numbers or months, shape (n,)).
    """
    numbers = parse_numbers(column, shares=shares)
    if _readable(numbers, present):
        return "number", numbers
    months = parse_months(column)
    return ("date", months) if _readable(months, present) else None


def is_free_text(keys: Sequence[str], max_categories: int) -> bool:
    """Whether the distinct values of a column are too many for categories."""
    return len(keys) > max_categories


def _readable(parsed: Vector, present: Flags) -> bool:
    """Whether enough of the values that are there could be read."""
    return bool(np.mean(~np.isnan(parsed[present])) >= READABLE_SHARE)


def are_shares(column: pd.Series) -> bool:
    """Whether a percent sign means a hundredth beside the public values.

    Where public values carry the sign, 10.65% and 10.65 are the same. Where they carry none
    and lie below 1.5 they are shares, and an owner's 10.65% is 0.1065.
    """
    if has_percent_sign(column):
        return False
    numbers = np.abs(parse_numbers(column))
    numbers = numbers[np.isfinite(numbers)]
    return bool(numbers.size and np.quantile(numbers, 0.99) <= 1.5)


def _fit_number(
    name: str, kind: Kind, raw: Vector, coverage: float, shares: bool
) -> ColumnRule | str:
    """Median as fill value, central quantiles as bounds, then mean and deviation."""
    known = raw[np.abs(raw) <= LARGEST_NUMBER]
    if not known.size:
        return "no values" if np.isnan(raw).all() else TOO_LARGE
    low, high = _central(known, coverage)
    if low >= high:
        return NO_VARIATION
    fill = tidy_for(np.median(known), high - low)
    clamped = np.clip(np.where(np.isnan(raw), fill, raw), low, high)
    center, scale = center_and_scale(clamped)
    if not scale >= SMALLEST_SCALE:
        return NO_VARIATION
    return ColumnRule(
        name=name,
        kind=kind,
        shares=shares,
        fill=fill,
        low=low,
        high=high,
        center=center,
        scale=scale,
    )


def _central(values: Vector, coverage: float) -> tuple[float, float]:
    """Bounds of the central share of values."""
    tail = (1.0 - coverage) / 2.0
    low, high = map(float, np.quantile(values, [tail, 1.0 - tail]))
    return tidy_for(low, high - low), tidy_for(high, high - low)


def _fit_category(
    name: str, keys: list[str | None], targets: Vector, coverage: float, order: CategoryOrder
) -> ColumnRule | str:
    """Codes; a value that is missing and one that is unknown have codes of their own."""
    codes, unknown, missing = _codes(keys, targets, order)
    raw = np.array([missing if key is None else codes[key] for key in keys], dtype=np.float64)
    low, high = _central(raw, coverage)
    if low >= high:
        return NO_VARIATION
    return ColumnRule(
        name=name,
        kind="category",
        codes=dict(sorted(codes.items())),
        unknown=unknown,
        fill=missing,
        low=0.0,
        high=float(len(codes) + 1),
        center=tidy(np.mean(raw)),
        scale=tidy(np.std(raw)),
    )


def _codes(
    keys: list[str | None], targets: Vector, order: CategoryOrder
) -> tuple[dict[str, float], float, float]:
    """(code of each category, code of an unknown one, code of a missing value).

    By target, an unknown category stands where the average record stands, so that a model
    expects nothing in particular of it. By mean they also lie as far apart as their means do.
    """
    average = float(np.mean(targets))
    means: dict[tuple[int, str], float] = {(1, ""): average, (2, ""): average}
    for key, mean in category_means(keys, targets).items():
        means[(2, "") if key is None else (0, key)] = mean
    ranked = sorted(means) if order == "name" else sorted(means, key=lambda k: (means[k], k))
    rank = {key: float(code) for code, key in enumerate(ranked)}
    least, most = means[ranked[0]], means[ranked[-1]]
    if order == "mean" and most > least:
        rank = {k: tidy((means[k] - least) / (most - least) * (len(rank) - 1)) for k in ranked}
    return {key: rank[kind, key] for kind, key in rank if kind == 0}, rank[1, ""], rank[2, ""]


def category_means(keys: list[str | None], targets: Vector) -> dict[str | None, float]:
    """The mean target of each category, and of what is missing, as what orders codes."""
    average = float(np.mean(targets))
    sums = pd.DataFrame({"key": keys, "target": targets}, dtype=object)
    groups = sums.groupby("key", dropna=False, sort=True)["target"].agg(["sum", "size"])
    return {
        key if isinstance(key, str) else None: (total + PRIOR_RECORDS * average)
        / (count + PRIOR_RECORDS)
        for key, total, count in zip(groups.index, groups["sum"], groups["size"], strict=True)
    }
