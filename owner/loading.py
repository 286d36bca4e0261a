"""An owner's table as its settings describe it: read, its header looked at, its columns named.

Refusals here are for the owner's operator, before anything is served.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from common.arrays import Flags
from common.batches import release_unused
from common.databases import Database, SqliteFile
from common.errors import DoubtWarning, InputError
from common.features import FeatureMap, load_feature_map, with_target
from common.headers import ROWS_BELOW, check_header
from common.memory_limit import memory_bytes
from common.row_filters import parse_rows
from common.sources import Source
from common.suggestions import LONGEST_SHOWN, among_columns
from common.tables import BYTES_AT_ONCE, TableSource, open_source, read_selected
from owner.policy import OwnerSettings, PrivateSource
from owner.raw_rows import FarRows, HeldRows, RawRows, evenly_held, table_changed
from owner.shard import PrivateTable, fingerprint
from owner.shard_cache import ShardCache
from owner.translation import stored_names_of, translated

# The words of a query, and the calls; a name in quotes or a comment is none.
_WORDS = re.compile(r"'[^']*'|\"[^\"]*\"|--[^\n]*|using sample|[a-z_0-9]+ ?\(?", re.ASCII)
# With these it may select other rows each time, or one row decides about another.
_UNSTEADY = {
    *("limit", "fetch", "tablesample", "using sample", "over(", "random(", "randomblob("),
    *("now(", "'now'", "current_date", "current_time", "current_timestamp", "localtimestamp"),
}


@dataclass(frozen=True)
class Loaded:
    """An owner's records.

    Args:
      raw: The columns that learners may use, or all where none is named.
      table: The same, as feature maps are applied to them.
      fingerprint: What the ledger is bound to: all columns of these records.
      left_out: How many others have no readable target and are left out of n_i; None where no
        setting leaves any out.
    """

    raw: pd.DataFrame
    table: PrivateTable
    fingerprint: str
    left_out: int | None = None


@dataclass(frozen=True)
class Served:
    """An owner's records as they are served, in memory or where they are.

    Args:
      rows: The raw records.
      table: The same, as feature maps are applied to them.
      fingerprint: What the ledger is bound to.
    """

    rows: RawRows
    table: PrivateTable
    fingerprint: str


def title_of(settings: OwnerSettings) -> str:
    """What the owner's records are called in an error."""
    place = settings.data.path or f"the database of {settings.data.database}"
    return f"{settings.name}: {place}"


def pinned_map(settings: OwnerSettings, base: Path) -> FeatureMap | None:
    """The only feature map that the owner accepts, or None."""
    return load_feature_map(base / settings.features) if settings.features else None


def stays_far(settings: PrivateSource, source: Source) -> bool:
    """Whether raw records are read where they are, and shards are kept on the disk."""
    if settings.cache != "auto":
        return settings.cache
    return source.num_bytes > memory_bytes() // 2


def shards_folder(settings: OwnerSettings, base: Path) -> Path:
    """Where the shards are kept of records that stay where they are."""
    return Path(f"{base / settings.ledger.path}.shards")


def load_to_serve(settings: OwnerSettings, *, base: Path, pinned: FeatureMap | None) -> Served:
    """The owner's records for serving; of those that stay where they are, a batch is held.

    Raises:
      InputError: As :func:`load_records`, or shards cannot be kept beside the ledger.

    Warns:
      DoubtWarning: As :func:`load_records`.
    """
    source = _opened(settings, base=base)
    if not stays_far(settings.data, source):
        loaded = load_records(settings, base=base, pinned=pinned)
        return Served(HeldRows(loaded.raw), loaded.table, loaded.fingerprint)
    _doubt_query(settings)
    columns = named_columns(settings, pinned)
    where = title_of(settings)
    stamps = source.stamps()
    parts = _Parts(source, settings.data, named=())
    print_of_all = print_of_rows = fingerprint(parts)
    release_unused()
    check_header(source.header, parts.beginning, where=where)
    _check_columns(settings, pinned, source, where=where)
    usable = columns or tuple(translated(parts.beginning, settings.data, where=where).columns)

    def far(keep: Flags | None) -> FarRows:
        return FarRows(
            source,
            settings.data,
            where=where,
            columns=usable,
            num_rows=parts.num_rows,
            stamps=stamps,
            as_it_was=partial(_as_it_was, source, settings.data, print_of_rows, where=where),
            keep=keep,
        )

    rows, beginning = far(None), parts.beginning
    if settings.data.missing_target is not None:
        if pinned is not None:
            beginning = pd.DataFrame({pinned.target_name: rows[pinned.target_name]})
        keep = _with_target(beginning, settings, pinned, where=where)
        rows, print_of_all = far(keep), _without(print_of_all, keep)
    # In other words or units the same records have other features, but no other budget.
    words = settings.data.model_dump_json(include={"rename", "units", "spellings"})
    cache = ShardCache(shards_folder(settings, base), fingerprint=f"{print_of_all} {words}")
    table = _private(rows, settings, columns, where=where, cache=cache)
    return Served(rows, table, print_of_all)


@contextmanager
def _as_it_was(
    source: Source, selected: TableSource, print_of_rows: str, *, where: str
) -> Iterator[None]:
    """One state of a database, whose rows are those of the start; of files, stamps tell.

    Raises:
      InputError: Its rows are others.
    """
    if not _is_database(source):
        yield
        return
    with source.still():
        if fingerprint(_Parts(source, selected, named=()).read()) != print_of_rows:
            raise table_changed(where)
        yield


def _private(
    rows: pd.DataFrame | RawRows,
    settings: OwnerSettings,
    columns: Sequence[str],
    *,
    where: str,
    cache: ShardCache | None = None,
) -> PrivateTable:
    """The table that studies are answered from, as the settings say."""
    return PrivateTable(
        rows,
        where=where,
        columns=columns,
        threads=settings.num_threads,
        storage=settings.data.storage,
        cache=cache,
    )


def load_records(settings: OwnerSettings, *, base: Path, pinned: FeatureMap | None) -> Loaded:
    """The owner's records; of a large table, only the columns that learners may use are held.

    Args:
      settings: The owner's settings.
      base: The folder of their file.
      pinned: The only feature map that the owner accepts, or None.

    Raises:
      InputError: The table cannot be read, its header looks like a record, or a column that
        the settings or the map name is not there.

    Warns:
      DoubtWarning: A database's query may not select the same rows each time.
    """
    _doubt_query(settings)
    columns = named_columns(settings, pinned)
    where = title_of(settings)
    source = _opened(settings, base=base)
    stored_names = stored_names_of(settings.data, columns) if columns else ()
    parts = _Parts(source, settings.data, named=stored_names or source.names)
    print_of_all = fingerprint(parts)
    release_unused()
    check_header(source.header, parts.beginning, where=where)
    _check_columns(settings, pinned, source, where=where)
    raw = translated(parts.named(), settings.data, where=where)
    keep = _with_target(raw, settings, pinned, where=where)
    if keep is not None:
        raw = raw[keep].reset_index(drop=True)
    is_typed = not any(isinstance(part.table, SqliteFile) for part in source.parts)
    raw = evenly_held(raw, is_typed=is_typed)
    drops = settings.data.missing_target == "drop"
    return Loaded(
        raw,
        _private(raw, settings, columns, where=where),
        _without(print_of_all, keep),
        left_out=parts.num_rows - len(raw) if drops else None,
    )


def _opened(settings: OwnerSettings, *, base: Path) -> Source:
    """The owner's table.

    Raises:
      InputError: It cannot be opened, or a record that is replaced would change more than one.
    """
    source, rows = open_source(settings.data, base=base), settings.data.rows
    if _is_database(source) and rows is not None and abs(parse_rows(rows).step or 1) != 1:
        raise InputError(
            f"{settings.name}: data.rows = {rows!r}: a database's rows are sorted, so one record "
            "that is replaced would move others in and out; give a range without a step, or a "
            "query that selects by what a row says"
        )
    return source


def _is_database(source: Source) -> bool:
    """Whether a table is in a database, which sorts it, and which others may write to."""
    return any(isinstance(part.table, Database) for part in source.parts)


def _doubt_query(settings: OwnerSettings) -> None:
    """Doubt a query whose rows hang on each other, on chance or on the time.

    Warns:
      DoubtWarning: It has a word that says so.
    """
    words = (
        word.replace(" (", "(").strip()
        for word in _WORDS.findall((settings.data.query or "").lower())
    )
    found = next((word for word in words if word in _UNSTEADY), None)
    if found is not None:
        warnings.warn(
            f"{settings.name}: data.query has {found.rstrip('(')}: where it selects other rows at "
            "the next start the ledger is refused, and where one row decides about another a "
            "record is protected less; let it select each row by what that row says",
            DoubtWarning,
            stacklevel=3,
        )


def _check_columns(
    settings: OwnerSettings, pinned: FeatureMap | None, source: Source, *, where: str
) -> None:
    """Refuse names that the table has not; not before its header was looked at.

    Names that are a record's values must not be shown.
    """
    needed, names = pinned.columns_needed if pinned else (), source.names
    there = {*names}
    for name in named_columns(settings, pinned):
        if settings.data.rename.get(name, name) not in there:
            who = "the feature map needs" if name in needed else "the setting data.columns names"
            raise InputError(
                f"{where}: no column {name[:LONGEST_SHOWN]!r}, which {who}"
                f"{among_columns(name, names)}"
            )


def _without(print_of_all: str, keep: Flags | None) -> str:
    """The fingerprint of records of which some are left out."""
    if keep is None:
        return print_of_all
    left_out = np.packbits(~keep).tobytes()
    return hashlib.sha256(print_of_all.encode() + left_out).hexdigest()


class _Parts:
    """A table, a few columns at a time: all of them are seen, and those that are named kept.

    Args:
      source: The table.
      selected: Which of its rows count.
      named: The columns that are kept.
    """

    def __init__(self, source: Source, selected: TableSource, *, named: Sequence[str]) -> None:
        self._source = source
        self._selected = selected
        self._kept = frozenset(named)
        self._columns: dict[str, pd.Series] = {}
        self._first: dict[str, pd.Series] = {}
        self.num_rows = 0

    def __iter__(self) -> Iterator[pd.DataFrame]:
        # Else cells of two records might stand beside each other: one would be two of the shard.
        with self._source.still():
            yield from self.read()

    def read(self) -> Iterator[pd.DataFrame]:
        """The same, where the caller holds one state of the table."""
        names = self._source.names
        rounds = -(-self._source.num_bytes // BYTES_AT_ONCE)
        size = max(1, len(names) // max(1, rounds))
        for start in range(0, len(names), size):
            part = read_selected(self._source, self._selected, names[start : start + size])
            self.num_rows = len(part)
            for name, column in part.items():
                self._first[str(name)] = column.head(ROWS_BELOW).copy()
                if name in self._kept:
                    self._columns[str(name)] = column
            yield part

    @property
    def beginning(self) -> pd.DataFrame:
        """The first rows with all columns, once all have been seen."""
        return pd.DataFrame(self._first)

    def named(self) -> pd.DataFrame:
        """The columns that are kept, once all have been seen."""
        return pd.DataFrame(self._columns)


def _with_target(
    raw: pd.DataFrame, settings: OwnerSettings, pinned: FeatureMap | None, *, where: str
) -> Flags | None:
    """Which records stay where the owner leaves out those without a target; None for all.

    Only the owner's own map may decide: a learner's would count gaps of columns it chooses.
    """
    if settings.data.missing_target is None:
        return None
    if pinned is None:
        raise InputError(
            f"{where}: data.missing_target needs the owner's own feature map, which says what the "
            "target is; set features = FILE, or remove missing_target"
        )
    keep = with_target(raw, pinned, settings.data.missing_target, where=where)
    return None if keep.all() else keep


def named_columns(settings: OwnerSettings, pinned: FeatureMap | None) -> tuple[str, ...]:
    """The columns that learners may know of and use: no other name leaves the owner.

    Empty where neither the settings nor a feature map of the owner's own names any.
    """
    names = (*settings.data.columns, *(pinned.columns_needed if pinned else ()))
    return tuple(dict.fromkeys(names))
