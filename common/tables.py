"""Tables on disk: CSV or Parquet, a range of rows, the rows where columns have given values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from pydantic import Field, field_validator

from common.cells import read_parquet
from common.columns import category_key, category_keys
from common.config import Settings
from common.errors import InputError

__all__ = ["TableSource", "count_shared_rows", "parse_rows", "read_header", "read_table"]

T = TypeVar("T")

_ROW = re.compile(r"(?:-?[0-9]{1,18})?", re.ASCII)
_CSV_ENDINGS = (".csv", ".csv.gz")
_PARQUET_ENDINGS = (".parquet", ".pq")


class TableSource(Settings):
    """Where a table is, and which of its rows count: first the range, then the condition.

    Args:
      path: CSV, CSV.gz or Parquet; without it, the study's default table.
      rows: A range in Python's slice notation, such as ":10800" or "-10000:".
      where: Columns and the value each must have.
    """

    path: Path | None = None
    rows: str | None = None
    where: dict[str, str | int] = Field(default_factory=dict)

    @field_validator("rows")
    @classmethod
    def _rows_are_a_slice(cls, rows: str | None) -> str | None:
        if rows is not None:
            parse_rows(rows)
        return rows


def parse_rows(text: str) -> slice:
    """The slice that a text such as ":10800" stands for.

    Raises:
      ValueError: It is not a slice.

    >>> parse_rows("-10000:")
    slice(-10000, None, None)
    """
    parts = [part.strip() for part in text.split(":")]
    numbers = [int(part) if part else None for part in parts if _ROW.fullmatch(part)]
    if not 2 <= len(parts) == len(numbers) <= 3 or numbers[2:] == [0]:
        raise ValueError('expected a range of rows such as ":10800", "100:200" or "-10000:"')
    return slice(*numbers)


def read_table(
    source: TableSource, *, base: Path, default_path: Path | None = None
) -> pd.DataFrame:
    """The rows of a source, with every column as the file has it.

    CSV cells stay texts, so that one set of rules reads them, whoever wrote the file;
    Parquet keeps its types, which the same rules read the same way.

    Args:
      source: The file and its rows.
      base: The folder of the settings file; relative paths start there.
      default_path: The file when the source names none.

    Raises:
      InputError: The file is missing or no table, a column of the condition is missing,
        or no row is left.
    """
    path = _path(source, base=base, default_path=default_path)
    table = _select(_read_file(path), source, path)
    if table.empty:
        raise InputError(f"{path}: empty shard: no row is left after {_selection(source)}")
    return table.reset_index(drop=True)


def read_header(source: TableSource, *, base: Path) -> list[str] | None:
    """The first line of a CSV file, with a name twice where it is there twice.

    Files of other kinds have no such line, but names: None for them.

    Raises:
      InputError: The file cannot be read.
    """
    path = _path(source, base=base, default_path=None)
    if not path.name.lower().endswith(_CSV_ENDINGS):
        return None
    first = _unless_broken(partial(_read_csv, header=None, nrows=1), path)
    return list(map(str, first.iloc[0]))


def count_shared_rows(
    source: TableSource,
    others: Sequence[TableSource],
    *,
    base: Path,
    default_path: Path | None = None,
) -> list[int]:
    """How many rows of one source each other source also has: the same rows of the same file.

    A source in another file shares none, whatever its rows say; the file is read once.

    Raises:
      InputError: The file of the first source cannot be used.
    """
    path = _path(source, base=base, default_path=default_path)
    same = [
        _is_same_file(_path(other, base=base, default_path=default_path), path) for other in others
    ]
    if not any(same):
        return [0] * len(others)
    table = _read_file(path)
    rows = _select(table, source, path).index
    return [
        len(rows.intersection(_select(table, other, path).index)) if is_same else 0
        for other, is_same in zip(others, same, strict=True)
    ]


def _path(source: TableSource, *, base: Path, default_path: Path | None) -> Path:
    given = source.path or default_path
    if given is None:
        raise InputError("no table is named; set path to a CSV or Parquet file")
    return base / given


def _is_same_file(a: Path, b: Path) -> bool:
    return a.exists() and b.exists() and a.samefile(b)


def _select(table: pd.DataFrame, source: TableSource, path: Path) -> pd.DataFrame:
    """The rows of a source, with their places in the file as the index."""
    table = table.reset_index(drop=True)
    if source.rows is not None:
        table = table.iloc[parse_rows(source.rows)]
    for column, value in source.where.items():
        if column not in table.columns:
            raise InputError(f"{path}: no column {column!r}, which the setting where names")
        table = table[_equals(table[column], value)]
    return table


def _read_file(path: Path) -> pd.DataFrame:
    """The whole table of one file."""
    name = path.name.lower()
    if not name.endswith((*_CSV_ENDINGS, *_PARQUET_ENDINGS)):
        raise InputError(f"{path}: expected a table: a file ending in .csv, .csv.gz or .parquet")
    if not path.is_file():
        raise InputError(f"{path}: no such file; give the path of a CSV or Parquet file")
    table = _unless_broken(_read_csv if name.endswith(_CSV_ENDINGS) else read_parquet, path)
    twice = table.columns[table.columns.duplicated()]
    if len(twice):
        raise InputError(f"{path}: the column name {twice[0]!r} occurs twice; rename one")
    return table.rename(columns=str)


def _unless_broken(read: Callable[[Path], T], path: Path) -> T:
    """What a reader makes of a file; whatever it says of a broken one is one sentence."""
    try:
        return read(path)
    except Exception as error:  # Libraries have many names for a file that is no table.
        reason = str(error).strip().splitlines()
        raise InputError(
            f"{path}: cannot be read as a table: {reason[0] if reason else error!r}"
        ) from None


def _read_csv(path: Path, **options: Any) -> pd.DataFrame:
    """A CSV file as texts; pandas would turn "NA" into a gap and "007" into 7."""
    table: pd.DataFrame = pd.read_csv(
        path, dtype=str, keep_default_na=False, encoding_errors="replace", **options
    )
    return table


def _equals(column: pd.Series, value: str | int) -> np.ndarray:
    """Which cells say a value, however they are stored."""
    codes, keys = category_keys(column)
    wanted = category_key(value)
    return np.array([*(key is not None and key == wanted for key in keys), False])[codes]


def _selection(source: TableSource) -> str:
    """The selection in words, for an error."""
    parts = [] if source.rows is None else [f"rows {source.rows}"]
    parts += [f"{column} = {value}" for column, value in source.where.items()]
    return ", ".join(parts) or "reading it: it has a header only"
