"""Records in a PostgreSQL database, through ADBC; see :mod:`common.databases`.

ADBC cannot read every cell of every type, nor can the server sort them all. What it cannot is asked
for in another form by the column's type alone: no cell decides whether a table is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import takewhile
from typing import Any

import pandas as pd
import pyarrow as pa

from common.batches import Keep, rows_of_arrow
from common.databases import Column, Database, in_forms, library, quoted, tables_of
from common.left_calls import LeftCalls

# A server that is there answers in less.
CONNECT_SECONDS = 30

# What is said where no connection comes about, by the client library of a server that is not there,
# and by the server itself where it takes nobody at the moment: no code is told before there is one.
_AWAY = (
    "Is the server running",
    "Connection reset",
    "Connection timed out",
    "No route to host",
    "Network is unreachable",
    "could not translate host name",
    "server closed the connection",
    "timeout expired",
    "too many clients",
    "too many connections",
    "connection slots are reserved",
    "the database system is",
)
# How it begins where a connection has ended.
_ENDED = (
    *("FATAL", "PANIC", "server closed the connection", "could not receive data from server"),
    *("SSL connection has been closed", "SSL SYSCALL error", "no connection to the server"),
)
# States in which the same may go well later: of the connection, of a transaction that gave way to
# another, of what the server is short of, of what is locked, and of an operator who ended it.
_PASSING_STATES = ("08", "40", "53", "55P03", "57")

# Types that have a collation. Others that ADBC reads as texts, such as enumerations, have none.
TEXTS = {"text", "varchar", "bpchar", "name"}
TYPE = b"POSTGRESQL:type"


class Postgres(Database):
    """A PostgreSQL database.

    Args:
      uri: postgresql://USER:PASSWORD@HOST/DATABASE, as its client library reads it.
      query: One SELECT.
    """

    def __init__(self, uri: str, query: str) -> None:
        super().__init__(query)
        self._uri = uri

    def _open(self) -> _Session:
        session = _Session(_with_an_end(self._uri))
        try:
            session.row("set transaction isolation level repeatable read, read only")
        except BaseException:
            session.close()
            raise
        return session

    @property
    def _collation(self) -> str:
        # Elsewhere the order of texts would change with the machine's language.
        return ' collate "C"'

    @cached_property
    def _columns(self) -> Sequence[Column]:
        with self._opened() as session:
            fields = list(session.schema(self._none))
            forms = {field.name: form for field in fields if (form := _form(field))}
            self._query = in_forms(self._query, [field.name for field in fields], forms)
            fields = list(session.schema(self._none))
            return [Column(field.name, field.type) for field in fields]

    @cached_property
    def _count(self) -> int:
        with self._opened() as session:
            return int(session.row(self._all)[0])

    def read(self, columns: Sequence[str], keep: Keep) -> pd.DataFrame:
        """The rows that count, with some columns."""
        with self._opened() as session:
            gaps = self._gaps(columns, keep, session.row)
            tables = session.tables(self._ordered(columns, keep))
            return rows_of_arrow(tables, columns, keep, with_gaps=gaps)


class _Session:
    """A connection. A signal ends what is asked, also where the server says nothing any more.

    Args:
      uri: Where to.
    """

    def __init__(self, uri: str) -> None:
        self._calls = LeftCalls()
        # Kept, so that it is not freed under a call that was left.
        self._cursor: Any = None
        self._connection = self._calls.run(library("adbc_driver_postgresql.dbapi").connect, uri)

    def schema(self, query: str) -> pa.Schema:
        """The columns of a query."""
        with self._asked(query) as cursor:
            return self._calls.run(cursor.fetch_arrow_table).schema

    def row(self, query: str) -> Sequence[int]:
        """The first row of a query; empty where it gives none."""
        with self._asked(query) as cursor:
            return self._calls.run(cursor.fetchone) or () if cursor.description else ()

    def tables(self, query: str) -> Iterator[pa.Table]:
        """The rows of a query in tables, an empty one first."""
        with self._asked(query) as cursor:
            run = self._calls.run
            reader = run(cursor.fetch_record_batch)
            yield from tables_of(reader.schema, iter(partial(run, next, reader, None), None))

    def close(self) -> None:
        """End it."""
        self._close(self._connection)

    @contextmanager
    def _asked(self, query: str) -> Iterator[Any]:
        self._cursor = cursor = self._connection.cursor()
        try:
            self._calls.run(cursor.execute, query)
            yield cursor
        finally:
            self._close(cursor)

    def _close(self, opened: Any) -> None:
        if not self._calls.are_left:
            opened.close()


def is_away(error: Exception) -> bool:
    """Whether a server is not there, or answers nobody for now."""
    _, libpq, said = str(error).partition("[libpq] ")
    if not libpq:
        # While a query is prepared no cell is read, so none can be quoted.
        return str(error).partition("Failed to prepare query: ")[2].startswith(_ENDED)
    if state := getattr(error, "sqlstate", None):
        return bool(state.startswith(_PASSING_STATES))
    if said.startswith("Failed to connect"):
        return any(sign in said for sign in _AWAY)
    # No code is told of rows either, and the server may quote a cell: two blanks are before what it
    # says, and what the client library was about before that.
    steps = takewhile(lambda step: not step.startswith(" "), said.split(": "))
    return any(step.startswith(_ENDED) for step in steps)


def _with_an_end(uri: str, environment: Mapping[str, str] = os.environ) -> str:
    """An address at which a server that says nothing is given up, unless the user says when.

    >>> _with_an_end("postgresql://db/stays", {})
    'postgresql://db/stays?connect_timeout=30'
    >>> _with_an_end("postgresql:///stays?connect_timeout=5", {})
    'postgresql:///stays?connect_timeout=5'
    """
    if "connect_timeout=" in uri or "PGCONNECT_TIMEOUT" in environment:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}connect_timeout={CONNECT_SECONDS}"


def _form(field: pa.Field) -> str:
    """What is asked for in place of a column; empty for the column itself."""
    name, stored = quoted(field.name), field.type
    kind = (field.metadata or {}).get(TYPE, b"text").decode()
    if pa.types.is_list(stored) and not _is_made_of_others(stored.value_type):
        # Counted from 1: ADBC refuses an array that is counted from elsewhere.
        return f"({name})[:]"
    if kind == "money":
        # ADBC counts cents, or whatever the server's language has in their place.
        return f"{name}::numeric"
    has_no_collation = stored == pa.string() and kind not in TEXTS
    # JSON has no order.
    is_text = has_no_collation or kind == "json" or pa.types.is_nested(stored)
    return f"{name}::text" if is_text or _is_coded(stored, kind) else ""


def _is_coded(stored: pa.DataType, kind: str) -> bool:
    """Whether ADBC gives the server's own bytes of a type, or an interval in its parts."""
    held = getattr(stored, "storage_type", stored)
    is_bytes = pa.types.is_binary(held) or pa.types.is_fixed_size_binary(held)
    return kind == "interval" or (is_bytes and kind != "bytea")


def _is_made_of_others(stored: pa.DataType) -> bool:
    """Whether a type has parts, or a form that is not its own."""
    return pa.types.is_nested(stored) or isinstance(stored, pa.BaseExtensionType)
