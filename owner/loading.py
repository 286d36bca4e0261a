"""An owner's table as its settings describe it: read, its header looked at, its columns named.

What is refused here is told to the owner's operator, before anything is served.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from common.columns import is_missing_text, parse_month, parse_number
from common.errors import InputError
from common.features import FeatureMap
from common.tables import read_header, read_table
from owner.policy import OwnerSettings
from owner.shard import PrivateTable

__all__ = ["check_header", "load_records", "named_columns"]

# Values of the rows below are looked for in so many of them.
ROWS_BELOW = 10_000
# Names 0, 1, 2, ... that a program gave are no record; fewer than so many might be.
FEWEST_IN_ORDER = 3


def load_records(
    settings: OwnerSettings, *, base: Path, pinned: FeatureMap | None
) -> tuple[pd.DataFrame, PrivateTable]:
    """The owner's raw table, and the part of it that learners may use.

    Args:
      settings: The owner's settings.
      base: The folder of their file.
      pinned: The only feature map that the owner accepts, or None.

    Raises:
      InputError: The table cannot be read, its header looks like a record, or a column that
        the settings or the map name is not there.
    """
    columns = named_columns(settings, pinned)
    where = f"{settings.name}: {settings.data.path}"
    raw = read_table(settings.data, base=base)
    header = read_header(settings.data, base=base) or list(raw.columns)
    check_header(header, raw, where=where)
    needed = pinned.columns_needed if pinned else ()
    for name in columns:
        if name not in raw.columns:
            who = "the feature map needs" if name in needed else "the setting data.columns names"
            raise InputError(f"{where}: no column {name!r}, which {who}")
    return raw, PrivateTable(raw, where=where, columns=columns)


def named_columns(settings: OwnerSettings, pinned: FeatureMap | None) -> tuple[str, ...]:
    """The columns that learners are told of and may use: no other name leaves the owner.

    None where neither the settings nor a feature map of the owner's own names any.
    """
    names = (*settings.data.columns, *(pinned.columns_needed if pinned else ()))
    return tuple(dict.fromkeys(names))


def check_header(names: Sequence[str], table: pd.DataFrame, *, where: str) -> None:
    """Refuse a table whose column names look like a record.

    They do if two are equal, if one reads as a number, a date or a missing value (unless all
    that are numbers count 0, 1, 2, ... or 1, 2, 3, ...), or if at least half of them are values
    that their own columns hold again and again. One name may be empty, as that of row numbers.

    Args:
      names: The names as the file has them.
      table: Its rows.
      where: What the table is called in an error.

    Raises:
      InputError: They look like a record; the sentence says why, but not what the record is.
    """
    why = _why_a_record([name.strip() for name in names], table)
    if why:
        raise InputError(
            f"{where}: the first line looks like a record, not like column names ({why}); add a "
            "line with the columns' names"
        )


def _why_a_record(names: Sequence[str], table: pd.DataFrame) -> str:
    """Why names look like a record, empty where they do not."""
    if len(set(names)) < len(names):
        return "two columns have the same name"
    numbered = [name for name in names if not math.isnan(parse_number(name))]
    if not _in_order(numbered):
        return f"the name of column {names.index(numbered[0]) + 1} is a number"
    for i, name in enumerate(names, start=1):
        if not math.isnan(parse_month(name)):
            return f"the name of column {i} is a date"
        if name and is_missing_text(name):
            return f"the name of column {i} is a missing value"
    columns = (column for _, column in table.head(ROWS_BELOW).items())
    again = sum(
        _occurs_again(name, column)
        for name, column in zip(names, columns, strict=False)
        if name and name not in numbered
    )
    if again and 2 * again >= len(names):
        return f"{again} of {len(names)} names are values of the rows below"
    return ""


def _in_order(numbered: Sequence[str]) -> bool:
    """Whether numbers are the names that a program gives: none, or all of them in order."""
    count = len(numbered)
    counted = ([str(i) for i in range(start, start + count)] for start in (0, 1))
    return not count or (count >= FEWEST_IN_ORDER and list(numbered) in counted)


def _occurs_again(name: str, column: pd.Series) -> bool:
    """Whether at least two cells of a column say what its name says.

    Two, because one cell alone shall not decide whether an owner serves.
    """
    return sum(isinstance(cell, str) and cell.strip() == name for cell in column) >= 2
