"""Whether the line above a table's records has the columns' names, or is a record itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from common.cells import holds_numbers
from common.columns import is_missing_text, parse_month, parse_number
from common.errors import InputError
from common.names import places_of, repeated
from common.texts import brief

# Learners take no longer one.
LONGEST_COLUMN_NAME = 1_000

# Values of the rows below are looked for in this many of them.
ROWS_BELOW = 10_000
# Names 0, 1, 2, ... that a program gave are no record; fewer than this many might be.
FEWEST_IN_ORDER = 3


def check_header(names: Sequence[str], table: pd.DataFrame, *, where: str) -> None:
    """Refuse a table whose column names look like a record, or are too long for a study.

    They do if two are equal, if one reads as a number or a date (unless all that are numbers count
    0, 1, 2, ... or 1, 2, 3, ...), if one is a missing value as its own column holds it again and
    again, or if at least half of them are values that their own columns hold again and again. One
    name may be empty, as that of row numbers.

    Args:
      names: The names as the file has them.
      table: Its rows.
      where: What the table is called in an error.

    Raises:
      InputError: They look like a record; the sentence says why, but not what the record is. Or
        one is too long.
    """
    for place, name in enumerate(names, start=1):
        if len(name) > LONGEST_COLUMN_NAME:
            raise InputError(
                f"{where}: the name of column {place} has {len(name):,} characters, at most "
                f"{LONGEST_COLUMN_NAME:,} are allowed; shorten it"
            )
    shown = [name.strip() for name in names]
    unnamed = shown.count("")
    if 1 < unnamed < len(names) / 2 and not any(shown[-unnamed:]):
        raise InputError(
            f"{where}: {places_of('', shown)}, the last ones, have no name, as empty columns of a "
            "spreadsheet have none; remove them, or name them"
        )
    if why := _why_a_record(shown, table):
        raise InputError(
            f"{where}: its column names look like a record ({why}); correct them; in a text file, "
            "add a line with the columns' names, or remove what stands above it"
        )


def refuse_single(names: Sequence[str], *, where: str) -> None:
    """Refuse a table of one column, where a study would have nothing to learn from.

    Args:
      names: The names as the file has them.
      where: What the table is called in an error.

    Raises:
      InputError: There is one only, as where cells stand between blanks.
    """
    if len(names) == 1:
        raise InputError(
            f"{where}: only one column was found, {brief(names[0])!r}; if "
            "another character than , ; | or a tab stands between a text file's cells, set "
            "separator (a blank: --separator ' '), else give a table with a target and inputs"
        )


def _why_a_record(names: Sequence[str], table: pd.DataFrame) -> str:
    """Why names look like a record, empty where they do not."""
    twice = repeated(names)
    if twice:
        return f"{places_of(twice[0], names)} have {'the same' if twice[0] else 'no'} name"
    numbered = [name for name in names if not math.isnan(parse_number(name))]
    if not _in_order(numbered):
        return f"the name of column {names.index(numbered[0]) + 1} is a number"
    dates = [i for i, name in enumerate(names, start=1) if not math.isnan(parse_month(name))]
    if dates:
        return f"the name of column {dates[0]} is a date"
    columns = (column for _, column in table.head(ROWS_BELOW).items())
    repeats = {
        i: name
        for i, (name, column) in enumerate(zip(names, columns, strict=False), start=1)
        if name and name not in numbered and _occurs_again(name, column)
    }
    # Na may be sodium, and Nat a party.
    missing = [i for i, name in repeats.items() if is_missing_text(name)]
    if missing:
        return f"the name of column {missing[0]} is a missing value"
    again = len(repeats)
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

    Two, because one cell alone must not decide whether an owner serves.
    """
    if holds_numbers(column):
        return False
    return sum(isinstance(cell, str) and cell.strip() == name for cell in column) >= 2
