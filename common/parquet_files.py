"""A Parquet file, batch by batch; groups of rows that cannot count are left unread."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.parquet.encryption import CryptoFactory, KmsConnectionConfig

from common.batches import (
    BATCH_ROWS,
    Keep,
    is_typed_by_gaps,
    names_wanted,
    rows_of_arrow,
    without_views,
)
from common.errors import InputError
from common.pushdown import ColumnExtent, kind_of
from common.trials import ends_the_process

PARQUET_ENDINGS = (".parquet", ".pq")
_MADE_UP = re.compile(r"__index_level_[0-9]+__", re.ASCII)
# What a cell takes in memory, however little in the file.
LEAST_CELL_BYTES = 8


class ParquetFile:
    """One Parquet file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _metadata(self) -> tuple[list[str], list[str], int]:
        """(names of the columns, those of a saved index, number of rows)."""
        with self._opened() as file:
            saved = file.schema_arrow.pandas_metadata or {}
            stored = file.schema_arrow.names
            index = {name for name in saved.get("index_columns", ()) if isinstance(name, str)}
            names = [name for name in stored if name not in index]
            rows = file.metadata.num_rows
            self._check_rows(rows, sum(_sizes(file)))
            return names, [name for name in stored if name in index], rows

    @property
    def names(self) -> list[str]:
        """The columns' names, without those of a saved index."""
        return self._metadata[0]

    @property
    def index_names(self) -> list[str]:
        """The names of an index that pandas saved, those that it made up left out."""
        return [name for name in self._metadata[1] if not _MADE_UP.fullmatch(name)]

    def count(self) -> int:
        """How many rows there are."""
        return self._metadata[2]

    @cached_property
    def num_bytes(self) -> int:
        """About what all its cells take in memory."""
        with self._opened() as file:
            about = file.metadata
            stored = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
            # Of values that repeat a file holds next to nothing.
            cells = int(about.num_rows * about.num_columns)
            return max(3 * int(stored), LEAST_CELL_BYTES * cells)

    def read(self, columns: Sequence[str], keep: Keep) -> pd.DataFrame:
        """The rows that count, with some columns."""
        try:
            return self._read(columns, keep, mend=False)
        except (InputError, OSError, MemoryError):
            raise
        except Exception:
            # As plain texts: of a column of repeated texts Arrow refuses all for one that is no
            # UTF-8.
            return self._read(columns, keep, mend=True, binary_type=pa.large_binary())

    def _read(
        self, columns: Sequence[str], keep: Keep, *, mend: bool, **options: Any
    ) -> pd.DataFrame:
        needed = names_wanted(self.names, columns, keep.columns)
        # A file here is read as it is decoded: threads that read ahead cost more than they gain.
        with self._opened(pre_buffer=False, **options) as file:
            groups = _Groups(file, columns, keep)
            # Without a column there would be no rows to count.
            batches = groups.batches(needed or self.names[:1], self._check_rows)
            return rows_of_arrow(batches, columns, keep, mend=mend, with_gaps=groups.with_gaps)

    def _opened(self, **options: Any) -> pq.ParquetFile:
        """The file, which asks for keys if it is encrypted.

        Without, metadata of an encrypted column, asked for, would end this process.
        """
        asks = CryptoFactory(self._has_no_key).file_decryption_properties(KmsConnectionConfig())
        return pq.ParquetFile(self._path, decryption_properties=asks, **options)

    def _has_no_key(self, _: KmsConnectionConfig) -> None:
        """Arrow asks for keys of an encrypted file, and of no other.

        Raises:
          InputError: It is one.
        """
        raise InputError(
            f"{self._path}: is encrypted, which is not read here; give a file that is not"
        )

    def _check_rows(self, said: int, there: int) -> None:
        """Refuse a file whose rows are not as many as it says: a place would mean other rows.

        Who counts from the end, or passes over some, would take rows that are somebody else's.

        Raises:
          InputError: It is such a file.
        """
        if said != there:
            raise InputError(
                f"{self._path}: says that it has {said:,} rows, but holds {there:,}; it is "
                "damaged, write it again"
            )


def _sizes(file: pq.ParquetFile) -> list[int]:
    """How many rows each group of a file says that it has."""
    return [int(file.metadata.row_group(i).num_rows) for i in range(file.num_row_groups)]


class _Groups:
    """The groups of rows of a file, and which of them are read.

    A group is passed over where its statistics say that no row counts. How a column is stored
    depends on gaps anywhere in it, so they must also say whether there is one.

    Args:
      file: The open file.
      columns: The columns that are wanted.
      keep: Which rows count.
    """

    def __init__(self, file: pq.ParquetFile, columns: Sequence[str], keep: Keep) -> None:
        self._file, self._keep = file, keep
        schema, leaves = file.schema_arrow, file.metadata.num_columns
        # With nested columns a column's place in the file is another.
        flat = leaves == len(schema.names) == len({*schema.names})
        self._places = {name: i for i, name in enumerate(schema.names)} if flat else {}
        self._types = dict(zip(schema.names, schema.types, strict=True))
        # Of others, gaps change nothing.
        typed = [name for name in columns if is_typed_by_gaps(self._types[name])]
        self._asked = {*keep.columns, *typed}
        self.with_gaps: set[str] = set()
        self._sizes = _sizes(file)
        starts = [sum(self._sizes[:i]) for i in range(len(self._sizes))]
        # Who passes over the only group reads nothing, which nobody asks for.
        asks = flat and len(starts) > 1
        self._passed_over = [
            asks and self._may_pass(i, start, typed) for i, start in enumerate(starts)
        ]

    def batches(
        self, names: Sequence[str], check_rows: Callable[[int, int], None]
    ) -> Iterator[pa.Table | int]:
        """The rows with some columns, an empty batch first; a number for rows passed over.

        Args:
          names: The columns.
          check_rows: Compares how many rows some groups say that they have with how many there are.
        """
        yield without_views(self._file.schema_arrow.empty_table())
        numbered = range(len(self._sizes))
        for passed_over, some in groupby(numbered, key=self._passed_over.__getitem__):
            groups = [*some]
            said, there = sum(self._sizes[i] for i in groups), 0
            if passed_over:
                yield said
                continue
            for batch in self._file.iter_batches(BATCH_ROWS, row_groups=groups, columns=[*names]):
                there += len(batch)
                yield without_views(pa.Table.from_batches([batch]))
            check_rows(said, there)

    def _may_pass(self, group: int, start: int, typed: Sequence[str]) -> bool:
        """Whether a group need not be read; what gaps it has is noted then."""
        size = self._sizes[group]
        if not self._keep.passes_over(start, size, lambda name: self._extent(group, name)):
            return False
        known = {name: self._statistics(group, name) for name in typed}
        if not all(each is not None and each.has_null_count for each in known.values()):
            return False
        self.with_gaps |= {name for name, each in known.items() if each.null_count}
        return True

    def _statistics(self, group: int, name: str) -> Any:
        """What a file says of a column in a group, None where it says nothing."""
        return self._said_of(group, name) if self._can_be_asked else None

    def _said_of(self, group: int, name: str) -> Any:
        return self._file.metadata.row_group(group).column(self._places[name]).statistics

    @cached_property
    def _can_be_asked(self) -> bool:
        """Whether Arrow would not end this process, asked what a damaged file says of a column.

        Of the same damage it says what it is when the rows are read.
        """

        def ask() -> None:
            for group in range(len(self._sizes)):
                for name in self._asked:
                    self._said_of(group, name)

        return not ends_the_process(ask)

    def _extent(self, group: int, name: str) -> ColumnExtent | None:
        """Between what the cells of a column lie in a group; None where that is not known."""
        kind = kind_of(self._types[name])
        if kind is None:
            return None
        try:
            known = self._statistics(group, name)
            has_ends = known is not None and known.has_min_max
            ends = (known.min, known.max) if has_ends else (None, None)
        except Exception:  # An end that Python cannot hold, such as a day of the year 100,000.
            return None
        if kind == "text":
            low, high = (end.encode() if isinstance(end, str) else end for end in ends)
            return ColumnExtent(kind, low, high) if _are(bytes, low, high) else None
        is_known = _are(int | float if kind == "number" else dt.date, *ends)
        return ColumnExtent(kind, *ends) if is_known else None


def _are(kind: Any, *ends: object) -> bool:
    return all(isinstance(end, kind) for end in ends)
