"""CSV as offices write it: separator and decimal comma from the header, each cell's own encoding.

Where its user says that dates have the day first, they are turned round here, so that nothing
behind this module knows of more than one order.

No cell may change how another one is read: that would be an answer about a record. So the
separator is found in the header alone, the kind of Unicode in the file's first bytes, and where
no encoding is given each cell is UTF-8, or else Windows-1252.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import groupby, islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import pandas as pd

from common.batches import BATCH_ROWS, Keep, names_wanted, rows_of_frames
from common.columns import parse_number
from common.dialects import Dialect
from common.errors import InputError
from common.texts import counted

CSV_ENDINGS = tuple(f".{kind}{gz}" for kind in ("csv", "tsv", "txt") for gz in ("", ".gz"))
SEPARATORS = (",", ";", "\t", "|")
# What to do about a row that is too wide: a first line of one cell may be a title.
ABOVE = "correct the header, remove lines above it, or set separator"
QUOTED = "correct that row: a cell with a separator in it stands between two quotation marks"
# Longer is no header.
LONGEST_HEADER = 2**20
_SEPARATOR_LINE = re.compile(r"\ufeff?[ \t]*+sep=.[ \t]*+", re.IGNORECASE | re.ASCII)
_AROUND = "\ufeff "
# The parser passes over lines of nothing else.
_BLANK = " \t"
# Between quotation marks around a cell a line may break.
_LINE_PARTS = re.compile(
    r'(?<![^,;\t|\ufeff\r\n])"[^"]*+"(?:"[^"]*+")*|(?P<end>[\r\n]++)|[^"\r\n]++|"', re.ASCII
)
_QUOTED = re.compile(r'"[^"]*+"', re.ASCII)
_DECIMAL_COMMA = re.compile(
    r"(?<![0-9.,])(?P<whole>[0-9]{1,3}(?:\.[0-9]{3})+|[0-9]++),(?P<part>[0-9]++)",
    re.ASCII,
)
# Read so only where a user says that commas are decimal points; elsewhere 2.756 may be either.
_GROUPED = re.compile(
    r"(?<![0-9.,])(?P<whole>[1-9][0-9]{0,2}(?:\.[0-9]{3})+)(?![0-9.,])",
    re.ASCII,
)
# A time of the day may stand behind it. Two digits are no year: they leave the century open.
_DAY_FIRST = re.compile(
    r"(?P<day>[0-9]{1,2})(?P<mark>[./-])(?P<month>[0-9]{1,2})(?P=mark)(?P<year>[0-9]{4})"
    r"(?P<time>[T ].*)?",
    re.ASCII,
)
_UNICODE_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as that of UTF-16 does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# What files of other programs begin with, and what to make of them.
_OTHERS = (
    (b"PK\x03\x04", "a ZIP archive, or a workbook of Excel", "unpack it, or save the sheet as CSV"),
    (b"\xd0\xcf\x11\xe0", "a workbook of Excel", "save the sheet as CSV"),
    (b"\x1f\x8b", "compressed by gzip", "let its name end in .csv.gz"),
    (b"PAR1\x15", "Parquet", "let its name end in .parquet"),
    (b"SQLite format 3\0", "an SQLite database", "let its name end in .sqlite, and give a query"),
    (b"%PDF-", "a PDF", "save the table as CSV"),
)
# Every byte is one character of it, so cells can be cut out before they are decoded.
_BYTES = "latin-1"


class CsvFile:
    """One CSV file, its cells as texts.

    Args:
      path: The file, perhaps compressed by gzip.
      dialect: What its user says of it.
    """

    def __init__(self, path: Path, dialect: Dialect) -> None:
        self.path = path
        self._dialect = dialect

    @cached_property
    def separator(self) -> str:
        """What stands between two cells: as given, or most often in the header, a comma first."""
        # Looked at in any case: one without an end is refused.
        first = self._first_lines[0]
        if self._dialect.separator is not None:
            return self._dialect.separator
        bare = _QUOTED.sub("", first)
        return max(SEPARATORS, key=bare.count)

    @cached_property
    def has_decimal_comma(self) -> bool:
        """Whether a comma in a number is its decimal point: as given, or where ; separates."""
        return (self._dialect.decimal or ("," if self.separator == ";" else ".")) == ","

    @cached_property
    def names(self) -> list[str]:
        """The columns' names; one that occurs twice is counted: a, a.1."""
        return [self._text(name) for name in self._stored]

    @cached_property
    def header(self) -> list[str]:
        """The first line's cells as they are."""
        first = self._parsed(header=None, nrows=1)
        return [self._text(str(cell)) for cell in first.iloc[0]]

    @property
    def num_bytes(self) -> int:
        """About what all its cells take in memory."""
        size = self.path.stat().st_size
        return size * (20 if self.path.name.lower().endswith(".gz") else 3)

    def count(self) -> int:
        """How many rows there are."""
        return sum(len(batch) for batch in self._batches())

    def read(self, columns: Sequence[str], keep: Keep) -> pd.DataFrame:
        """The rows that count, with some columns.

        Raises:
          InputError: The rows have more cells than the header has names.
        """
        self._check_widths()
        needed = names_wanted(self.names, columns, keep.columns)
        stored = dict(zip(self.names, self._stored, strict=True))
        wanted = [stored[name] for name in needed] or self._stored[:1]
        batches = (
            batch[wanted].apply(self._texts).set_axis(needed or self.names[:1], axis=1)
            for batch in self._batches()
        )
        return rows_of_frames(batches, columns, keep)

    @cached_property
    def _stored(self) -> list[str]:
        """The names as the parser sees them."""
        return list(map(str, self._parsed(nrows=0).columns))

    def _text(self, cell: str) -> str:
        return _text_of_bytes(cell) if self._is_bytes else cell

    def _texts(self, column: pd.Series) -> pd.Series:
        """A column's cells, decoded, with decimal points and the year first, each by itself."""
        if self._is_bytes:
            column = _each(column, column.str.contains("[^\\x00-\\x7f]", na=False), _text_of_bytes)
        if self._dialect.dates == "day-first":
            column = _each(column, column.str.contains("[./-]", na=False), _year_first)
        if self._dialect.decimal == ",":
            column = _each(column, column.str.contains(".", regex=False, na=False), _ungrouped)
        if self.has_decimal_comma:
            column = _each(column, column.str.contains(",", regex=False, na=False), _pointed)
        return column

    @cached_property
    def encoding(self) -> str:
        """The encoding that the parser gets.

        Raises:
          InputError: The file begins as one of another program does.
        """
        start = self._start(16)
        for mark, what, cure in _OTHERS:
            if start.startswith(mark):
                raise InputError(f"{self.path}: is not CSV but {what}; {cure}")
        if self._dialect.encoding is not None:
            return self._dialect.encoding
        return next((name for mark, name in _UNICODE_MARKS if start.startswith(mark)), _BYTES)

    @property
    def _is_bytes(self) -> bool:
        """Whether cells are decoded one by one."""
        return self._dialect.encoding is None and self.encoding == _BYTES

    def _start(self, size: int) -> bytes:
        """The file's first bytes."""
        with opened_bytes(self.path) as file:
            return file.read(size)

    @cached_property
    def _first_lines(self) -> list[str]:
        """The first few lines that are not empty."""
        start = self._start(LONGEST_HEADER)
        return _first_lines(start, self.encoding, where=str(self.path))

    def _check_widths(self) -> None:
        """Refuse a first row that is wider than the header: its cells would be shifted, or one."""
        first = self._first_lines[0]
        if _SEPARATOR_LINE.fullmatch(first):
            raise InputError(
                f"{self.path}: the first line is {first.strip(_AROUND)!r}, which some programs "
                "write above the header; remove that line"
            )
        header, *rows = self._rows(self.separator)
        is_wide = rows and any(cell.strip() for cell in rows[0][len(header) :])
        found = f"{len(rows[0])} cells" if is_wide else self._hidden_cells(rows)
        if found:
            raise InputError(
                f"{self.path}: the first row has {found}, but the header has "
                f"{counted(len(header), 'name')}; {ABOVE}"
            )

    def _hidden_cells(self, rows: Sequence[Sequence[str]]) -> str:
        """The cells of rows that the first line, a title, takes for one; empty for none.

        Args:
          rows: Both rows below that line; one row alone shows nothing, since a text may have marks.
        """
        if self._dialect.separator is not None or len(rows) < 2 or len(rows[0]) > 1:
            return ""
        for other in SEPARATORS:
            widths = [len(row) for row in self._rows(other)[1:]]
            if len(widths) == 2 and widths[0] == widths[1] > 1:
                return f"{widths[0]} cells with {other!r} between them"
        return ""

    def _rows(self, separator: str) -> list[list[str]]:
        """The cells of the first lines, if this separates them."""
        # The reader's own limit would make a long cell of the first rows refuse the table.
        csv.field_size_limit(LONGEST_HEADER)
        text = io.StringIO("\n".join(self._first_lines))
        return list(csv.reader(text, delimiter=separator))

    def _batches(self) -> Iterator[pd.DataFrame]:
        """The rows with all columns, batch by batch, an empty batch first.

        A parser that is asked for some columns only does not see that a row has too many cells.
        """
        yield self._parsed(nrows=0)
        with self._parsed(chunksize=BATCH_ROWS) as batches:
            while True:
                with warnings.catch_warnings():
                    # Of separators at the ends of the rows.
                    warnings.simplefilter("ignore", pd.errors.ParserWarning)
                    batch = self._sound(lambda: next(batches, None))
                if batch is None:
                    return
                yield batch

    def _parsed(self, **options: Any) -> Any:
        """What the parser makes of the file, without a view of its own on what cells mean."""
        return self._sound(
            lambda: pd.read_csv(
                self.path,
                dtype=str,
                keep_default_na=False,
                index_col=False,
                sep=self.separator,
                encoding=self.encoding,
                encoding_errors="replace",
                **options,
            )
        )

    def _sound(self, parse: Callable[[], Any]) -> Any:
        """What the parser makes of the file, and where it is no table, in a sentence."""
        try:
            return parse()
        except pd.errors.EmptyDataError:
            raise InputError(
                f"{self.path}: the file is empty; give a table with a header and records"
            ) from None
        except pd.errors.ParserError as error:
            place = _place_of_fault(str(error))
            if not place:
                raise
            cure = ABOVE if place.endswith(" 1 name") else QUOTED
            raise InputError(f"{self.path}: {place}; {cure}") from None


def opened_bytes(path: Path) -> BinaryIO:
    """A file's bytes, decompressed."""
    is_packed = path.name.lower().endswith(".gz")
    return cast("BinaryIO", (gzip.open if is_packed else open)(path, "rb"))


def _first_lines(start: bytes, encoding: str, *, where: str) -> list[str]:
    r"""The first few lines of a file that are not empty.

    Raises:
      InputError: The first one is longer than any header: a parser would hold all of it; or its
        letters take more bytes than the encoding says.

    >>> _first_lines(b'a,"b\n(c)"\n\n1,2\n', "utf-8", where="t.csv")
    ['a,"b\n(c)"', '1,2']
    """
    text = start.decode(encoding, errors="replace")
    parts = groupby(_LINE_PARTS.finditer(text), key=lambda part: part.lastgroup)
    found = ("".join(part[0] for part in line) for ends, line in parts if not ends)
    lines = list(islice((line for line in found if line.strip(_BLANK)), 3))
    if len(start) == LONGEST_HEADER and len(lines) == 1 and text.endswith(lines[0]):
        raise InputError(
            f"{where}: the first line is longer than {LONGEST_HEADER >> 20} MB; give a table with "
            "the columns' names in its first line"
        )
    if "\0" in "".join(lines[:1]):
        raise InputError(
            f"{where}: the first line has the character 0, as UTF-16 has without a byte order "
            'mark; set encoding = "utf-16-le" (--encoding utf-16-le), or save it as UTF-8'
        )
    return lines or [""]


def _place_of_fault(said: str) -> str:
    """Where a row is too wide, or a quotation mark too many, as the parser says; else empty.

    >>> _place_of_fault("Error tokenizing data. C error: Expected 5 fields in line 51, saw 7")
    'line 51 has 7 cells, but the header has 5 names'
    >>> _place_of_fault("Error tokenizing data. C error: Expected 1 fields in line 3, saw 2")
    'line 3 has 2 cells, but the header has 1 name'
    """
    wide = re.search(r"Expected ([0-9]+) fields in line ([0-9]+), saw ([0-9]+)", said, re.ASCII)
    if wide is not None:
        names, line, cells = wide.groups()
        return f"line {line} has {cells} cells, but the header has {counted(int(names), 'name')}"
    quoted = re.search(r"EOF inside string starting at row ([0-9]+)", said, re.ASCII)
    if quoted is not None:
        # Rows are counted from 0.
        return f"a quotation mark in line {int(quoted[1]) + 1} or later is never closed"
    return ""


def _each(column: pd.Series, where: pd.Series, change: Callable[[str], str]) -> pd.Series:
    """A column with some cells changed, equal ones once."""
    if not where.any():
        return column
    found = column[where]
    changed = {cell: change(cell) for cell in found.unique()}
    column = column.copy()
    column[where] = found.map(changed)
    return column


def _text_of_bytes(text: str) -> str:
    r"""What bytes say that were read as if each were a character.

    >>> _text_of_bytes("CÃ´te"), _text_of_bytes("C\xf4te")
    ('Côte', 'Côte')
    """
    raw = text.encode(_BYTES)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("cp1252", errors="replace")


def _pointed(text: str) -> str:
    """A number with a decimal point, if a text is one with a decimal comma.

    >>> _pointed("1.458,50"), _pointed("12,5 %"), _pointed("Berg, Ida"), _pointed("1,2,3")
    ('1458.50', '12.5 %', 'Berg, Ida', '1,2,3')
    """
    pointed = _DECIMAL_COMMA.sub(lambda m: f"{m['whole'].replace('.', '')}.{m['part']}", text)
    return text if math.isnan(parse_number(pointed)) else pointed


def _ungrouped(text: str) -> str:
    """A number without the points between its thousands, if a text is one with such points.

    >>> [_ungrouped(text) for text in ("48.011", "-1.234.567 %", "23.06.2018", "2.75", "1.458,50")]
    ['48011', '-1234567 %', '23.06.2018', '2.75', '1.458,50']
    """
    whole = _GROUPED.sub(lambda m: m["whole"].replace(".", ""), text)
    return text if math.isnan(parse_number(whole)) else whole


def _year_first(text: str) -> str:
    """A date as YEAR-MONTH-DAY, if a text is one with the day first; no other order is taken.

    >>> [_year_first(text) for text in ("31.12.2020", "1/2/2020 07:30", "12/31/2020", "1.458,50")]
    ['2020-12-31', '2020-2-1 07:30', '2020-31-12', '1.458,50']
    """
    match = _DAY_FIRST.fullmatch(text.strip())
    if match is None:
        return text
    return f"{match['year']}-{match['month']}-{match['day']}{match['time'] or ''}"
