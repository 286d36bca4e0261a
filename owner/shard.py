"""An owner's private table, and the shards that feature maps make of it."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TypeVar
from weakref import WeakValueDictionary

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from common.arrays import Vector
from common.batches import release_unused
from common.cells import as_text, holds_numbers, missing_cells
from common.errors import PolicyError
from common.features import FeatureMap
from common.terms import Records
from owner.raw_rows import HeldRows, RawRows, table_changed
from owner.shard_cache import ShardCache
from owner.shards import AnyShard, MomentShard, Shard
from owner.stored import Storage, stored_float32
from owner.sums import MomentStream

T = TypeVar("T")
# (place of the first record, features, targets).
Receive = Callable[[int, NDArray[np.floating], Vector], None]

KEPT_SHARDS = 4
# A feature map works on this many records at once: what it needs beside them stays in the cache.
ROWS_AT_ONCE = 2**14


def fingerprint(parts: Iterable[pd.DataFrame]) -> str:
    """SHA-256 over column names and values: a ledger belongs to exactly these records.

    Args:
      parts: The table, a few columns at a time, in their order.

    >>> a, b = (fingerprint([pd.DataFrame({"x": [1, last]})]) for last in (2, 3))
    >>> a == b, a == fingerprint([pd.DataFrame({"x": [1, 2]})])
    (False, True)
    """
    digest = hashlib.sha256()
    for name, column in ((str(n), c) for part in parts for n, c in part.items()):
        digest.update(f"{name}\x1e{len(column)}\x1e".encode())
        if holds_numbers(column):
            cells = column.to_numpy()
            digest.update(cells.dtype.kind.encode())
            digest.update(cells.astype(cells.dtype.newbyteorder("<")).tobytes())
        else:
            missing = missing_cells(column)
            digest.update(np.packbits(missing).tobytes())
            texts = [as_text(cell).encode("utf-8", "surrogatepass") for cell in column[~missing]]
            # With the lengths, so that no two columns of cells make the same bytes.
            digest.update(np.array([len(text) for text in texts], dtype="<u8").tobytes())
            digest.update(b"".join(texts))
    return digest.hexdigest()


class PrivateTable:
    """The raw records of one owner; only feature maps applied to them leave this object.

    Args:
      table: The records, in memory or elsewhere.
      where: What they are called in an error.
      columns: The columns that learners may know of and use; the others stay unknown. Without
        any, learners get no names, and may use the columns whose names they know.
      threads: How many threads add up a shard.
      storage: How a shard's features are stored.
      cache: Keeps shards on the disk; without it they are held in memory.
    """

    def __init__(
        self,
        table: pd.DataFrame | RawRows,
        *,
        where: str,
        columns: Iterable[str],
        threads: int = 1,
        storage: Storage = "float64",
        cache: ShardCache | None = None,
    ) -> None:
        rows = HeldRows(table) if isinstance(table, pd.DataFrame) else table
        named = set(columns)
        self._columns = tuple(str(name) for name in rows.columns if name in named)
        self._usable = frozenset(self._columns if named else rows.columns)
        self._rows: RawRows | None = rows
        self._num_records = len(rows)
        self._where = where
        self._threads, self._storage, self._cache = threads, storage, cache
        self._shards: OrderedDict[str, Shard] = OrderedDict()
        # Those that some study still uses, too.
        self._used: WeakValueDictionary[str, Shard] = WeakValueDictionary()
        self._moments: OrderedDict[str, MomentShard] = OrderedDict()
        self._only: str | None = None
        self._lock = threading.Lock()

    @property
    def num_records(self) -> int:
        """The owner's n_i, which is public."""
        return self._num_records

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that learners may know of, which are public."""
        return self._columns

    def shard(self, feature_map: FeatureMap) -> Shard:
        """The shard under a learner's feature map.

        A target that cannot be read is filled with the map's public value: an error
        here would be an answer about a record.

        Raises:
          PolicyError: The map needs a column that is not named for learners. Whether there is
            one of that name, the sentence does not say.
        """
        self._check(feature_map)
        with self._lock:
            kept = self._used.get(feature_map.digest)
        if kept is not None:
            return self._keep(feature_map, kept)
        return self._keep(feature_map, Shard(self._records(feature_map), threads=self._threads))

    def moments(self, feature_map: FeatureMap) -> AnyShard:
        """The shard, or its second moments alone where records stay where they are.

        They take one pass over the records and no file, unless there is one that another study
        needed. Their bits are the same.

        Raises:
          PolicyError: As :meth:`shard`.
        """
        self._check(feature_map)
        digest = feature_map.digest
        with self._lock:
            is_made = digest in self._used
            kept = self._moments.get(digest)
        if kept is not None:
            return kept
        shape = (self._num_records, feature_map.num_features)
        if is_made or self._cache is None or self._cache.has(digest, shape, storage=self._storage):
            return self.shard(feature_map)
        stream = MomentStream(*shape)

        def receive(start: int, features: NDArray[np.floating], targets: Vector) -> None:
            # A reader that began again brings what was added once more.
            new = slice(max(0, stream.num_seen - start), None)
            stream.add(features[new], targets[new])

        self._stream(feature_map, receive)
        made = MomentShard.of_stream(stream, num_records=self._num_records)
        with self._lock:
            _remember(self._moments, digest, made)
        return made

    def keep_only(self, feature_map: FeatureMap, *, by_moments: bool = False) -> None:
        """Hold the shard of the one map that is accepted, and no raw record any more.

        Args:
          feature_map: The map.
          by_moments: Whether second moments will mostly be all that is asked for. Then they are
            all that is computed of records that stay where they are, and those can be read again.
        """
        made = self.moments(feature_map) if by_moments else self.shard(feature_map)
        self._only = feature_map.digest
        if isinstance(made, Shard):
            self._rows = None

    def _check(self, feature_map: FeatureMap) -> None:
        """Refuse a map that is not for this owner."""
        missing = [name for name in feature_map.columns_needed if name not in self._usable]
        if missing:
            raise PolicyError(
                f"this owner has no column {missing[0][:80]!r} for studies; see Describe for its "
                "columns"
            )
        if self._only not in (None, feature_map.digest):
            raise PolicyError("this owner answers for its own feature map only; ask with that one")

    def _records(self, feature_map: FeatureMap) -> Records:
        """All records under a map, each by itself: beside them, one batch is held."""
        shape = (self._num_records, feature_map.num_features)

        def fill(made: Records) -> None:
            def receive(start: int, features: NDArray[np.floating], targets: Vector) -> None:
                place = slice(start, start + len(targets))
                made.features[place], made.targets[place] = features, targets

            self._stream(feature_map, receive)

        if self._cache is not None:
            return self._cache.records(feature_map.digest, shape, storage=self._storage, fill=fill)
        records = Records(features=np.empty(shape, dtype=self._storage), targets=np.empty(shape[0]))
        fill(records)
        return records

    def _stream(self, feature_map: FeatureMap, receive: Receive) -> None:
        """All records under a map as they are stored: (place of the first one, features, targets).

        Raises:
          InputError: There are more or fewer of them than when they were counted.
        """
        num_records, seen = self._num_records, 0

        def pass_on(start: int, rows: pd.DataFrame) -> None:
            nonlocal seen
            seen = max(seen, start + len(rows))
            if seen > num_records:
                raise table_changed(self._where)
            for first in range(0, len(rows), ROWS_AT_ONCE):
                some = rows.iloc[first : first + ROWS_AT_ONCE]
                part = feature_map.apply(some, where=self._where, fill_target=True)
                narrow = self._storage == "float32"
                features = stored_float32(part.features) if narrow else part.features
                receive(start + first, features, part.targets)

        if self._rows is None:
            raise RuntimeError("the raw records were let go")
        self._rows.stream(feature_map.columns_needed, pass_on)
        release_unused()
        if seen < num_records:
            raise table_changed(self._where)

    def _keep(self, feature_map: FeatureMap, shard: Shard) -> Shard:
        with self._lock:
            self._used[feature_map.digest] = shard
            _remember(self._shards, feature_map.digest, shard)
        return shard


def _remember(kept: OrderedDict[str, T], digest: str, made: T) -> None:
    """Keep what was used last."""
    kept[digest] = made
    kept.move_to_end(digest)
    if len(kept) > KEPT_SHARDS:
        kept.popitem(last=False)
