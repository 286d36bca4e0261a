"""An owner's raw records as feature maps read them: a batch at a time, from memory or from afar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pandas as pd

from common.arrays import Flags
from common.sources import Source
from common.tables import tell_selected
from owner.policy import PrivateSource
from owner.translation import own_names, translated

__all__ = ["FarRows", "Hear", "HeldRows", "RawRows"]

# (place of the first row, rows)
Hear = Callable[[int, pd.DataFrame], None]


class RawRows(Protocol):
    """Raw records with their columns."""

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns that learners may use."""

    def __len__(self) -> int:
        """The number n of records."""

    def __getitem__(self, name: str) -> pd.Series:
        """One column."""

    def tell(self, names: Sequence[str], hear: Hear) -> None:
        """All records with some columns at least, in their order, in batches of any size.

        One that is told again, after a reader began again, replaces what stood at its place.
        """


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

    def tell(self, names: Sequence[str], hear: Hear) -> None:
        """All records at once: they are here."""
        del names
        hear(0, self._table)


class FarRows:
    """Records that stay in their files or their database, and are read whenever they are told.

    Args:
      opened: The table.
      settings: Which of its rows count, and the owner's words for them.
      where: What it is called in an error.
      columns: The columns that learners may use, in the study's words.
      num_rows: How many rows count.
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
        keep: Flags | None = None,
    ) -> None:
        self._opened, self._settings, self._where = opened, settings, where
        self._columns = tuple(columns)
        self._keep = keep
        self._num_rows = num_rows

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns that learners may use."""
        return self._columns

    def __len__(self) -> int:
        """The number n of records."""
        return self._num_rows if self._keep is None else int(np.count_nonzero(self._keep))

    def __getitem__(self, name: str) -> pd.Series:
        """One column; it is read for this alone."""
        parts: dict[int, pd.Series] = {}
        self.tell([name], lambda start, rows: parts.__setitem__(start, rows[name]))
        return pd.concat([parts[start] for start in sorted(parts)], ignore_index=True)

    def tell(self, names: Sequence[str], hear: Hear) -> None:
        """All records with some columns, read once more."""

        def heard(start: int, rows: pd.DataFrame) -> None:
            rows = translated(rows, self._settings, where=self._where)[list(names)]
            if self._keep is not None:
                rows = rows[self._keep[start : start + len(rows)]].reset_index(drop=True)
                start = int(np.count_nonzero(self._keep[:start]))
            if len(rows):
                hear(start, rows)

        own = own_names(self._settings, names)
        tell_selected(self._opened, self._settings, own, heard)
