"""Rows of a raw table that are empty or stand in it twice, and values that several records share.

For the holder of the table: nothing of this may be shown to anybody else.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from common.looking import FEWEST_RECORDS, IDENTIFYING, Look
from common.texts import counted

__all__ = ["copy_notes"]

# Where rows of few kinds are alike by chance, no number of copies has more than a third of them.
MOSTLY_SO_OFTEN = 0.5


def copy_notes(look: Look) -> Iterator[str]:
    """What to know of rows that are the same, and of records that may be one person's.

    >>> from common.looking import look_at
    >>> look = look_at(pd.DataFrame({"patient id": [*range(30), 7], "age": [*range(30), 9]}))
    >>> next(copy_notes(look))[:59]
    'patient id: up to 2 records have the same value; if it name'
    """
    columns = look.columns.values()
    rows = pd.DataFrame({i: column.numbers for i, column in enumerate(columns)})
    rows = rows[rows.notna().any(axis=1)]
    empty = look.num_records - len(rows)
    if empty:
        yield (
            f"{counted(empty, 'row')} of {look.num_records:,} "
            f"{'is' if empty == 1 else 'are'} empty, as spreadsheets leave them below a table; "
            "remove such rows: each counts as a record"
        )
    repeated = _repeated(look, rows)
    if repeated:
        says = "says" if repeated == 1 else "say"
        yield (
            f"{counted(repeated, 'row')} of {look.num_records:,} {says} the same as an earlier one "
            "in every column; if these are copies, remove them: each counts as a record, so a "
            "person is protected less, and a public one gives the record away that it copies"
        )
    for column in columns:
        most = 0 if repeated else column.most_of_a_person
        if most > 1:
            yield (
                f"{column.shown}: up to {most:,} records have the same value; if it names persons, "
                f"each is protected less by so much, unless privacy.kappa = {most}"
            )


def _repeated(look: Look, rows: pd.DataFrame) -> int:
    """How many rows are copies of an earlier one; 0 where they may be alike by chance."""
    times = np.unique(pd.util.hash_pandas_object(rows, index=False), return_counts=True)[1]
    distinct = times.size
    if distinct == len(rows) or distinct < FEWEST_RECORDS:
        return 0
    often = np.bincount(times)
    is_named = any(column.distinct >= IDENTIFYING * distinct for column in look.columns.values())
    so_often = often[2:].max(initial=0) > MOSTLY_SO_OFTEN * distinct
    return len(rows) - distinct if is_named or so_often else 0
