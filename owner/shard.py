"""An owner's private table, and the shards that feature maps make of it."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable
from weakref import WeakValueDictionary

import numpy as np
import pandas as pd

from common.batches import release_unused
from common.cells import as_text, missing_cells
from common.errors import PolicyError
from common.features import FeatureMap
from common.terms import Records
from owner.core import Shard
from owner.raw_rows import HeldRows, RawRows
from owner.shard_cache import ShardCache
from owner.stored import Storage, stored_float32

__all__ = ["PrivateTable", "fingerprint", "fingerprint_of_parts"]

KEPT_SHARDS = 4
# A feature map works on so many records at once: what it needs beside them stays in the cache.
ROWS_AT_ONCE = 2**14


def fingerprint(table: pd.DataFrame) -> str:
    """SHA-256 over column names and values: a ledger belongs to exactly these records.

    >>> a = fingerprint(pd.DataFrame({"x": [1, 2]}))
    >>> a == fingerprint(pd.DataFrame({"x": [1, 3]})), a == fingerprint(pd.DataFrame({"x": [1, 2]}))
    (False, True)
    """
    return fingerprint_of_parts([table])


def fingerprint_of_parts(parts: Iterable[pd.DataFrame]) -> str:
    """The same, of a table that comes a few columns at a time, in their order."""
    digest = hashlib.sha256()
    for name, column in ((str(n), c) for part in parts for n, c in part.items()):
        digest.update(f"{name}\x1e{len(column)}\x1e".encode())
        if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb":
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
        self._only: Shard | None = None
        self._lock = threading.Lock()

    @property
    def num_records(self) -> int:
        """The owner's n_i, which is public."""
        return self._num_records

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that learners may know of, which are public."""
        return self._columns

    def count_unreadable_targets(self, feature_map: FeatureMap) -> int:
        """How many records get the map's public target, for the operator's eyes."""
        if self._rows is None:
            raise RuntimeError("the raw records were let go")
        targets = feature_map.target.raw(self._rows[feature_map.target_name])
        return int(np.count_nonzero(np.isnan(targets)))

    def shard(self, feature_map: FeatureMap) -> Shard:
        """The shard under a learner's feature map.

        A target that cannot be read is filled with the map's public value: an error
        here would be an answer about a record.

        Raises:
          PolicyError: The map needs a column that is not named for learners. Whether there is
            one of that name, the sentence does not tell.
        """
        with self._lock:
            kept = self._used.get(feature_map.digest)
        if kept is not None:
            return self._keep(feature_map, kept)
        missing = [name for name in feature_map.columns_needed if name not in self._usable]
        if missing:
            raise PolicyError(
                f"this owner has no column {missing[0][:80]!r} for studies; see Describe for its "
                "columns"
            )
        records = self._records(feature_map)
        return self._keep(feature_map, Shard(records, threads=self._threads))

    def keep_only(self, feature_map: FeatureMap) -> None:
        """Hold the shard of the one map that is accepted, and no raw record any more."""
        self._only = self.shard(feature_map)
        self._rows = None

    def _records(self, feature_map: FeatureMap) -> Records:
        """All records under a map, each by itself: beside them, one batch is held."""
        raw, num_records, num_features = self._rows, self._num_records, feature_map.num_features
        if raw is None:
            raise PolicyError("this owner answers for its own feature map only; ask with that one")

        def fill(made: Records) -> None:
            def receive(start: int, rows: pd.DataFrame) -> None:
                for first in range(0, len(rows), ROWS_AT_ONCE):
                    some = rows.iloc[first : first + ROWS_AT_ONCE]
                    part = feature_map.apply(some, where=self._where, fill_target=True)
                    place = slice(start + first, start + first + len(part))
                    narrow = made.features.dtype == np.float32
                    x = stored_float32(part.features) if narrow else part.features
                    made.features[place], made.targets[place] = x, part.targets

            raw.stream(feature_map.columns_needed, receive)
            release_unused()

        if self._cache is not None:
            shape = (num_records, num_features)
            return self._cache.records(feature_map.digest, shape, storage=self._storage, fill=fill)
        records = Records(
            features=np.empty((num_records, num_features), dtype=self._storage),
            targets=np.empty(num_records),
        )
        fill(records)
        return records

    def _keep(self, feature_map: FeatureMap, shard: Shard) -> Shard:
        with self._lock:
            self._used[feature_map.digest] = shard
            self._shards[feature_map.digest] = shard
            self._shards.move_to_end(feature_map.digest)
            if len(self._shards) > KEPT_SHARDS:
                self._shards.popitem(last=False)
        return shard
