"""A connection to a DuckDB file that a signal ends at once, whatever it is at work on.

DuckDB itself looks for signals between its own pieces of work, which may take minutes, and makes an
error of its own of Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from common.left_calls import LeftCalls


class DuckDbSession:
    """A connection whose queries a signal ends.

    Args:
      connection: DuckDB's own.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._calls = LeftCalls(end=connection.interrupt)

    def execute(self, query: str) -> DuckDbSession:
        """Ask a query, whose rows :meth:`fetchall` gives."""
        self._calls.run(self._connection.execute, query)
        return self

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The rows of the query that was asked last."""
        return self._calls.run(self._connection.fetchall)

    def columns(self, query: str) -> tuple[pa.Schema, dict[str, str]]:
        """The columns of a query that gives no rows, as Arrow has them, and DuckDB's own types."""
        relation = self._calls.run(self._connection.sql, query)
        schema = self._calls.run(relation.to_arrow_table).schema
        return schema, dict(zip(schema.names, map(str, relation.types), strict=True))

    def batches(self, query: str, rows: int) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The columns of a query, and its rows, so many at a time."""
        relation = self._calls.run(self._connection.sql, query)
        reader = self._calls.run(relation.to_arrow_reader, rows)
        return reader.schema, iter(partial(self._calls.run, next, reader, None), None)

    def close(self) -> None:
        """End it, unless it is still at work."""
        if not self._calls.are_left:
            self._connection.close()
