"""A Parquet file, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from common.batches import BATCH_ROWS, Keep, rows_of_arrow

__all__ = ["PARQUET_ENDINGS", "ParquetFile"]

PARQUET_ENDINGS = (".parquet", ".pq")


class ParquetFile:
    """One Parquet file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _metadata(self) -> tuple[list[str], int]:
        """(names of the columns, those of a saved index left out; number of rows)."""
        with pq.ParquetFile(self._path) as file:
            saved = file.schema_arrow.pandas_metadata or {}
            indices = {name for name in saved.get("index_columns", ()) if isinstance(name, str)}
            names = [name for name in file.schema_arrow.names if name not in indices]
            return names, file.metadata.num_rows

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return self._metadata[0]

    def count(self) -> int:
        """How many rows there are."""
        return self._metadata[1]

    @cached_property
    def num_bytes(self) -> int:
        """About what all its cells take in memory."""
        with pq.ParquetFile(self._path) as file:
            groups = range(file.metadata.num_row_groups)
            return 3 * int(sum(file.metadata.row_group(i).total_byte_size for i in groups))

    def read(self, columns: Sequence[str], keep: Keep) -> pd.DataFrame:
        """The rows that count, with some columns."""
        try:
            return self._read(columns, keep, mend=False)
        except (OSError, MemoryError):
            raise
        except Exception:
            # As plain texts: of a column of repeated texts Arrow refuses all for one that is no
            # UTF-8.
            return self._read(columns, keep, mend=True, binary_type=pa.large_binary())

    def _read(
        self, columns: Sequence[str], keep: Keep, *, mend: bool, **options: Any
    ) -> pd.DataFrame:
        needed = [name for name in self.names if name in {*columns, *keep.columns}]
        # A file here is read as it is decoded: threads that read ahead cost more than they gain.
        with pq.ParquetFile(self._path, pre_buffer=False, **options) as file:
            # Without a column there would be no rows to count.
            batches = file.iter_batches(BATCH_ROWS, columns=needed or self.names[:1])
            tables = (pa.Table.from_batches([batch]) for batch in batches)
            first = file.schema_arrow.empty_table()
            return rows_of_arrow(chain([first], tables), columns, keep, mend=mend)
