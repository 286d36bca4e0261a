"""Which rows of a table count: a range of rows, and what columns must say there."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from common.arrays import Flags
from common.conditions import matches
from common.pushdown import Extent, Wanted

_ROW = re.compile(r"(?:-?[0-9]{1,18})?", re.ASCII)
# More rows than any table has.
_EVERY = range(sys.maxsize)


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


class RowFilter:
    """Decides which rows count: first the range, then the conditions.

    Args:
      rows: The range, in Python's slice notation; None for all.
      where: Columns and the condition of each.
      count: Says how many rows the table has; asked only where the range counts from the end.
      with_places: Whether it notes where the rows are that count: 8 bytes for each.
    """

    def __init__(
        self,
        rows: str | None,
        where: Mapping[str, Any],
        *,
        count: Callable[[], int],
        with_places: bool,
    ) -> None:
        wanted = slice(None) if rows is None else parse_rows(rows)
        from_the_end = any((part or 0) < 0 for part in (wanted.start, wanted.stop, wanted.step))
        self._range = (range(count()) if from_the_end else _EVERY)[wanted]
        self._where = dict(where)
        self._wanted = {name: Wanted(condition) for name, condition in where.items()}
        # Where the rows that count are, by the start of their batch.
        self._places: dict[int, NDArray[np.int64]] | None = {} if with_places else None

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it must see."""
        return list(self._where)

    @property
    def conditions(self) -> Mapping[str, Any]:
        """What all rows that count satisfy, if only that decides which rows count."""
        return self._where if self._range == _EVERY else {}

    @property
    def is_backwards(self) -> bool:
        """Whether the range runs from the last row to the first."""
        return self._range.step < 0

    @property
    def places(self) -> NDArray[np.int64]:
        """Where in the table the rows are that counted so far, in their order.

        Raises:
          RuntimeError: This filter was made without noting them.
        """
        if self._places is None:
            raise RuntimeError("this filter notes no places")
        return np.concatenate([np.empty(0, dtype=np.int64), *self._places.values()])

    def passes_over(self, start: int, num_rows: int, extent: Extent) -> bool:
        """Whether surely none of the rows from a place on counts, which then are not read."""
        inside = _within(self._range, start, num_rows)
        return inside.start >= inside.stop or not all(
            wanted.may_be_in(extent(name)) for name, wanted in self._wanted.items()
        )

    def __call__(self, start: int, num_rows: int, batch: pd.DataFrame) -> Flags:
        """Which of the rows from a place on count, shape (num_rows,)."""
        inside = _within(self._range, start, num_rows)
        keep = np.zeros(num_rows, dtype=np.bool_)
        keep[inside] = True
        if keep.any():
            for name, condition in self._where.items():
                keep[inside] &= matches(batch[name].iloc[inside], condition)
        if self._places is not None:
            self._places[start] = start + np.flatnonzero(keep)
        return keep


class AnyFilter:
    """Decides which rows any of several filters wants, each of which keeps its own places."""

    def __init__(self, filters: Sequence[RowFilter]) -> None:
        self._filters = filters

    @property
    def columns(self) -> Sequence[str]:
        """The columns that they must see."""
        return list(dict.fromkeys(name for each in self._filters for name in each.columns))

    @property
    def conditions(self) -> Mapping[str, Any]:
        """None that all rows satisfy; and each filter finds its rows by their places."""
        return {}

    @property
    def places(self) -> NDArray[np.int64]:
        """Where in the table the rows are that counted so far, in order."""
        return np.unique(np.concatenate([each.places for each in self._filters]))

    def passes_over(self, start: int, num_rows: int, extent: Extent) -> bool:
        """Whether surely none of the rows from a place on counts for any."""
        return all(each.passes_over(start, num_rows, extent) for each in self._filters)

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
