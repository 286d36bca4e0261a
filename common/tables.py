"""Tables as settings name them: where they are, how they are read, and which rows count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from common.batches import Tap
from common.conditions import Condition, condition_in_words
from common.config import Settings
from common.dialects import Dialect, Encoding, Separator
from common.errors import InputError
from common.places import Place, SecretPlace
from common.row_filters import AnyFilter, RowFilter, parse_rows
from common.sources import KINDS, Source, database_source, file_source
from common.suggestions import among_columns
from common.texts import printable

# This much of a table, by estimate, is read at once where all of it must be seen.
BYTES_AT_ONCE = 2**30


class TablePlace(Settings):
    """Where a table is, and how it is read."""

    path: Place | None = Field(
        default=None,
        description="CSV, CSV.gz or Parquet; a folder of them or a pattern such as stays/*.csv; or "
        "a DuckDB or SQLite file. In a study, a table without it is taken from that of [data].",
        examples=["stays.parquet"],
    )
    database: SecretPlace | None = Field(
        default=None,
        description="Instead of path, where the address of a PostgreSQL database is: file:PATH or "
        "env:NAME. The address is postgresql://USER:PASSWORD@HOST/DATABASE.",
        examples=["env:STAYS_DATABASE"],
    )
    query: str | None = Field(
        default=None,
        description="The SELECT whose rows, sorted by all columns, are the records of a database.",
        examples=["select * from stays where year = 2020"],
    )
    separator: Separator | None = Field(
        default=None,
        description="The character between a CSV file's cells; without it the first line shows it.",
        examples=[";"],
    )
    encoding: Encoding | None = Field(
        default=None,
        description="The encoding of a CSV file; without it each cell is UTF-8, or else "
        "Windows-1252.",
        examples=["latin-1"],
    )
    decimal: Literal[".", ","] | None = Field(
        default=None,
        description="The decimal point of a CSV file's numbers; without it a comma where "
        "semicolons separate the cells, else a point. Set to a comma, points group thousands.",
        examples=[","],
    )
    dates: Literal["month-first", "day-first"] | None = Field(
        default=None,
        description="What comes first in a CSV file's dates that end with the year, such as "
        "7/1/2020; without it the month. Set to day-first, 1.7.2020 and 1-7-2020 are dates, too.",
        examples=["day-first"],
    )
    missing_target: Literal["drop", "refuse"] | None = Field(
        default=None,
        description="What becomes of records without a readable target: drop leaves them out, "
        "refuse is an error. Without it an owner gives them the feature map's public value, and "
        "elsewhere they are an error. An owner that drops them needs features; its n_i, which is "
        "public, then counts the others only.",
        examples=["drop"],
    )

    @model_validator(mode="after")
    def _one_place(self) -> TablePlace:
        if self.path is not None and self.database is not None:
            raise ValueError("set either path or database, not both")
        if self.database is not None and self.query is None:
            raise ValueError("database needs query = SELECT (--query SELECT)")
        return self


class TableSource(TablePlace):
    """Where a table is, and which of its rows count: first the range, then the conditions."""

    rows: str | None = Field(
        default=None,
        description="A range of rows in Python's slice notation.",
        examples=[":10800", "-10000:"],
    )
    where: dict[str, Condition] = Field(
        default_factory=dict,
        description="The conditions that records meet: of each column a value, a list of values, "
        "or a range of numbers or dates.",
        examples=[{"county": ["Kings", "Bronx"], "age": {"min": 18}}],
    )

    @field_validator("rows")
    @classmethod
    def _rows_are_a_slice(cls, rows: str | None) -> str | None:
        if rows is not None:
            parse_rows(rows)
        return rows


def placed(source: TableSource, default: TablePlace | None) -> TableSource:
    """A source with a place: its own, or the default one as a whole.

    >>> placed(TableSource(rows=":9"), TablePlace(path=Path("a.csv"), separator=";")).separator
    ';'
    """
    if default is None:
        return source
    has_place = source.path is not None or source.database is not None
    fields = ("missing_target",) if has_place else tuple(TablePlace.model_fields)
    open_ones = {name: getattr(default, name) for name in fields if getattr(source, name) is None}
    return source.model_copy(update=open_ones)


def open_source(source: TableSource, *, base: Path, default: TablePlace | None = None) -> Source:
    """The table of a source, before any row is read.

    Args:
      source: Where it is.
      base: The folder of the settings file; relative paths start there.
      default: Where it is if the source does not say.

    Raises:
      InputError: There is none, or its kind is not known.
    """
    at = placed(source, default)
    dialect = Dialect(
        separator=at.separator, encoding=at.encoding, decimal=at.decimal, dates=at.dates
    )
    if at.database is not None:
        return database_source(at.database, at.query or "", base=base, dialect=dialect)
    if at.path is None:
        raise InputError(f"no table is named; set path under [data]: {KINDS}")
    return file_source(base / at.path, dialect=dialect, query=at.query)


def read_table(
    source: TableSource,
    *,
    base: Path,
    default: TablePlace | None = None,
    columns: Sequence[str] | None = None,
) -> pd.DataFrame:
    """The rows of a source, with columns as the file has them.

    CSV cells stay texts, so that one set of rules reads them, whoever wrote the file;
    Parquet and databases keep their types, which the same rules read the same way.

    Args:
      source: The table and its rows.
      base: The folder of the settings file; relative paths start there.
      default: Where the table is if the source does not say.
      columns: The columns that are needed, those that the table has; None for all.

    Raises:
      InputError: The table is missing or no table, a needed column stands in it twice, one of the
        conditions is missing, or no row is left.
    """
    opened = open_source(source, base=base, default=default)
    return read_selected(opened, source, opened.wanted(columns))


def read_tables(
    sources: Sequence[TableSource], *, base: Path, columns: Sequence[str] | None = None
) -> list[tuple[pd.DataFrame, NDArray[np.int64]]]:
    """What :func:`read_table` makes of each source; a table that several name is read once.

    Args:
      sources: The tables and their rows.
      base: The folder of the settings file; relative paths start there.
      columns: The columns that are needed, those that the table has; None for all.

    Returns:
      For each source its records, and the places of their rows in the table that is named.

    Raises:
      InputError: As :func:`read_table`, for one of them.
    """
    tables: dict[int, tuple[pd.DataFrame, NDArray[np.int64]]] = {}
    for opened, indices in _by_place(sources, base=base):
        some = [sources[index] for index in indices]
        read = _read_each(opened, some, opened.wanted(columns))
        tables |= zip(indices, read, strict=True)
    return [tables[index] for index in range(len(sources))]


def _by_place(sources: Sequence[TableSource], *, base: Path) -> Iterator[tuple[Source, list[int]]]:
    """Each table that is named, and which of the sources name it."""
    named: dict[tuple[object, ...], list[int]] = {}
    for index, source in enumerate(sources):
        named.setdefault(place_of(source), []).append(index)
    for indices in named.values():
        yield open_source(sources[indices[0]], base=base), indices


def place_of(source: TableSource) -> tuple[object, ...]:
    """Where a table is and how it is read, whichever of its rows count.

    >>> place_of(TableSource(path="a.csv", rows=":9")) == place_of(TableSource(path="a.csv"))
    True
    """
    return tuple(getattr(source, name) for name in TablePlace.model_fields)


def _read_each(
    opened: Source, sources: Sequence[TableSource], columns: Sequence[str]
) -> list[tuple[pd.DataFrame, NDArray[np.int64]]]:
    """What :func:`read_selected` makes of each source of one table, which is read once."""
    filters = [_filter(opened, source, with_places=True) for source in sources]
    everyone = AnyFilter(filters)
    union = opened.read(columns or opened.names[:1], everyone)
    places, tables = everyone.places, []
    for source, keep in zip(sources, filters, strict=True):
        table = union.iloc[np.searchsorted(places, keep.places)].reset_index(drop=True)
        its = keep.places[::-1] if keep.is_backwards else keep.places
        tables.append((_checked(table, opened, source, keep), its))
    return tables


def read_selected(opened: Source, source: TableSource, columns: Sequence[str]) -> pd.DataFrame:
    """The rows of an opened table that a source selects, with some of its columns.

    Raises:
      InputError: As :func:`read_table`.
    """
    keep = _filter(opened, source)
    # A table without columns would have no rows.
    return _checked(opened.read(columns or opened.names[:1], keep), opened, source, keep)


def _checked(
    table: pd.DataFrame, opened: Source, source: TableSource, keep: RowFilter
) -> pd.DataFrame:
    """The rows that a source selects, in its order.

    Raises:
      InputError: There is none.
    """
    if table.empty:
        raise InputError(f"{opened.title}: no records are left after {_selection(source)}")
    return table[::-1].reset_index(drop=True) if keep.is_backwards else table


def stream_selected(
    opened: Source,
    source: TableSource,
    columns: Sequence[str],
    receive: Callable[[int, pd.DataFrame], None],
) -> int:
    """The rows of :func:`read_selected` a batch at a time, of which one at most is held.

    Args:
      opened: The table.
      source: Which of its rows count.
      columns: The columns that are passed on; the table has them.
      receive: (place of the first row among those that count, rows); a reader that fails in the
        middle may begin again, and passes rows of a place on once more.

    Returns:
      How many rows count.

    Raises:
      InputError: As :func:`read_table`, or the rows run backwards.
    """
    keep = _filter(opened, source)
    if keep.is_backwards:
        raise InputError(f"{opened.title}: rows {source.rows} run backwards; write them forwards")
    tap = Tap(keep, columns, receive)
    opened.read(opened.names[:1], tap)
    return tap.count


def read_header(source: TableSource, *, base: Path) -> list[str]:
    """The names of the columns; of a CSV file, its first line with a name twice where it is.

    Raises:
      InputError: The file cannot be read.
    """
    return open_source(source, base=base).header


def count_shared_rows(
    source: TableSource,
    others: Sequence[TableSource],
    *,
    base: Path,
    default: TablePlace | None = None,
) -> list[int]:
    """How many rows of one source each other source also has: the same rows of the same file.

    A source in another file, or with another query, shares none, whatever its rows say.

    Raises:
      InputError: The table of the first source cannot be used.
    """
    mine = placed(source, default)
    theirs = [placed(other, default) for other in others]
    opened = open_source(mine, base=base)
    # Those of the same place are looked for in one reading.
    near = [i for i, other in enumerate(theirs) if place_of(other) == place_of(mine)]
    rows, *common = _rows_by_part(opened, [mine, *(theirs[i] for i in near)])
    shared = {i: _count_common(rows, its) for i, its in zip(near, common, strict=True)}
    for i, other in enumerate(theirs):
        if i in shared:
            continue
        far = _opened_or_none(other, base=base)
        overlaps = far is not None and bool(_identities(far) & _identities(opened))
        shared[i] = (
            _count_common(rows, *_rows_by_part(far, [other])) if far is not None and overlaps else 0
        )
    return [shared[i] for i in range(len(theirs))]


def _opened_or_none(source: TableSource, *, base: Path) -> Source | None:
    """A table, None if there is none."""
    try:
        return open_source(source, base=base)
    except InputError:
        return None


def _identities(opened: Source) -> set[str]:
    return {part.identity for part in opened.parts}


_Rows = dict[str, NDArray[np.int64]]


def _rows_by_part(opened: Source, sources: Sequence[TableSource]) -> list[_Rows]:
    """Which rows of each part of a table each source selects; the table is read once."""
    filters = [_filter(opened, source, with_places=True) for source in sources]
    _, starts = opened.read_each(opened.names[:1], AnyFilter(filters))
    ends = list(zip(opened.parts, starts[:-1], starts[1:], strict=True))
    return [
        {
            part.identity: places[(places >= start) & (places < end)] - start
            for part, start, end in ends
        }
        for places in (keep.places for keep in filters)
    ]


def _count_common(some: _Rows, others: _Rows) -> int:
    """How many rows are in both."""
    return sum(len(np.intersect1d(some[k], others[k])) for k in some.keys() & others)


def _filter(opened: Source, source: TableSource, *, with_places: bool = False) -> RowFilter:
    """Which rows of a table a source selects.

    Raises:
      InputError: A column of the conditions is missing.
    """
    for name in source.where:
        if name not in opened.names:
            raise InputError(
                f"{opened.title}: no column {name!r}, which the setting where names"
                f"{among_columns(name, opened.names, listed=False)}"
            )
    return RowFilter(source.rows, source.where, count=opened.count, with_places=with_places)


def _selection(source: TableSource) -> str:
    """The selection in words, and what to do where it is empty, for an error."""
    parts = [] if source.rows is None else [f"rows {source.rows}"]
    parts += [printable(condition_in_words(*asked)) for asked in source.where.items()]
    selected = ", ".join(parts) or "reading it: it has a header only"
    return f"{selected}; correct rows and where, or give another table"
