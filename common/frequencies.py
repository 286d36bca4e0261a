"""Columns of a raw table that say how many records a row stands for: here each row is one record.

For the holder of the table: nothing of this may be shown to anybody else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from common.column_names import ANY_WEIGHT, COUNT, WEIGHT, is_called
from common.looking import Column, Look

# Of weights of people and parcels hardly any is so far from the middle; of a survey's, this share.
UNLIKE = 0.01
# So many pairs of rows would be alike by chance where no two are: each row stands for a kind.
PAIRS = 3.0


def frequency_notes(look: Look, *, target: str = "") -> list[str]:
    """What to know of columns that count records, or weigh them.

    Args:
      look: The table.
      target: What is predicted: a number of cases may be.

    >>> from common.looking import look_at
    >>> table = pd.DataFrame({"sex": ["f", "m"] * 4, "ill": ["y", "y", "n", "n"] * 2})
    >>> table = table.assign(old=[0] * 4 + [1] * 4, Freq=[3, 5, 0, 2, 9, 4, 4, 12])
    >>> frequency_notes(look_at(table))[0][:60]
    'Freq: seems to say how many records each row stands for, sin'
    """
    columns = [c for c in look.columns.values() if c.name != target and c.kind == "number"]
    weights = [c for c in columns if is_called(c.name, WEIGHT)]
    unlike = [c for c in columns if is_called(c.name, ANY_WEIGHT) and c not in weights]
    unlike = [c for c in unlike if c.far_out.size > UNLIKE * c.count]
    counts = [c for c in columns if is_called(c.name, COUNT) and _counts_kinds(c, look)]
    return [
        *(
            f"{c.shown}: seems to be the weight of a survey's records; every row counts as one "
            "record whatever it says: leave it out"
            for c in weights
        ),
        *(
            f"{c.shown}: if it is the weight of a survey's records, leave it out: every row counts "
            "as one record whatever it says"
            for c in unlike
        ),
        *(
            f"{c.shown}: seems to say how many records each row stands for, since no two rows are "
            "alike beside it; every row counts as one record: repeat each row as often as it "
            "says, and remove the column"
            for c in counts
            if c not in [*weights, *unlike]
        ),
    ]


def _counts_kinds(column: Column, look: Look) -> bool:
    """Whether it stands beside kinds of records of which each has a row."""
    known = column.numbers[np.isfinite(column.numbers)]
    if not known.size or known.min() < 0 or known.max() <= 1:
        return False
    others = [
        c for c in look.columns.values() if c is not column and not (c.is_identifier or _is_row(c))
    ]
    return bool(others) and _are_all_kinds(others, look.num_records)


def _is_row(column: Column) -> bool:
    """Whether its numbers are those of the rows of a table of any length."""
    return bool(np.array_equal(np.diff(column.numbers), np.ones(len(column.numbers) - 1)))


def _are_all_kinds(columns: Sequence[Column], count: int) -> bool:
    """Whether no two of so many rows are alike, by no column alone, where some would be."""
    kinds = math.prod(float(c.distinct + (c.missing > 0)) for c in columns)
    if count**2 / (2.0 * kinds) < PAIRS or any(c.distinct == count for c in columns):
        return False
    return not pd.DataFrame({k: c.numbers for k, c in enumerate(columns)}).duplicated().any()
