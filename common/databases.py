"""Records in databases: what a query selects, read only, in an order that it always has.

DuckDB and SQLite files are opened by their own libraries, and PostgreSQL through ADBC in
:mod:`common.postgres`; none of them loads anything from elsewhere. A database may give rows in any
order, but a range of rows and the ledger's fingerprint need one: all columns sort them.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow as pa

from common.batches import (
    BATCH_ROWS,
    Keep,
    is_typed_by_gaps,
    names_wanted,
    rows_of_arrow,
    rows_of_frames,
    without_extensions,
)
from common.duckdb_session import DuckDbSession
from common.errors import InputError
from common.extras import needing_extras
from common.own_files import private_folder
from common.pushdown import clause, sqlite_clause
from common.sqlite_files import open_sqlite

# A cell in memory, for a plan of how much is read at a time.
BYTES_OF_A_CELL = 32
# Larger whole numbers are not exact as real ones.
LARGEST_EXACT = 2**53
# Of SQLite's machine, between two looks for a signal: about a millisecond.
INSTRUCTIONS = 100_000
# Of a code of SQLite's, the part that says which kind of failure it is.
PRIMARY = 0xFF
# Types that DuckDB gives in parts or in bytes of its own; their texts say how long, or which bits.
_CODED = {"BIGNUM", "BIT", "INTERVAL"}
_NO_PLACE_FOR_LOG = (
    "{}: SQLite keeps a write-ahead log beside it, which needs a folder that can be written to; "
    "give a copy in such a folder, or set its journal_mode to delete"
)
_DUCKDB_SETTINGS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


class Column(NamedTuple):
    """A column of a query; SQLite's have no type."""

    name: str
    stored: pa.DataType | None = None


class Database(ABC):
    """What a query selects, as a table.

    Args:
      query: One SELECT.
    """

    def __init__(self, query: str) -> None:
        # A comment at its end ends with its line.
        self._query = query.strip().rstrip(";") + "\n"
        self._held: Any = None

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [column.name for column in self._columns]

    @property
    def num_bytes(self) -> int:
        """About what all its cells take in memory."""
        return BYTES_OF_A_CELL * self.count() * len(self.names)

    def count(self) -> int:
        """How many rows there are."""
        return self._count

    @abstractmethod
    def read(self, columns: Sequence[str], keep: Keep) -> pd.DataFrame:
        """The rows that count, with some columns."""

    @contextmanager
    def held(self) -> Iterator[None]:
        """All that is read meanwhile is one state of the database, whoever writes to it."""
        with self._opened() as database:
            self._held = database
            try:
                yield
            finally:
                self._held = None

    @abstractmethod
    def _open(self) -> Any:
        """A connection that only reads."""

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """A connection that only reads: the one that is held, or one that is closed behind us."""
        held = self._held
        with closing(self._open()) if held is None else nullcontext(held) as database:
            yield database

    @property
    @abstractmethod
    def _columns(self) -> Sequence[Column]:
        """The columns."""

    @property
    @abstractmethod
    def _count(self) -> int:
        """How many rows there are."""

    @property
    def _none(self) -> str:
        return f"select * from ({self._query}) as q limit 0"  # noqa: S608 (the query is the user's)

    @property
    def _all(self) -> str:
        return f"select count(*) from ({self._query}) as q"  # noqa: S608

    @property
    def _collation(self) -> str:
        """What makes texts be compared by their bytes, where that must be said."""
        return ""

    def _clause(self, name: str, condition: Any) -> str:
        """What the database is asked of a column where a condition is to hold."""
        stored = next(column.stored for column in self._columns if column.name == name)
        return clause(quoted(name), stored, condition, collation=self._collation)

    def _ordered(self, columns: Sequence[str], keep: Keep) -> str:
        """The columns that are needed, sorted by all that there are; rows that may count."""
        needed = names_wanted(self.names, columns, keep.columns)
        chosen = ", ".join(map(quoted, needed or self.names[:1]))
        keys = [
            quoted(name) + (self._collation if stored == pa.string() else "")
            for name, stored in self._columns
        ]
        order = ", ".join(filter(None, [*keys, *map(_told_apart, self._columns)]))
        clauses = [self._clause(name, asked) for name, asked in keep.conditions.items()]
        where = f"where {' and '.join(clauses)} " if clauses else ""
        return f"select {chosen} from ({self._query}) as q {where}order by {order}"  # noqa: S608

    def _gaps(
        self, columns: Sequence[str], keep: Keep, ask: Callable[[str], Sequence[int]]
    ) -> list[str]:
        """The columns that have gaps in rows that are left out, and are stored so for that.

        Args:
          columns: The columns that are wanted.
          keep: Which rows count.
          ask: The one row of a query's answer.
        """
        types = {name: stored for name, stored in self._columns if stored is not None}
        typed = [name for name in columns if is_typed_by_gaps(types[name])]
        if not (typed and keep.conditions):
            return []
        counts = ", ".join(f"count(*) - count({quoted(name)})" for name in typed)
        found = ask(f"select {counts} from ({self._query}) as q")  # noqa: S608
        return [name for name, count in zip(typed, found, strict=True) if count]


class DatabaseFile(Database):
    """A database in one file, whose connections are asked without a cursor."""

    def __init__(self, path: Path, query: str) -> None:
        super().__init__(query)
        self._path = path

    @abstractmethod
    def tables(self) -> dict[str, str]:
        """The tables and views in it: what each is called, and how a query names it."""

    @cached_property
    def _count(self) -> int:
        with self._opened() as database:
            # To its end: a connection that is held is asked on.
            return int(database.execute(self._all).fetchall()[0][0])


class DuckDbFile(DatabaseFile):
    """A DuckDB file."""

    def _open(self) -> Any:
        # What does not fit the memory would stand beside the table, for all to read.
        config = {**_DUCKDB_SETTINGS, "temp_directory": private_folder()}
        duckdb = library("duckdb")
        session = DuckDbSession(duckdb.connect(str(self._path), read_only=True, config=config))
        # Otherwise a time is of the zone that this machine is in, and its day another elsewhere.
        return session.execute("set TimeZone = 'UTC'")

    def tables(self) -> dict[str, str]:
        """The tables and views in it: what each is called, and how a query names it."""
        with self._opened() as database:
            found = database.execute(
                "select table_schema, table_name from information_schema.tables order by 2, 1"
            )
            # Only those of the schema main need not say of which they are.
            named = [row[1:] if row[0] == "main" else row for row in found.fetchall()]
        return {".".join(parts): ".".join(map(quoted, parts)) for parts in named}

    @cached_property
    def _columns(self) -> Sequence[Column]:
        with self._opened() as database:
            schema, types = database.columns(self._none)
        forms = {name: f"{quoted(name)}::text" for name, kind in types.items() if kind in _CODED}
        self._query = in_forms(self._query, schema.names, forms)
        return [Column(at.name, pa.string() if at.name in forms else at.type) for at in schema]

    def read(self, columns: Sequence[str], keep: Keep) -> pd.DataFrame:
        """The rows that count, with some columns."""
        with self._opened() as database:
            gaps = self._gaps(columns, keep, lambda query: database.execute(query).fetchall()[0])
            tables = tables_of(*database.batches(self._ordered(columns, keep), BATCH_ROWS))
            return rows_of_arrow(tables, columns, keep, with_gaps=gaps)


class SqliteFile(DatabaseFile):
    """A SQLite file."""

    def _open(self) -> sqlite3.Connection:
        opened = open_sqlite(f"file:{quote(str(self._path))}?mode=ro", uri=True)
        # One text that is no UTF-8 must not end the reading of all.
        opened.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        return opened

    @contextmanager
    def held(self) -> Iterator[None]:
        """The same, by a transaction, which begins with what it reads first."""
        with super().held(), self._opened() as database:
            database.execute("begin")
            database.execute("select count(*) from sqlite_master").fetchone()
            yield

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """The same; Ctrl-C ends what is asked, which may be a query without an end."""
        with super()._opened() as database:
            # SQLite itself lets no signal be seen; what Python does meanwhile does.
            database.set_progress_handler(lambda: 0, INSTRUCTIONS)
            try:
                yield database
            except sqlite3.OperationalError as error:
                code = error.sqlite_errorcode & PRIMARY
                if code == sqlite3.SQLITE_CANTOPEN and _has_log(self._path):
                    raise InputError(_NO_PLACE_FOR_LOG.format(self._path)) from None
                # It says no more of the exception that the signal raised there.
                if code != sqlite3.SQLITE_INTERRUPT:
                    raise
                raise KeyboardInterrupt from None

    def tables(self) -> dict[str, str]:
        """The tables and views in it: what each is called, and how a query names it."""
        with self._opened() as database:
            found = database.execute(
                "select name from sqlite_master where type in ('table', 'view') "
                "and name not like 'sqlite_%' order by 1"
            )
            return {str(name): quoted(str(name)) for (name,) in found}

    @cached_property
    def _columns(self) -> Sequence[Column]:
        with self._opened() as database:
            return [Column(str(column[0])) for column in database.execute(self._none).description]

    def _clause(self, name: str, condition: Any) -> str:
        return sqlite_clause(quoted(name), condition)

    def read(self, columns: Sequence[str], keep: Keep) -> pd.DataFrame:
        """The rows that count, with some columns."""
        with self._opened() as database:
            cursor = database.execute(self._ordered(columns, keep))
            table = rows_of_frames(_frames_of(cursor), columns, keep)
        return table.apply(_as_numbers)


def database_file(path: Path, query: str) -> DatabaseFile | None:
    """The database in a file, by the file's first bytes; None if it is not one."""
    with path.open("rb") as file:
        start = file.read(16)
    if start.startswith(b"SQLite format 3\0"):
        return SqliteFile(path, query)
    return DuckDbFile(path, query) if start[8:12] == b"DUCK" else None


def is_busy(error: Exception) -> bool:
    """Whether a file cannot be read because another program writes to it."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & PRIMARY
        return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    # DuckDB has one class for all of them, and no code; a cell is never quoted at the beginning.
    is_its_own = type(error).__module__.endswith("duckdb")
    return is_its_own and str(error).startswith("IO Error: Could not set lock")


def _has_log(path: Path) -> bool:
    """Whether a SQLite file is one with a write-ahead log, by the file format it is read by."""
    with path.open("rb") as file:
        return file.read(20)[19:] == b"\2"


def quoted(name: str) -> str:
    """A name in a query.

    >>> print(quoted('the "age" of'))
    "the ""age"" of"
    """
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def in_forms(query: str, names: Sequence[str], forms: Mapping[str, str]) -> str:
    """A query with some of its columns in another form.

    >>> print(in_forms("select a, b from t", ["a", "b"], {"b": '("b")[:]'}))
    select "a", ("b")[:] as "b" from (select a, b from t) as q
    """
    # A name that is there twice is refused later, and nobody knows which is meant.
    if not forms or len(set(names)) < len(names):
        return query
    chosen = [" as ".join(filter(None, (forms.get(name), quoted(name)))) for name in names]
    return f"select {', '.join(chosen)} from ({query}) as q"  # noqa: S608 (the query is the user's)


def _told_apart(column: Column) -> str:
    """What sorts different cells of a column that the database takes for equal; empty for none.

    Such as a and A where the column has a collation, and 0 and -0. Rows that are equal come in any
    order, a new one each time.

    >>> print(_told_apart(Column("a", pa.string())), _told_apart(Column("b", pa.float64())))
    "a"::text collate "C" atan2("b", -1)
    """
    name, stored = quoted(column.name), column.stored
    if stored is None or pa.types.is_null(stored):
        return ""
    if pa.types.is_floating(stored):
        return f"atan2({name}, -1)"
    has_one_form = pa.types.is_primitive(stored) and not pa.types.is_interval(stored)
    is_binary = pa.types.is_binary(stored) or pa.types.is_decimal(stored)
    return "" if has_one_form or is_binary else f'{name}::text collate "C"'


def library(name: str) -> ModuleType:
    """A library of the extra ``sql``.

    Raises:
      InputError: It is not installed.
    """
    from importlib import import_module  # noqa: PLC0415 (tables in files need none)

    with needing_extras("this database"):
        return import_module(name)


def tables_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches of a schema as tables, an empty one first."""
    yield without_extensions(schema.empty_table())
    for batch in batches:
        yield without_extensions(pa.Table.from_batches([batch]))


def _frames_of(cursor: sqlite3.Cursor) -> Iterator[pd.DataFrame]:
    """The batches of a cursor, with cells as they are; an empty one first."""
    names = [column[0] for column in cursor.description]
    yield pd.DataFrame(columns=names, dtype=object)
    while rows := cursor.fetchmany(BATCH_ROWS):
        yield pd.DataFrame(rows, columns=names, dtype=object)


def _as_numbers(column: pd.Series) -> pd.Series:
    """A column of numbers and gaps as such; others stay as they are."""
    cells = [cell for cell in column if cell is not None]
    exact = all(
        type(cell) is float or (type(cell) is int and abs(cell) <= LARGEST_EXACT) for cell in cells
    )
    return column.astype(np.float64) if cells and exact else column
