"""Rows and columns of a raw table that stand in it twice, and values that several records share.

For the holder of the table: nothing of this may be shown to anybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd

from common.arrays import Indices
from common.looking import FEWEST_RECORDS, IDENTIFYING, Column, Look
from common.texts import counted

# Where rows of few kinds are alike by chance, no number of copies has more than a third of them.
MOSTLY_SO_OFTEN = 0.5
# Of so many columns, those with the most values, none is what alone keeps other rows apart.
MOST_VARIED = 5
# Copies of more than one row in so many are told by how often each row occurs.
FEW_COPIES = 4
# Names of fewer records each divide a table alike where its rows were appended to it once more.
FEW_RECORDS = 3


def empty_notes(look: Look) -> Iterator[str]:
    """What to know of rows without any value."""
    empty = look.num_records - len(_filled_rows(look))
    if empty:
        yield (
            f"{counted(empty, 'row')} of {look.num_records:,} "
            f"{'is' if empty == 1 else 'are'} empty, as spreadsheets leave them below a table; "
            "remove such rows: each counts as a record"
        )


def copy_notes(look: Look, *, kappa: str = "privacy.kappa", protected: int = 1) -> Iterator[str]:
    """What to know of rows that are the same, and of records that may be one person's.

    Args:
      look: The table.
      kappa: The key of the settings that says how many records a person may have.
      protected: How many it says.

    >>> from common.looking import look_at
    >>> look = look_at(pd.DataFrame({"patient id": [*range(30), 7], "age": [*range(30), 9]}))
    >>> next(copy_notes(look))[:59]
    'patient id: up to 2 records have the same value; if it name'
    """
    repeated = _repeated(look, _filled_rows(look))
    if repeated:
        says = "says" if repeated == 1 else "say"
        yield (
            f"{counted(repeated, 'row')} of {look.num_records:,} {says} the same as an earlier one "
            "in every column; if these are copies, remove them: each counts as a record, so a "
            "person is protected less, and a public one gives the record away that it copies"
        )
    for column in look.columns.values():
        most = 0 if repeated else column.most_of_a_person
        if most > protected:
            yield (
                f"{column.shown}: up to {most:,} records have the same value; if it names persons, "
                f"each is protected less by so much, unless {kappa} = {most}"
            )


def _filled_rows(look: Look) -> pd.DataFrame:
    """The rows with a value, as numbers."""
    columns = look.columns.values()
    cells = [column.numbers if column.dates is None else column.dates for column in columns]
    rows = pd.DataFrame(dict(enumerate(cells)))
    return rows[rows.notna().any(axis=1)]


def persons_column(look: Look, *, besides: str | None = None) -> Column | None:
    """The column whose values name persons with several records, None where there is none.

    Of several, as of orders and of who ordered, the one with the fewest values.

    Args:
      look: The table.
      besides: A column that does not count, such as the owners'.
    """
    columns = [column for column in look.columns.values() if column.name != besides]
    named = [column for column in columns if column.most_of_a_person > 1]
    return min(named, key=lambda column: column.distinct, default=None)


def names_persons(column: Column) -> str:
    """What a sentence says of a column whose values name persons with several records, or nothing.

    >>> from common.looking import look_at
    >>> look = look_at(pd.DataFrame({"user": [*range(20)] * 30, "stay id": [*range(300)] * 2}))
    >>> [names_persons(column) for column in look.columns.values()]
    ['each of its values names a person', 'each of its values names few records']
    """
    if column.most_of_a_person < 2:
        return ""
    return f"each of its values names {'few records' if column.names_few else 'a person'}"


def whose_rows(persons: Column | None, count: int) -> Indices:
    """Of each row the first one of the same person, shape (count,); its own where none is named.

    >>> from common.looking import look_at
    >>> look = look_at(pd.DataFrame({"patient id": [*range(8), 7, 7, *range(8, 20), 0]}))
    >>> whose_rows(persons_column(look), 23)[[7, 8, 9, 10, 22]]
    array([ 7,  7,  7, 10,  0])
    """
    firsts = np.arange(count)
    if persons is not None:
        known = np.flatnonzero(np.isfinite(persons.numbers))
        _, first, who = np.unique(persons.numbers[known], return_index=True, return_inverse=True)
        firsts[known] = known[first][who]
    return firsts


def _repeated(look: Look, rows: pd.DataFrame) -> int:
    """How many rows are copies of an earlier one; 0 where they may be alike by chance."""
    times = np.unique(pd.util.hash_pandas_object(rows, index=False), return_counts=True)[1]
    distinct = times.size
    if distinct == len(rows) or distinct < FEWEST_RECORDS:
        return 0
    often = np.bincount(times)
    repeated = len(rows) - distinct
    is_named = any(column.distinct >= IDENTIFYING * distinct for column in look.columns.values())
    so_often = often[2:].max(initial=0) > MOSTLY_SO_OFTEN * distinct
    return repeated if is_named or so_often or _are_alike_in_all(look, rows, repeated) else 0


def _are_alike_in_all(look: Look, rows: pd.DataFrame, repeated: int) -> bool:
    """Whether rows that two columns tell apart repeat others in all columns, or in hardly any.

    Rows that are alike by chance are so in all columns but one far more often than in all.
    """
    if FEW_COPIES * repeated > len(rows):
        return False
    distinct = [column.distinct for column in look.columns.values()]
    varied = np.argsort(distinct)[: -1 - MOST_VARIED : -1]
    if _kinds(rows[varied[:2]]) < IDENTIFYING * (len(rows) - repeated):
        return False
    return all(len(rows) - _kinds(rows.drop(columns=name)) <= 2 * repeated for name in varied)


def _kinds(rows: pd.DataFrame) -> int:
    return int(pd.util.hash_pandas_object(rows, index=False).nunique())


def _best_of(group: Sequence[Column]) -> Column:
    """Of columns that say the same the one to learn from."""
    first = group[0]
    measuring = sorted((c for c in group if c.measures), key=lambda column: column.is_whole)
    best = next(iter(measuring), first)
    is_named = first.kind != "number" or first.is_code or first.looks_coded
    return best if is_named or not rise_together(first, best) else first


def rise_together(one: Column, other: Column) -> bool:
    """Whether one column of numbers rises, or falls, wherever another one does."""
    known = np.isfinite(one.numbers)
    order = np.argsort(one.numbers[known], kind="stable")
    steps = np.diff(other.numbers[known][order])
    return bool(np.all(steps >= 0) or np.all(steps <= 0))


def same_partition(columns: Sequence[Column]) -> dict[str, str]:
    """Columns that say the same as another one under other names, such as a code's text.

    Of these one is not among them: the first with fractions, or that measures, or else the first.
    One that rises or falls with the first, such as its square or logarithm, is no better than it.
    Amounts with fractions say the same only where they rise or fall together: a hospital's mean
    age and its town's income are both known from its name, and neither says what the other does.
    """
    same: dict[str, str] = {}
    for group in _alike([c for c in columns if not c.names_few], _partition):
        same |= _same_as_kept(group, _best_of(group))
    seldom = [column for column in columns if column.names_few]
    names = [c for c in seldom if not c.measures and c.distinct * FEW_RECORDS <= c.count]
    amounts = [c for c in seldom if c.measures and c.kind == "number" and not c.is_identifier]
    for group in (*_alike(names, _partition), *_alike(amounts, _order)):
        same |= {column.name: group[0].name for column in group[1:]}
    return same


def _alike(columns: Sequence[Column], key: Callable[[Column], bytes]) -> Sequence[Sequence[Column]]:
    """The columns by what a key says of them, each group in the order of the table."""
    alike: dict[bytes, list[Column]] = {}
    for column in columns:
        alike.setdefault(key(column), []).append(column)
    return list(alike.values())


def _partition(column: Column) -> bytes:
    """Which rows have the same value."""
    codes = pd.factorize(pd.Series(column.numbers), use_na_sentinel=True)[0]
    return codes.astype("<i8").tobytes()


def _order(column: Column) -> bytes:
    """How its numbers stand above each other, whether they rise or fall."""
    known = np.isfinite(column.numbers)
    ranks = np.full(known.shape, -1, dtype="<i8")
    ranks[known] = np.unique(column.numbers[known], return_inverse=True)[1]
    rising = ranks.tobytes()
    ranks[known] = ranks.max(initial=0) - ranks[known]
    return min(rising, ranks.tobytes())


def _same_as_kept(group: Sequence[Column], best: Column) -> dict[str, str]:
    """Which columns of one partition say the same as one of it that stays."""
    same, kept = {}, [best]
    for column in (c for c in group if c is not best):
        is_amount = column.measures and not column.is_whole
        one = next((k for k in kept if not is_amount or rise_together(k, column)), None)
        if one is None:
            kept.append(column)
        else:
            same[column.name] = one.name
    return same
