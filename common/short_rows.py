"""Rows of a CSV file with fewer cells than its header: what they leave out is read as empty.

Only the holder of the table is told: no cell may change how another one is read. Such rows are no
error, since spreadsheets leave out the empty cells at their ends. But where a cell was left out
before, those behind it stand below the wrong names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import pyarrow as pa
from pyarrow import csv

from common.csv_files import CsvFile, opened_bytes
from common.sources import Part
from common.texts import counted

# Where a row is longer, or so many are of another width, the others are not looked at.
LONGEST_ROW = 2**22
MOST_ROWS = 10_000


def short_notes(parts: Iterable[Part]) -> list[str]:
    """A sentence for each CSV file with rows that are too short.

    Args:
      parts: The files of a table that was read.
    """
    files = (part.table for part in parts if isinstance(part.table, CsvFile))
    return [f"{file.path.name}: {words}" for file in files if (words := _short_rows(file))]


def _short_rows(file: CsvFile) -> str:
    """How many rows lack a cell below a name, and which is the first; empty for none."""
    width = max((place for place, name in enumerate(file.header, 1) if name.strip()), default=0)
    # Where the first stands below the header, and how many cells it has.
    first: tuple[int, int] | None = None
    seen = blank = count = 0

    def note(row: csv.InvalidRow) -> str:
        nonlocal seen, blank, count, first
        seen += 1
        if row.actual_columns == 1 and not row.text.strip():
            blank += 1
        elif row.actual_columns < width:
            count += 1
            first = first or (row.number - 1 - blank, row.actual_columns)
        return "skip" if seen < MOST_ROWS else "error"

    if width > 1 and file.separator.isascii():
        _look_at_rows(file, note)
    if first is None:
        return ""
    place, cells = first
    rows = counted(count, "row has", "rows have" if seen < MOST_ROWS else "rows or more have")
    return (
        f"{rows} fewer cells than the header has names; the first, row {place:,} below it, has "
        f"{cells:,} of {width:,}. What is left out at the end is read as empty: put in a cell that "
        "was left out before"
    )


def _look_at_rows(file: CsvFile, note: Callable[[csv.InvalidRow], str]) -> None:
    """Pass over a file, and call for each row that has not as many cells as the first one."""
    # Whatever is wrong with a file, it was read as a table.
    with opened_bytes(file.path) as opened, contextlib.suppress(pa.ArrowInvalid, UnicodeError):
        reader = csv.open_csv(
            opened,
            csv.ReadOptions(
                use_threads=False,  # or rows have no numbers
                block_size=LONGEST_ROW,
                autogenerate_column_names=True,
                encoding=file.encoding,
            ),
            csv.ParseOptions(
                delimiter=file.separator, newlines_in_values=True, invalid_row_handler=note
            ),
            csv.ConvertOptions(include_columns=["f0"], column_types={"f0": pa.string()}),
        )
        for _ in reader:
            pass
