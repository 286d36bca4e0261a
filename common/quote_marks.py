"""Cells of a CSV file that its quotation marks, or its encoding, make another text than is meant.

Only the holder of the table is warned: no cell may change how another one is read.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from common.texts import brief, named

# What stands for bytes that are no character.
UNDECODED = "\ufffd"

# Fewer lines of a text may have as many separators as a row has.
FEWEST_LINES = 3
# This many of the lines do, as rows.
NEARLY_ALL = 0.9


def swallowed_notes(table: pd.DataFrame, *, separator: str, width: int) -> list[str]:
    r"""A sentence for each column with cells whose lines look like rows: those are no records.

    Args:
      table: The rows as they were read.
      separator: What stands between cells.
      width: How many cells a row has.

    >>> cells = ["x", "y,1\n2,3\n4,5\n6,7\nz"]
    >>> swallowed_notes(pd.DataFrame({"a": cells}), separator=",", width=2)[0][:61]
    'a: the cell of row 2 below the header holds 3 lines that look'
    """
    notes = []
    for name, cells in table.items():
        if not pd.api.types.is_string_dtype(cells):
            continue
        places = np.flatnonzero(cells.str.contains("\n", regex=False, na=False)).tolist()
        counts = {p: n for p in places if (n := _rows_within(cells.iloc[p], separator, width))}
        if not counts:
            continue
        place, count = next(iter(counts.items()))
        more = f", and cells of {len(counts) - 1:,} more rows hold some" * (len(counts) > 1)
        notes.append(
            f"{brief(name)}: the cell of row {place + 1:,} below the header "
            f"holds {count:,} lines that look like rows, which are then not records{more}; a "
            "quotation mark that opens it is closed too late: remove it"
        )
    return notes


def undecoded_notes(table: pd.DataFrame, *, encoding: str | None) -> list[str]:
    r"""A sentence where an encoding that was typed does not know some characters.

    Args:
      table: The rows as they were read.
      encoding: What was typed; without it every cell is decoded.

    >>> undecoded_notes(pd.DataFrame({"a": ["x", "S\ufffdd"]}), encoding="ascii")[0][:53]
    'a: has characters that are none in the encoding ascii'
    """
    if encoding is None:
        return []
    names = [
        brief(name)
        for name, cells in table.items()
        if UNDECODED in str(name)
        or (pd.api.types.is_string_dtype(cells) and cells.str.contains(UNDECODED, na=False).any())
    ]
    return [
        f"{named(names)}: {'has' if len(names) == 1 else 'have'} characters that are none in the "
        f"encoding {encoding}, and are lost; leave the encoding out, or give the right one"
    ] * bool(names)


def _rows_within(cell: str, separator: str, width: int) -> int:
    """How many whole rows a cell seems to hold: the first and the last line are parts of rows."""
    lines = cell.splitlines()[1:-1]
    rows = sum(line.count(separator) == width - 1 for line in lines)
    return rows if rows >= max(FEWEST_LINES, NEARLY_ALL * len(lines)) else 0
