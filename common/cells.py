"""The one boundary between what a cell holds and what is made of it.

Nothing outside may tell what a private cell holds, so no cell may raise, be logged, or take a
time of its own: what cannot be read is a missing value here, and a public fill value later.
"""

from __future__ import annotations

import datetime as dt
import io
import math
import numbers
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

__all__ = [
    "LONGEST_TEXT",
    "Label",
    "Plain",
    "as_text",
    "missing_cells",
    "months_of",
    "read_parquet",
    "readable",
]

# A longer text is no number and no date, and all longer ones are one category: decided by the
# length alone, before anything whose time depends on what the text says.
LONGEST_TEXT = 1000


class Label(NamedTuple):
    """A value that is neither a number nor a text: its name, and its months if it is a date."""

    text: str
    months: float = math.nan


Plain = str | float | Label | None
_LONG = Label("(long text)")
_NESTED = (list, tuple, dict, set, frozenset, np.ndarray)


def readable(value: object) -> Plain:
    """A cell as a text, a number or a label; None where there is no value or none is readable.

    >>> readable(" 36 "), readable(36), readable(float("nan")), readable([36])
    (' 36 ', 36.0, None, None)
    >>> readable(dt.date(2000, 3, 1)), readable("x" * 10_000)
    (Label(text='2000-03-01', months=2.0), Label(text='(long text)', months=nan))
    """
    try:
        return _plain(value)
    except Exception:  # Whatever a cell does when it is read, nobody is told.
        return None


def _plain(value: Any) -> Plain:
    """As :func:`readable`, but a cell that cannot be read may raise."""
    if isinstance(value, str | bytes | bytearray):
        return _plain_text(value)
    if value is None or value is pd.NA or value is pd.NaT or isinstance(value, _NESTED):
        return None
    if isinstance(value, numbers.Real | Decimal | np.bool_):
        return _number(value)
    if isinstance(value, np.datetime64):
        value = pd.Timestamp(value)
    text = str(value)
    if isinstance(value, dt.date):
        return Label(text, months_of(value.year, value.month, value.day))
    return Label(text) if len(text) <= LONGEST_TEXT else _LONG


def _plain_text(value: str | bytes | bytearray) -> Plain:
    if len(value) > LONGEST_TEXT:
        return _LONG
    if isinstance(value, str):
        return str(value)
    try:
        return _number(value)
    except ValueError:
        return Label(str(bytes(value)))


def _number(value: Any) -> float | None:
    """A finite or infinite number, None for one that is none."""
    try:
        number = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return None if math.isnan(number) else number


def months_of(year: int, month: int, day: int) -> float:
    """Months since 2000-01-01; days are parts of 31.

    >>> months_of(2000, 3, 1)
    2.0
    """
    return (year - 2000) * 12 + (month - 1) + (day - 1) / 31


def as_text(value: object) -> str:
    """What ``str`` makes of a cell, or the name of its type where it makes nothing.

    >>> as_text(36), as_text(10**5000)
    ('36', '<unreadable int>')
    """
    try:
        return str(value)
    except Exception:
        return f"<unreadable {type(value).__name__}>"


def missing_cells(column: pd.Series) -> NDArray[np.bool_]:
    """Which cells have no value, shape (n,); one that cannot be asked has one.

    >>> missing_cells(pd.Series([Decimal("sNaN"), None, [1]], dtype=object))
    array([False,  True, False])
    """
    try:
        return column.isna().to_numpy(dtype=bool)
    except Exception:
        return np.array([_is_missing(cell) for cell in column], dtype=bool)


def _is_missing(cell: object) -> bool:
    return (
        cell is None
        or cell is pd.NA
        or cell is pd.NaT
        or (type(cell) is float and math.isnan(cell))
    )


def read_parquet(path: Path) -> pd.DataFrame:
    """A Parquet file as pandas reads it; cells that pandas cannot hold are missing values.

    Pandas gives up a whole file for one date beyond year 9999, one time of 25 o'clock, one text
    that is no UTF-8; here each of them is a gap, and the other cells are read as ever.

    Raises:
      OSError, ValueError, pyarrow.ArrowException: It is no Parquet file that pandas can read.
    """
    try:
        frame = pd.read_parquet(path)
    except (OSError, MemoryError):
        raise
    except Exception:
        frame = None
    if frame is not None and all(_has_readable_cells(column) for _, column in frame.items()):
        return frame
    # As plain texts: of a column of repeated texts Arrow refuses all for one that is no UTF-8.
    table = pq.read_table(path, binary_type=pa.large_binary())
    with io.BytesIO() as mended:
        pq.write_table(_without_unreadable(table), mended)
        return pd.read_parquet(mended)


def _has_readable_cells(column: pd.Series) -> bool:
    """Whether each cell can be taken out and written down, as a fingerprint does."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb":
        return True
    try:
        for cell in column:
            str(cell)
    except Exception:
        return False
    return True


def _without_unreadable(table: pa.Table) -> pa.Table:
    """A table with gaps where cells cannot be held."""
    for i, field in enumerate(table.schema):
        alone = table.select([i])
        if _is_readable(alone):
            continue
        column = table.column(i)
        if pa.types.is_large_string(field.type):
            column = pa.chunked_array([_valid_texts(table.column(i))])
        else:
            gaps = set(_unreadable(alone, 0, len(alone)))
            rows = [None if row in gaps else row for row in range(len(alone))]
            column = table.column(i).take(pa.array(rows, pa.int64()))
        table = table.set_column(i, field.with_nullable(True), column)
    return table


def _is_readable(table: pa.Table) -> bool:
    """Whether pandas can hold all cells of a table of one column."""
    try:
        frame = table.to_pandas()
    except Exception:
        return False
    return all(_has_readable_cells(column) for _, column in frame.items())


def _unreadable(table: pa.Table, start: int, stop: int) -> Iterator[int]:
    """The rows of a table of one column that pandas cannot hold, by halving."""
    if start == stop or _is_readable(table.slice(start, stop - start)):
        return
    if stop - start == 1:
        yield start
        return
    middle = (start + stop) // 2
    yield from _unreadable(table, start, middle)
    yield from _unreadable(table, middle, stop)


def _valid_texts(column: pa.ChunkedArray) -> pa.Array:
    """The texts of a column, None where the bytes are no UTF-8."""
    cells = column.cast(pa.large_binary()).to_pylist()
    return pa.array([_decoded(cell) for cell in cells], column.type)


def _decoded(cell: bytes | None) -> str | None:
    try:
        return None if cell is None else cell.decode("utf-8")
    except UnicodeDecodeError:
        return None
