"""Records that several owners of a study hold, as far as their tables are here.

Each owner spends its own epsilon, so a record that k of them hold is protected k times less: that
is what privacy.kappa is for.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from common.arrays import Indices
from common.errors import DoubtWarning
from common.texts import counted

# Equal records are taken for the same only where they are this many times more than chance makes.
BEYOND_CHANCE = 3
FEWEST_EQUAL = 20


@dataclass(frozen=True)
class Rows:
    """Which rows of which table an owner's records are.

    Args:
      table: What tells this table from others.
      places: The rows' places in it, shape (n,).
    """

    table: tuple[object, ...]
    places: NDArray[np.int64]


@dataclass(frozen=True)
class _Shared:
    """Records that several owners hold.

    Args:
      pair: The two owners that share most, by index.
      count: How many records these two share.
      pairs: How many pairs of owners share any, as far as they follow each other.
      most: In how many shards one record is at most.
    """

    pair: tuple[int, int]
    count: int
    pairs: int
    most: int


def warn_of_shared_records(
    names: Sequence[str], tables: Sequence[pd.DataFrame], rows: Sequence[Rows], *, kappa: int
) -> None:
    """Warn once where records are several owners' and kappa does not cover it.

    The same row of the same table is surely the same record. Records of other tables that say the
    same may be so by chance, as they are within a table: of those that occur once at an owner,
    people of one kind repeat between two owners no more often than twice within these.

    Args:
      names: The owners' names.
      tables: Their raw records.
      rows: Where these are.
      kappa: In how many shards one record may be.

    Warns:
      DoubtWarning: Records are several owners', and kappa does not cover it.

    >>> import warnings
    >>> at = [Rows(("t",), np.arange(9)), Rows(("t",), np.arange(6, 15))]
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_of_shared_records(["a", "b"], [pd.DataFrame({"x": range(9)})] * 2, at, kappa=1)
    >>> str(caught[0].message)[:43]
    'owners: 3 records of a are also records of '
    """
    if len(names) < 2:
        return
    found, how = _same_rows(rows), "are also records of"
    if found is None and len({its.table for its in rows}) > 1:
        found, how = (
            _equal_records(tables),
            "say word for word what records of another table do, of",
        )
    if found is None or found.most <= kappa:
        return
    one, other = (names[i] for i in found.pair)
    more = f", and {counted(found.pairs - 1, 'more pair')} of owners share some"
    are = how if found.count > 1 else how.replace("are", "is").replace("say", "says")
    warnings.warn(
        f"owners: {counted(found.count, 'record')} of {one} {are} {other}"
        f"{more if found.pairs > 1 else ''}: each owner spends its own epsilon on such a record; "
        f"set privacy.kappa = {found.most}, in how many shards one record may be, or give the "
        "owners other rows",
        DoubtWarning,
        stacklevel=2,
    )


def _same_rows(rows: Sequence[Rows]) -> _Shared | None:
    """What owners share of one table's rows."""
    by_table: dict[tuple[object, ...], list[int]] = {}
    for index, its in enumerate(rows):
        by_table.setdefault(its.table, []).append(index)
    owners, records, start = [], [], 0
    for indices in by_table.values():
        if len(indices) < 2:
            continue
        for index in indices:
            owners.append(np.full(len(rows[index].places), index))
            records.append(rows[index].places + start)
        start += max(int(rows[i].places.max(initial=0)) for i in indices) + 1
    return _shared(np.concatenate(owners), np.concatenate(records)) if owners else None


def _equal_records(tables: Sequence[pd.DataFrame]) -> _Shared | None:
    """What owners share of records that occur once at each, where it is more than chance."""
    owners, records, twice = [], [], np.zeros(len(tables))
    for index, table in enumerate(tables):
        cells = table[sorted(table.columns)]
        hashes = pd.util.hash_pandas_object(cells, index=False).to_numpy(np.uint64)
        distinct, counts = np.unique(hashes, return_counts=True)
        once = distinct[counts == 1]
        owners.append(np.full(len(once), index))
        records.append(once)
        twice[index] = np.count_nonzero(counts == 2)
    found = _shared(np.concatenate(owners), np.concatenate(records))
    if found is None:
        return None
    by_chance = twice[list(found.pair)].sum()
    return found if found.count > BEYOND_CHANCE * by_chance + FEWEST_EQUAL else None


def _shared(owners: Indices, records: NDArray[np.generic]) -> _Shared | None:
    """What is shared where record j is owner i's, each at most once at an owner; None of nothing.

    Owners of one record are paired with the next one only: of thousands all pairs are too many.
    """
    order = np.lexsort((owners, records))
    owners, records = owners[order], records[order]
    again = records[1:] == records[:-1]
    if not again.any():
        return None
    number = int(owners.max()) + 1
    codes = owners[:-1][again].astype(np.int64) * number + owners[1:][again]
    pairs, counts = np.unique(codes, return_counts=True)
    best = int(np.argmax(counts))
    _, held = np.unique(records, return_counts=True)
    return _Shared(
        pair=divmod(int(pairs[best]), number),
        count=int(counts[best]),
        pairs=len(pairs),
        most=int(held.max()),
    )
