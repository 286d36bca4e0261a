"""How far one column of a raw table determines another: leaks of the target, names of owners."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from common.arrays import Indices, Matrix, Vector
from common.looking import FEWEST_RECORDS, REPEATED, Column, within_reach

# A column that explains this much of the target's variance is the target, or comes after it.
LEAK = 0.95
# Numbers are cut into this many groups of equal size at most.
MOST_GROUPS = 50
# On either side of a threshold: fewer records lie there by chance.
FEWEST_BESIDE = 5
CLASSES = 2
# Columns that explain this much only together are parts of the target, or its beginning and end;
# more than a few of them are a good model.
TOGETHER, MOST_TOGETHER = 0.9, 4
# Of this many columns a target is no sum, and of this many records any share is known well.
MOST_COLUMNS, ENOUGH_RECORDS = 100, 20_000
# A direction that varies less is rounding.
ROUNDING = 1e-9


def explained_variance(column: Column, target: Vector) -> float:
    """Share of the target's variance that a column explains by itself: at 1 it determines it.

    The most that is found of numbers by a straight line, by a threshold, and in ranks, where any
    course that rises or falls is a line; and of all by the means of groups: of a value each where
    these have many records, else of neighbouring numbers. Cells without a value are a group.

    >>> counts = Column("num", "number", 5, 0, np.arange(100.0) % 5)
    >>> explained_variance(counts, np.where(counts.numbers > 0, 1.0, -1.0))
    1.0
    """
    known = np.isfinite(target)
    x, y = column.numbers[known], target[known]
    if y.size < FEWEST_RECORDS or not float(np.var(y)) > 0:
        return 0.0
    y = within_reach(y)
    found = [_by_groups(_groups(column, x), y)]
    has = np.isfinite(x)
    if column.kind in {"number", "date"} and np.count_nonzero(has) >= FEWEST_RECORDS:
        x, y = within_reach(x[has]), y[has]
        found += [_by_line(x, y), _by_threshold(x, y)]
        if np.unique(y).size > CLASSES:
            found.append(_by_line(_ranks(x), _ranks(y)))
    return min(max(found), 1.0)


def explained_together(columns: Sequence[Column], target: Vector) -> tuple[float, list[Column]]:
    """The fewest columns of numbers or dates whose sum or difference is nearly the target.

    Returns:
      (the share of its variance that they explain, the columns, at least two and a few at most);
      (0, []) where none do.

    >>> rng = np.random.default_rng(1)
    >>> begin, stay, age = rng.uniform(0, 900, 200), rng.uniform(1, 9, 200), rng.uniform(0, 99, 200)
    >>> table = {"begin": begin, "end": begin + stay, "age": age}
    >>> columns = [Column(name, "number", 200, 0, cells) for name, cells in table.items()]
    >>> share, found = explained_together(columns, stay)
    >>> round(share, 3), [column.name for column in found]
    (1.0, ['begin', 'end'])
    """
    rows = np.flatnonzero(np.isfinite(target))
    # A far target cut where its reach ends would be no sum any more.
    rows = rows[within_reach(target[rows]) == target[rows]]
    rows = rows[:: max(1, rows.size // ENOUGH_RECORDS)]
    found = [c for c in columns if c.kind in {"number", "date"} and not c.is_constant]
    if not 2 <= len(found) <= min(MOST_COLUMNS, rows.size // FEWEST_RECORDS):
        return 0.0, []
    x = _standard(np.array([_filled(column.numbers[rows]) for column in found]))
    y = _standard(target[rows])
    products, beside = x @ x.T / y.size + ROUNDING * np.eye(len(x)), x @ y / y.size
    share, kept = 0.0, np.arange(len(x))
    while kept.size:
        inverse = np.linalg.inv(products[np.ix_(kept, kept)])
        slopes = inverse @ beside[kept]
        explained = float(slopes @ beside[kept])
        if explained < TOGETHER:
            break
        share, last = explained, kept
        # What a sum loses without one of its columns.
        kept = np.delete(kept, np.argmin(slopes**2 / np.diag(inverse)))
    if not share or not 2 <= last.size <= MOST_TOGETHER:
        return 0.0, []
    return min(share, 1.0), [found[i] for i in last]


def _filled(numbers: Vector) -> Vector:
    """A column with its mean where it has no number, and nothing far out; all alike where none."""
    known = np.isfinite(numbers)
    if not known.any():
        return np.zeros(numbers.size)
    near = within_reach(numbers[known])
    filled = np.full(numbers.size, float(np.mean(near)))
    filled[known] = near
    return filled


def _standard(values: Matrix) -> Matrix:
    """Rows with mean 0 and deviation 1, or 0 where they do not vary."""
    centred = values - np.mean(values, axis=-1, keepdims=True)
    spread = np.std(centred, axis=-1, keepdims=True)
    return np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 0)


def _groups(column: Column, x: Vector) -> Indices:
    """The group of each cell: that of no value is 0."""
    has = np.isfinite(x)
    groups = np.zeros(x.size, dtype=np.intp)
    if column.distinct <= x.size / FEWEST_RECORDS:
        groups[has] = 1 + np.unique(x[has], return_inverse=True)[1]
    elif column.kind in {"number", "date"}:
        count = max(1, min(MOST_GROUPS, int(has.sum()) // FEWEST_RECORDS))
        shares = np.arange(1, count) / count
        edges = np.unique(np.quantile(x[has], shares)) if has.any() else np.empty(0)
        groups[has] = 1 + np.searchsorted(edges, x[has], side="right")
    else:
        groups[has] = 1
    return groups


def _by_groups(groups: Indices, y: Vector) -> float:
    counts = np.bincount(groups)
    means = np.bincount(groups, weights=y) / np.maximum(counts, 1)
    return float(np.average((means - y.mean()) ** 2, weights=counts) / np.var(y))


def _by_line(x: Vector, y: Vector) -> float:
    spread = float(np.std(x) * np.std(y))
    if not (np.isfinite(spread) and spread > 0):
        return 0.0
    return float(np.mean((x - x.mean()) * (y - y.mean())) / spread) ** 2


def _by_threshold(x: Vector, y: Vector) -> float:
    """The most that the two means beside any threshold explain."""
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order] - y.mean()
    below = np.arange(1, x.size)
    ends = (x[1:] > x[:-1]) & (below >= FEWEST_BESIDE) & (x.size - below >= FEWEST_BESIDE)
    if not ends.any() or not float(np.var(y)) > 0:
        return 0.0
    below, sums = below[ends], np.cumsum(y)[:-1][ends]
    return float(np.max(sums**2 / (below * (x.size - below))) / np.var(y))


def _ranks(values: Vector) -> Vector:
    return np.asarray(pd.Series(values).rank(), dtype=np.float64)


def identifies(column: Column, names: Column) -> float:
    """How far a column identifies the names in another: 1 names each, 0 no more than their counts.

    A column whose values hardly repeat would identify any other, and is not counted.

    >>> site, code = (Column(n, "number", 2, 0, np.arange(60.0) % 2) for n in ("site", "code"))
    >>> identifies(code, site)
    1.0
    """
    return 0.0 if column.distinct * REPEATED > column.count else goodman_kruskal(column, names)


def goodman_kruskal(column: Column, other: Column) -> float:
    """The share of wrong guesses at the other column that knowing the first saves.

    References: the lambda of Goodman and Kruskal (1954).
    """
    given, guessed = column.numbers, other.numbers
    known = np.isfinite(given) & np.isfinite(guessed)
    if not known.any():
        return 0.0
    left = np.unique(given[known], return_inverse=True)[1].astype(np.int64)
    right = np.unique(guessed[known], return_inverse=True)[1].astype(np.int64)
    most = int(np.bincount(right).max())
    pairs, counts = np.unique(left * (int(right.max()) + 1) + right, return_counts=True)
    best = np.zeros(int(left.max()) + 1, dtype=np.int64)
    np.maximum.at(best, pairs // (int(right.max()) + 1), counts)
    wrong = int(known.sum()) - most
    return 1.0 - (int(known.sum()) - int(best.sum())) / wrong if wrong else 0.0
