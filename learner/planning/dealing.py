"""Which rows of a raw table are public: the last, or rows that are dealt evenly over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common.arrays import Indices, Vector
from common.looking import Column, Look
from common.texts import brief, first_few

# Public rows are another kind of records where the largest difference of two shares is so much more
# than where they are dealt.
SHIFTED = 0.2
# This many columns are named in a sentence.
NAMED = 5


@dataclass(frozen=True)
class Shift:
    """A column that says something else of the public rows than of the others.

    Args:
      name: The column.
      beyond: The share of the others' values that no public row has: beyond their smallest and
        largest number, or of categories that none of them has.
    """

    name: str
    beyond: float


def deal(num_rows: int, count: int) -> Indices:
    """The places of this many rows that are dealt evenly, in order; equal arguments deal equally.

    The table is cut into as many stretches, and one row of each is drawn: what the table is sorted
    by is as among the others, and a table whose rows take turns is not met in step.

    >>> deal(12, 3) // 4
    array([0, 1, 2])
    """
    edges = np.arange(count + 1) * num_rows // count
    # The same table gives the same study; what is public is no secret.
    return edges[:-1] + np.random.default_rng(0).integers(np.diff(edges))


def deal_persons(whose: Indices, count: int) -> Indices:
    """The places of about this many rows that are dealt evenly, all of a person's or none.

    Args:
      whose: Of each row the first one of the same person, shape (n,).
      count: How many rows.

    >>> deal_persons(np.array([0, 0, 0, 3, 3, 5, 6, 6, 5, 9, 10, 10]), 4)
    array([5, 8, 9])
    """
    persons = np.unique(whose)
    number = max(1, round(count * len(persons) / len(whose)))
    return np.flatnonzero(np.isin(whose, persons[deal(len(persons), number)]))


def shifts(look: Look, public: Indices, *, drop: Sequence[str] = ()) -> list[Shift]:
    """The columns in which public rows differ from the others, the largest differences first.

    Chance differs from table to table, so what is too much is measured against rows that are dealt.

    Args:
      look: The table.
      public: The places of the public rows.
      drop: Columns that do not count.
    """
    dealt = deal(look.num_records, len(public))
    found = []
    for column in look.columns.values():
        if column.name in drop or column.is_constant or column.is_identifier:
            continue
        if column.kind in {"text", "empty"}:
            continue
        if _distance(column, public) - _distance(column, dealt) >= SHIFTED:
            found.append(Shift(column.name, _beyond(column, public)))
    return sorted(found, key=lambda shift: -shift.beyond)


def in_words(found: Sequence[Shift]) -> str:
    """The columns, and how many of the other rows lie outside of the public ones' values.

    >>> in_words([Shift("year", 1.0), Shift("rate", 0.25), Shift("age", 0.004)])
    'year (100% of the others lie outside of their values), rate (25%), age'
    """
    columns, words = [], " of the others lie outside of their values"
    for shift in found:
        share = f"{shift.beyond:.0%}"
        outside = "" if share == "0%" else f" ({share}{words})"
        columns.append(brief(shift.name) + outside)
        words = ""
    return first_few(columns, NAMED)


def _parts(column: Column, public: Indices) -> tuple[Vector, Vector]:
    """What a column says of the public rows and of the others, without gaps."""
    is_public = np.zeros(len(column.numbers), dtype=bool)
    is_public[public] = True
    known = np.isfinite(column.numbers)
    return column.numbers[known & is_public], column.numbers[known & ~is_public]


def _distance(column: Column, public: Indices) -> float:
    """From 0 for the same to 1 for nothing in common.

    Of numbers it is the largest difference of the shares below any of them (Kolmogorov), of
    categories half the sum of all differences (the total variation), of gaps that of their shares.
    """
    ours, theirs = _parts(column, public)
    others = len(column.numbers) - len(public)
    gaps = abs(len(ours) / max(len(public), 1) - len(theirs) / max(others, 1))
    if not ours.size or not theirs.size:
        return gaps
    values, places = np.unique(np.concatenate([ours, theirs]), return_inverse=True)
    first = np.bincount(places[: ours.size], minlength=values.size) / ours.size
    second = np.bincount(places[ours.size :], minlength=values.size) / theirs.size
    if column.kind == "category":
        return max(gaps, float(np.abs(first - second).sum() / 2.0))
    return max(gaps, float(np.abs(np.cumsum(first - second)).max()))


def _beyond(column: Column, public: Indices) -> float:
    ours, theirs = _parts(column, public)
    if not ours.size or not theirs.size:
        return 0.0
    if column.kind == "category":
        return float(np.mean(~np.isin(theirs, ours)))
    return float(np.mean((theirs < ours.min()) | (theirs > ours.max())))
