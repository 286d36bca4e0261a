"""Tables that come in batches: only the rows and columns that count are held.

Arrow's cells are as pandas has them, and those it cannot hold are gaps. Pandas gives up a whole
file for one date beyond year 9999, one time of 25 o'clock, one text that is no UTF-8; here each of
them is a missing value, and the other cells are read as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa

from common.arrays import Flags
from common.cells import holds_numbers
from common.pushdown import Extent
from common.texts import brief

BATCH_ROWS = 2**17
PLAIN = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


class Keep(Protocol):
    """Decides which rows count."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it must see."""

    @property
    def conditions(self) -> Mapping[str, Any]:
        """What columns satisfy in all rows that count; others a reader need not pass on.

        Empty where a row's place in the whole table matters.
        """

    def passes_over(self, start: int, num_rows: int, extent: Extent) -> bool:
        """Whether surely none of the rows from a place on counts, which then are not read."""

    def __call__(self, start: int, num_rows: int, batch: pd.DataFrame) -> Flags:
        """Which of the rows from a place on count, shape (num_rows,)."""


def names_wanted(names: Iterable[str], *wanted: Iterable[str]) -> list[str]:
    """Those of the names that are wanted, in their own order.

    >>> names_wanted(["a", "b", "c"], ["c"], ["a", "z"])
    ['a', 'c']
    """
    all_wanted = {name for some in wanted for name in some}
    return [name for name in names if name in all_wanted]


def release_unused() -> None:
    """Give memory that Arrow holds for later back to the system; nobody reads for a while.

    It holds as much as reading took, of a table of 22 MB about 100.
    """
    pa.default_memory_pool().release_unused()


class Tap:
    """A filter that keeps no row, and passes on those that count as they go by.

    So a table that does not fit the memory is read by the same readers as any other.

    Args:
      keep: Which rows count.
      columns: The columns that are passed on.
      receive: (place of the first row among those that count, rows).
    """

    def __init__(
        self, keep: Keep, columns: Sequence[str], receive: Callable[[int, pd.DataFrame], None]
    ) -> None:
        self._keep, self._columns, self._receive = keep, list(columns), receive
        # How many rows counted before each batch: a reader that fails on one begins again.
        self._before: dict[int, int] = {}
        self.count = 0

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it must see."""
        return list(dict.fromkeys([*self._keep.columns, *self._columns]))

    @property
    def conditions(self) -> Mapping[str, Any]:
        """What columns satisfy in all rows that count."""
        return self._keep.conditions

    def passes_over(self, start: int, num_rows: int, extent: Extent) -> bool:
        """Whether surely none of the rows from a place on counts."""
        return self._keep.passes_over(start, num_rows, extent)

    def __call__(self, start: int, num_rows: int, batch: pd.DataFrame) -> Flags:
        """Pass on the rows of a batch that count; none is kept."""
        before = self._before.setdefault(start, self.count)
        kept = batch.loc[self._keep(start, num_rows, batch), self._columns]
        if len(kept):
            self._receive(before, kept.reset_index(drop=True))
        self.count = before + len(kept)
        return np.zeros(num_rows, dtype=np.bool_)


class RawTable(Protocol):
    """A table somewhere, its columns known before its rows."""

    @property
    def names(self) -> list[str]:
        """The columns' names."""

    @property
    def num_bytes(self) -> int:
        """About what all its cells take in memory."""

    def count(self) -> int:
        """How many rows there are."""

    def read(self, columns: Sequence[str], keep: Keep) -> pd.DataFrame:
        """The rows that count, with some columns."""


def stacked(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Tables of the same columns one after another, each cell as it was.

    Of times in two units pandas makes the finer one, and gives up all for a year beyond its own.

    >>> day = np.array(["9999-12-31"], "datetime64[us]")
    >>> frames = [pd.DataFrame({"until": day}), pd.DataFrame({"until": np.array([0], "M8[ns]")})]
    >>> [cell.year for cell in stacked(frames)["until"]]
    [9999, 1970]
    """
    kinds = {name: {frame[name].dtype for frame in frames} for name in frames[0].columns}
    apart = [n for n, own in kinds.items() if len(own) > 1 and {d.kind for d in own} & {*"mM"}]
    plain = [frame.astype(dict.fromkeys(apart, object)) for frame in frames]
    return pd.concat(plain, ignore_index=True)


def rows_of_frames(
    batches: Iterable[pd.DataFrame], columns: Sequence[str], keep: Keep
) -> pd.DataFrame:
    """The rows that count of a table in batches, of which there is one at least."""
    start, kept = 0, []
    for batch in batches:
        mask = keep(start, len(batch), batch)
        start += len(batch)
        kept.append(batch.loc[mask, list(columns)])
    return pd.concat(kept, ignore_index=True)


def rows_of_arrow(
    batches: Iterable[pa.Table | int],
    columns: Sequence[str],
    keep: Keep,
    *,
    mend: bool = True,
    with_gaps: Iterable[str],
) -> pd.DataFrame:
    """The rows that count of a table in batches, stored as pandas would store the whole table.

    Args:
      batches: The table, with one batch at least; a number stands for rows that were passed over.
      columns: The columns that are wanted.
      keep: Which rows count.
      mend: Whether cells that pandas cannot hold become gaps; without it they are an error.
      with_gaps: Columns that have a gap in rows that were passed over.
    """
    start, kept, gaps = 0, [], {*with_gaps}
    for batch in batches:
        if isinstance(batch, int):
            start += batch
            continue
        seen = _frame_of(batch.select(list(keep.columns)), mend=mend)
        mask = keep(start, len(batch), seen)
        start += len(batch)
        wanted = batch.select(list(columns))
        gaps |= {name for name in columns if wanted.column(name).null_count}
        kept.append(wanted if mask.all() else _chosen(wanted, mask))
    frame = _frame_of(pa.concat_tables(kept), mend=mend).reset_index(drop=True)
    frame = frame.set_axis(list(columns), axis=1)
    # How a column is stored depends on the whole of it, whichever rows count.
    for name in gaps.intersection(columns):
        frame[name] = with_room_for_gaps(frame[name])
    return frame


def with_room_for_gaps(column: pd.Series) -> pd.Series:
    """Truth values and whole numbers as they are held where one is missing.

    >>> [with_room_for_gaps(pd.Series(cells)).dtype for cells in ([True], [1], ["a"])]
    [dtype('O'), dtype('float64'), <StringDtype(na_value=nan)>]
    """
    kind = column.dtype.kind if isinstance(column.dtype, np.dtype) else ""
    kept = {"b": object, "i": np.float64, "u": np.float64}.get(kind)
    return column if kept is None else column.astype(kept)


def without_extensions(table: pa.Table) -> pa.Table:
    """A table without types that only a database knows: they are stored as something plain."""
    for i, field in enumerate(table.schema):
        if isinstance(field.type, pa.BaseExtensionType):
            plain = pa.chunked_array(
                [chunk.storage for chunk in table.column(i).chunks], field.type.storage_type
            )
            table = table.set_column(i, field.name, plain)
    return table


def without_views(table: pa.Table) -> pa.Table:
    """A table with plain texts and bytes in place of views, of which Arrow chooses no rows."""
    for i, field in enumerate(table.schema):
        if field.type in PLAIN:
            table = table.set_column(i, field.name, table.column(i).cast(PLAIN[field.type]))
    return table


def is_typed_by_gaps(stored: pa.DataType) -> bool:
    """Whether a column of a type is stored as another one where it has gaps.

    >>> is_typed_by_gaps(pa.int8()), is_typed_by_gaps(pa.string())
    (True, False)
    """
    return bool(pa.types.is_integer(stored) or pa.types.is_boolean(stored))


def _chosen(table: pa.Table, mask: Flags) -> pa.Table:
    """The rows of a table that count, as cells of their own; only those between are looked at."""
    places = np.flatnonzero(mask)
    if not len(places):
        return table.schema.empty_table()
    first, behind = int(places[0]), int(places[-1]) + 1
    return table.slice(first, behind - first).filter(pa.array(mask[first:behind]))


def _frame_of(table: pa.Table, *, mend: bool) -> pd.DataFrame:
    """A table as pandas has it.

    Raises:
      ValueError: A column has times of a zone that is not known here.
      Exception: A cell cannot be held, and gaps are not allowed.
    """
    if not table.num_columns:
        return pd.DataFrame(index=range(len(table)))
    for field in table.schema:
        _check_zone(field)
    frame: pd.DataFrame | None = None
    try:
        frame = table.to_pandas()
    except MemoryError:
        raise
    except Exception:
        if not mend:
            raise
    if frame is not None and all(_has_readable_cells(column) for _, column in frame.items()):
        return frame
    if not mend:
        raise ValueError("a cell cannot be written down")
    mended: pd.DataFrame = _without_unreadable(table).to_pandas()
    return mended


def _check_zone(field: pa.Field) -> None:
    """Refuse times of a zone that is not known here: a type says it, no cell does."""
    if getattr(field.type, "tz", None) is None:
        return
    try:
        pa.array([], field.type).to_pandas()
    except Exception:
        name, zone = (brief(text) for text in (field.name, field.type.tz))
        raise ValueError(
            f"the times of column {name!r} are of the zone {zone!r}, which is not known here as "
            "UTC and Europe/Berlin are"
        ) from None


def _has_readable_cells(column: pd.Series) -> bool:
    """Whether each cell can be taken out and written down, as a fingerprint does."""
    if holds_numbers(column):
        return True
    try:
        if isinstance(column.dtype, pd.StringDtype):
            # All at once: whether each text is one is all that there is to know.
            pa.array(column).validate(full=True)
            return True
        for cell in column:
            str(cell)
    except Exception:
        return False
    return True


def _without_unreadable(table: pa.Table) -> pa.Table:
    """A table with gaps where cells cannot be held."""
    for i, field in enumerate(table.schema):
        alone = table.select([i])
        if _is_readable(alone):
            continue
        column = table.column(i)
        if pa.types.is_large_string(field.type):
            column = pa.chunked_array([_valid_texts(table.column(i))])
        else:
            gaps = set(_unreadable(alone, 0, len(alone)))
            rows = [None if row in gaps else row for row in range(len(alone))]
            column = table.column(i).take(pa.array(rows, pa.int64()))
        table = table.set_column(i, field.with_nullable(True), column)
    return table


def _is_readable(table: pa.Table) -> bool:
    """Whether pandas can hold all cells of a table of one column."""
    frame: pd.DataFrame | None = None
    try:
        frame = table.to_pandas()
    except Exception:
        return False
    return all(_has_readable_cells(column) for _, column in frame.items())


def _unreadable(table: pa.Table, start: int, stop: int) -> Iterator[int]:
    """The rows of a table of one column that pandas cannot hold, by halving."""
    if start == stop or _is_readable(table.slice(start, stop - start)):
        return
    if stop - start == 1:
        yield start
        return
    middle = (start + stop) // 2
    yield from _unreadable(table, start, middle)
    yield from _unreadable(table, middle, stop)


def _valid_texts(column: pa.ChunkedArray) -> pa.Array:
    """The texts of a column, None where the bytes are no UTF-8."""
    cells = column.cast(pa.large_binary()).to_pylist()
    return pa.array([_decoded(cell) for cell in cells], column.type)


def _decoded(cell: bytes | None) -> str | None:
    try:
        return None if cell is None else cell.decode("utf-8")
    except UnicodeDecodeError:
        return None
