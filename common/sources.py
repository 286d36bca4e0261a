"""Where a table is: files of one kind, found by a path, a folder or a pattern; or a database."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pandas as pd

from common.arrays import Flags
from common.batches import Keep, RawTable, names_wanted, stacked
from common.csv_files import CSV_ENDINGS, CsvFile
from common.databases import Database, database_file, is_busy
from common.dialects import Dialect
from common.errors import CoprivError, InputError, UnreachableError
from common.names import repeated
from common.parquet_files import PARQUET_ENDINGS, ParquetFile
from common.places import of_windows
from common.postgres import Postgres, is_away
from common.pushdown import Extent
from common.small_files import read_secret
from common.suggestions import refuse_twice
from common.texts import named, printable

T = TypeVar("T")

KINDS = "a CSV or Parquet file, a folder of them, a pattern such as stays/*.csv, or a database"
_ENDINGS = (*CSV_ENDINGS, *PARQUET_ENDINGS)
# A password whose signs are not written as %XX ends elsewhere, and the library would say of the
# rest of it that it is no host or port.
_SIGN = r"%(?!00)[0-9A-Fa-f]{2}"
_HOST = rf"(?:\[[0-9A-Za-z:.%]+\]|(?:[^@/? %:,\[\]]|{_SIGN})*)(?::[0-9]*)?"
_PARAMETER = rf"(?:[^&= %]|{_SIGN})+=(?:[^&= %]|{_SIGN})*"
# No group is possessive, here or elsewhere: before 3.11.5 Python takes with it what did not match.
_POSTGRES = re.compile(
    rf"postgres(?:ql)?://(?:(?:[^@/ %]|{_SIGN})*@)?{_HOST}(?:,{_HOST})*"
    rf"(?:/(?:[^@/? %]|{_SIGN})*)?(?:\?{_PARAMETER}(?:&{_PARAMETER})*)?",
    re.ASCII,
)
# How PostgreSQL begins of a query that would write, or of a table that this user may not read.
_NOT_ALLOWED = ("cannot execute ", "permission denied ")
# No cell stands in a sentence: a log of it may be read by others.
_FAILING_CELL = (
    "the query fails for a cell, which is not shown here; let it make a gap of what it cannot "
    "convert, as try_cast does in DuckDB"
)
_SHEET_ENDINGS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
# Tables of other programs, and CSV that was packed in another way: not passed over in a folder.
_OTHER_ENDINGS = (
    *_SHEET_ENDINGS,
    *(".sas7bdat", ".xpt", ".dta", ".sav", ".por", ".rds", ".feather", ".arrow", ".orc"),
    *(".csv.zip", ".csv.bz2", ".csv.xz", ".csv.zst"),
)


class Part(NamedTuple):
    """One table of several.

    Args:
      title: What it is called in an error.
      identity: What distinguishes its rows from those of every other table; never shown.
      table: The table.
      file: Its file, if that holds nothing else.
    """

    title: str
    identity: str
    table: RawTable
    file: Path | None = None


class Source:
    """Tables one after the other, as one.

    Args:
      title: What they are called in an error.
      parts: The tables, one at least.
    """

    def __init__(self, title: str, parts: Sequence[Part]) -> None:
        self.title = title
        self.parts = parts

    @cached_property
    def names(self) -> list[str]:
        """The columns' names, which all parts have.

        Raises:
          InputError: A part cannot be read, has a name twice, or lacks a column of the first.
        """
        names: list[str] = []
        for title, _, table, _ in self.parts:
            theirs = reading(partial(_names_of, table), title)
            names = names or theirs
            refuse_twice(repeated(theirs), where=title)
            there = set(theirs)
            missing = [name for name in names if name not in there]
            if missing:
                raise InputError(
                    f"{title}: no column {missing[0]!r}, which {self.parts[0].title} has; all "
                    f"files of {self.title} need the same columns"
                )
        return names

    @property
    def header(self) -> list[str]:
        """The first line of the first file, with a name twice where it is there twice."""
        title, _, table, _ = self.parts[0]
        if isinstance(table, CsvFile):
            return reading(lambda: table.header, title)
        return self.names

    def wanted(self, columns: Sequence[str] | None) -> list[str]:
        """The columns that are needed, those that there are; None for all.

        Raises:
          InputError: Two columns have the name of one, so nobody knows which is meant.
        """
        wanted = self.names if columns is None else names_wanted(self.names, columns)
        refuse_twice([name for name in repeated(self.header) if name in wanted], where=self.title)
        return wanted

    @property
    def num_bytes(self) -> int:
        """About what all cells take in memory."""
        return sum(reading(partial(_bytes_of, part.table), part.title) for part in self.parts)

    def count(self) -> int:
        """How many rows there are."""
        return sum(reading(part.table.count, part.title) for part in self.parts)

    def stamps(self) -> list[tuple[int, int]]:
        """Sizes of the files and when they were written: others show that a file has changed.

        A database has nothing of the kind.

        Raises:
          InputError: A file is gone.
        """
        files = [(part.title, part.file) for part in self.parts if part.file is not None]
        return [reading(partial(_stamp, file), title) for title, file in files]

    @contextmanager
    def still(self) -> Iterator[None]:
        """All that is read meanwhile is one state of the table: rows stay beside each other.

        Raises:
          InputError: A file was written to, or a part cannot be read.
        """
        stamps = self.stamps()
        with ExitStack() as held:
            for title, _, table, _ in self.parts:
                if isinstance(table, Database):
                    reading(partial(held.enter_context, table.held()), title)
            yield
        if self.stamps() != stamps:
            raise InputError(
                f"{self.title}: was written to while it was read; type the same command again"
            )

    def read(self, columns: Sequence[str], keep: Keep) -> pd.DataFrame:
        """The rows that count, with some columns: only these are ever held, and one batch more.

        Raises:
          InputError: A part cannot be read.
        """
        return self.read_each(columns, keep)[0]

    def read_each(self, columns: Sequence[str], keep: Keep) -> tuple[pd.DataFrame, list[int]]:
        """As :meth:`read`, and where in all rows each part begins.

        Raises:
          InputError: A part cannot be read.
        """
        starts, frames = [0], []
        for title, _, table, _ in self.parts:
            shifted = _From(keep, starts[-1])
            frames.append(reading(partial(table.read, columns, shifted), title))
            starts.append(starts[-1] + shifted.rows_seen)
        return frames[0] if len(frames) == 1 else stacked(frames), starts


def _names_of(table: RawTable) -> list[str]:
    return table.names


def _bytes_of(table: RawTable) -> int:
    return table.num_bytes


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


class _From:
    """A filter for a table that begins at a place of a larger one."""

    def __init__(self, keep: Keep, start: int) -> None:
        self._keep = keep
        self._start = start
        self.rows_seen = 0

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it must see."""
        return self._keep.columns

    @property
    def conditions(self) -> Mapping[str, Any]:
        """What columns satisfy in all rows that count."""
        return self._keep.conditions

    def passes_over(self, start: int, num_rows: int, extent: Extent) -> bool:
        """Whether surely none of the rows from a place on counts."""
        self.rows_seen = max(self.rows_seen, start + num_rows)
        return self._keep.passes_over(self._start + start, num_rows, extent)

    def __call__(self, start: int, num_rows: int, batch: pd.DataFrame) -> Flags:
        """Which of the rows from a place on count, shape (num_rows,)."""
        self.rows_seen = max(self.rows_seen, start + num_rows)
        return self._keep(self._start + start, num_rows, batch)


def file_source(path: Path, *, dialect: Dialect, query: str | None) -> Source:
    """The tables of a path: one file, all of a folder, or all that match a pattern.

    Raises:
      InputError: There is none, their kind is not known, a database lacks a query, or what is said
        of the reading is for another kind.
    """
    files = reading(partial(_files, path), str(path))
    parts = [_part(file, dialect, query) for file in files]
    if query is not None and not isinstance(parts[0].table, Database):
        raise InputError(f"{path}: query is for databases only; remove query")
    if not any(isinstance(part.table, CsvFile) for part in parts):
        dialect.refuse_elsewhere(str(path))
    return Source(str(path), parts)


def _part(file: Path, dialect: Dialect, query: str | None) -> Part:
    """The table of one file."""
    table = _table(file, dialect, query)
    # Others may write to a database what its query does not select.
    own = None if isinstance(table, Database) else file
    return Part(str(file), f"{file.resolve()} {query or ''}", table, own)


def _files(path: Path) -> list[Path]:
    """The files of a path, sorted by name."""
    deeper: list[str] = []
    if path.is_dir():
        there = list(path.iterdir())
        deeper = sorted(each.name for each in there if _has_tables_within(each))
    elif path.exists() or not glob.has_magic(str(path)):
        return [path]
    else:
        there = [Path(name) for name in glob.glob(str(path), recursive=True)]
    found = sorted(file for file in there if _is_one_of(_ENDINGS, file))
    others = sorted(file.name for file in there if _is_one_of(_OTHER_ENDINGS, file))
    if deeper:
        raise InputError(
            f"{path}: tables in folders of it are not read ({named(deeper)}); give "
            f"{path}/**/*.csv (or **/*.parquet) for all of them, or take these folders out"
        )
    if found:
        # What was saved of another file begins with its name.
        names = tuple(file.name for file in found)
        left = [other for other in others if not any(n.startswith(Path(other).stem) for n in names)]
        if left:
            raise InputError(
                f"{path}: files among the tables are not read ({named(left)}); save their tables "
                "as CSV, or take them out of the folder"
            )
        return found
    if others:
        raise InputError(
            f"{path}: no CSV or Parquet file there, but others ({named(others)}); save their "
            "tables as CSV, and give those files"
        )
    raise InputError(f"{path}: no CSV or Parquet file there; give {KINDS}")


def _has_tables_within(path: Path) -> bool:
    """Whether a folder that is not hidden holds a table somewhere."""
    is_shown = not path.name.startswith(".") and path.is_dir()
    return is_shown and any(_is_one_of(_ENDINGS, file) for file in path.rglob("*"))


def _is_one_of(endings: tuple[str, ...], path: Path) -> bool:
    """Whether a file is of a kind, and no hidden one or lock of another."""
    is_kind = path.name.lower().endswith(endings)
    return is_kind and path.is_file() and not path.name.startswith((".", "~$"))


def _table(path: Path, dialect: Dialect, query: str | None) -> RawTable:
    """The table of one file."""
    name = path.name.lower()
    if not path.is_file():
        raise InputError(f"{path}: no such file; {of_windows(path)}give {KINDS}")
    if name.endswith(PARQUET_ENDINGS):
        return ParquetFile(path)
    if name.endswith(CSV_ENDINGS):
        return CsvFile(path, dialect)
    database = reading(partial(database_file, path, query or ""), str(path))
    if database is None:
        raise InputError(_no_table(path))
    if query is None:
        tables = reading(database.tables, str(path))
        # What is no plain name would have to be typed otherwise than it is shown.
        plain = (sql for name, sql in tables.items() if printable(name) == name and '"' not in name)
        example = next(plain, '"TABLE"')
        raise InputError(
            f"{path}: a database needs query, such as 'select * from {example}'; it has the "  # noqa: S608
            f"tables {named([*tables], 10) or '(none)'}"
        )
    return database


def _no_table(path: Path) -> str:
    """Why a file is no table, and what to do."""
    if path.name.lower().endswith(_SHEET_ENDINGS):
        return f"{path}: a spreadsheet is not a table; save its sheet as CSV, and give that file"
    return (
        f"{path}: expected a table: a file ending in {', '.join(_ENDINGS)}, or a DuckDB or "
        "SQLite file; save it as CSV, and give that file"
    )


def database_source(place: str, query: str, *, base: Path, dialect: Dialect) -> Source:
    """What a query selects in the PostgreSQL database that "file:PATH" or "env:NAME" names.

    Raises:
      InputError: Nothing is there, it is no address of a database, or what is said of the reading
        is for CSV files.
    """
    dialect.refuse_elsewhere("database")
    uri = read_secret(place, base=base, setting="database")
    if not _POSTGRES.fullmatch(uri):
        raise InputError(
            f"database = {place!r}: expected postgresql://USER:PASSWORD@HOST/DATABASE there; in "
            "names and passwords write @ as %40, / as %2F, % as %25 and a blank as %20"
        )
    title = f"the database of {place}"
    return Source(title, [Part(title, f"{uri} {query}", Postgres(uri, query))])


def reading(read: Callable[[], T], title: str) -> T:
    """What a reader makes of a table; whatever it says of a broken one is one sentence.

    Args:
      read: Reads it.
      title: What the table is called in an error.

    Raises:
      InputError: It cannot be read.
      UnreachableError: Its database is away or busy, so the same may go well later.
    """
    try:
        return read()
    except (CoprivError, MemoryError):
        raise
    except Exception as error:  # Libraries have many names for a file that is no table.
        reason = str(error).strip().splitlines()
        if isinstance(error, OSError) and error.errno:
            reason = [os.strerror(error.errno)]
        # It may hold what a file or a server says.
        why = printable(reason[0].rstrip(".") if reason else repr(error))
        if is_away(error) or is_busy(error):
            raise UnreachableError(
                f"{title}: cannot be read now: {why}; see that it is there and free, and type the "
                "same command again"
            ) from None
        if _may_quote_a_cell(error):
            raise InputError(f"{title}: cannot be read as a table: {_FAILING_CELL}") from None
        raise InputError(
            f"{title}: cannot be read as a table: {why}; correct that, or give another table"
        ) from None


def _may_quote_a_cell(error: Exception) -> bool:
    """Whether a database tells of a query that failed as it ran, so of what a cell holds.

    What is wrong with a query itself it tells before: by the kind of DuckDB's error, and by the
    step that ADBC names. Only that it may not be run is told later.
    """
    # SQLite quotes none, and of what is too large it tells the operator.
    if type(error).__module__ == "sqlite3":
        return False
    kinds = {kind.__name__ for kind in type(error).__mro__}
    of_cells = not kinds.isdisjoint({"DataError", "InvalidInputException"})
    _, is_running, told = str(error).partition("[libpq] Execution error")
    is_allowed = not told.partition("ERROR:  ")[2].startswith(_NOT_ALLOWED)
    return of_cells or (bool(is_running) and is_allowed)
