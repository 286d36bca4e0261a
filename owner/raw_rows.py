"""An owner's raw records as feature maps read them: a batch at a time, from memory or storage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
import pandas as pd

from common.arrays import Flags
from common.batches import stacked, with_room_for_gaps
from common.cells import written
from common.errors import InputError
from common.sources import Source
from common.tables import stream_selected
from owner.policy import PrivateSource
from owner.translation import stored_names_of, translated

# (place of the first row, rows)
Receive = Callable[[int, pd.DataFrame], None]


class RawRows(Protocol):
    """Raw records with their columns."""

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns that learners may use."""

    def __len__(self) -> int:
        """The number n of records."""

    def __getitem__(self, name: str) -> pd.Series:
        """One column."""

    def stream(self, names: Sequence[str], receive: Receive) -> None:
        """All records with some columns at least, in their order, in batches of any size.

        Records that come again, after a reader began again, replace what stood at their place.
        """


def evenly_held(table: pd.DataFrame, *, is_typed: bool) -> pd.DataFrame:
    """The table with columns that no cell decides how to hold; each cell reads as it did.

    Numbers are read many at once, other cells one by one. So one text among SQLite's numbers, or
    one gap among truth values, would make every enrolment take another time, and memory.

    Args:
      table: As it was read.
      is_typed: Whether cells of a column are of one type, as in all sources but SQLite.

    >>> cells = pd.DataFrame({"a": [1.5, "abc"]}, dtype=object)
    >>> evenly_held(cells, is_typed=False)["a"].tolist()
    ['1.5', 'abc']
    >>> evenly_held(pd.DataFrame({"b": [True, False]}), is_typed=True)["b"].dtype
    dtype('O')
    """
    even = with_room_for_gaps if is_typed else _as_texts
    columns = {name: even(column) for name, column in table.items()}
    # Columns that stay as they are are not copied: a table may take most of the memory.
    return pd.DataFrame(columns, index=table.index, copy=False)


def _as_texts(column: pd.Series) -> pd.Series:
    """Each cell as a text that reads as it does."""
    cells = [*map(written, column)]
    return pd.Series(cells, index=column.index, dtype=pd.StringDtype("pyarrow"))


class HeldRows:
    """Records in memory."""

    def __init__(self, table: pd.DataFrame) -> None:
        self._table = table

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns."""
        return [str(name) for name in self._table.columns]

    def __len__(self) -> int:
        """The number n of records."""
        return len(self._table)

    def __getitem__(self, name: str) -> pd.Series:
        """One column."""
        return self._table[name]

    def stream(self, names: Sequence[str], receive: Receive) -> None:
        """All records at once: they are here."""
        del names
        receive(0, self._table)


class FarRows:
    """Records that stay in their files or their database, and are read again for each pass.

    Args:
      opened: The table.
      settings: Which of its rows count, and the owner's words for them.
      where: What it is called in an error.
      columns: The columns that learners may use, in the study's words.
      num_rows: How many rows count.
      stamps: Sizes and times of its files before anything was read, to see that none has changed.
      as_it_was: Holds one state of a database, and refuses one that has changed since the start.
      keep: Which of those are records, shape (num_rows,); None for all.
    """

    def __init__(
        self,
        opened: Source,
        settings: PrivateSource,
        *,
        where: str,
        columns: Sequence[str],
        num_rows: int,
        stamps: Sequence[tuple[int, int]],
        as_it_was: Callable[[], AbstractContextManager[None]],
        keep: Flags | None,
    ) -> None:
        self._opened, self._settings, self._where = opened, settings, where
        self._columns = tuple(columns)
        self._keep = keep
        self._num_rows, self._stamps = num_rows, list(stamps)
        self._as_it_was = as_it_was
        # A state of a database is held for one who reads.
        self._alone = threading.Lock()

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns that learners may use."""
        return self._columns

    def __len__(self) -> int:
        """The number n of records."""
        return self._num_rows if self._keep is None else int(np.count_nonzero(self._keep))

    def __getitem__(self, name: str) -> pd.Series:
        """One column; it is read for this alone, before anything is served."""
        parts: dict[int, pd.DataFrame] = {}
        self._read([name], parts.__setitem__)
        return stacked([parts[start] for start in sorted(parts)])[name]

    def stream(self, names: Sequence[str], receive: Receive) -> None:
        """All records with some columns, read once more.

        Raises:
          InputError: They are not those that were there first: a ledger is of those.
        """
        with self._alone, self._as_it_was():
            self._read(names, receive)

    def _read(self, names: Sequence[str], receive: Receive) -> None:
        """The same; of a database that has changed, records as they are now."""

        def pass_on(start: int, rows: pd.DataFrame) -> None:
            rows = translated(rows, self._settings, where=self._where)[list(names)]
            if self._keep is not None:
                rows = rows[self._keep[start : start + len(rows)]].reset_index(drop=True)
                start = int(np.count_nonzero(self._keep[:start]))
            if len(rows):
                receive(start, rows)

        stored_names = stored_names_of(self._settings, names)
        self._check_stamps()
        stream_selected(self._opened, self._settings, stored_names, pass_on)
        self._check_stamps()

    def _check_stamps(self) -> None:
        if self._opened.stamps() != self._stamps:
            raise table_changed(self._where)


def table_changed(where: str) -> InputError:
    """The error of a table that is not the one of the start."""
    return InputError(f"{where}: the table has changed since this owner started; start it again")
