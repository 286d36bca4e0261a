"""An owner's private table, and the shards that feature maps make of it."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable
from weakref import WeakValueDictionary

import numpy as np
import pandas as pd

from common.cells import as_text, missing_cells
from common.errors import PolicyError
from common.features import FeatureMap
from owner.core import Shard

__all__ = ["PrivateTable", "fingerprint"]

KEPT_SHARDS = 4


def fingerprint(table: pd.DataFrame) -> str:
    """SHA-256 over column names and values: a ledger belongs to exactly these records.

    >>> a = fingerprint(pd.DataFrame({"x": [1, 2]}))
    >>> a == fingerprint(pd.DataFrame({"x": [1, 3]})), a == fingerprint(pd.DataFrame({"x": [1, 2]}))
    (False, True)
    """
    digest = hashlib.sha256()
    for name, column in table.items():
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
      table: The records.
      where: What they are called in an error.
      columns: The columns that learners are told of and may use; the others stay unknown. With
        none, learners are told of no column, and may use those whose names they know.
    """

    def __init__(self, table: pd.DataFrame, *, where: str, columns: Iterable[str]) -> None:
        named = set(columns)
        self._told = tuple(str(name) for name in table.columns if name in named)
        self._table = table.loc[:, list(self._told)] if named else table
        self._where = where
        self._shards: OrderedDict[str, Shard] = OrderedDict()
        # Those that some study still uses, too.
        self._used: WeakValueDictionary[str, Shard] = WeakValueDictionary()
        self._lock = threading.Lock()

    @property
    def num_records(self) -> int:
        """The owner's n_i, which is public."""
        return len(self._table)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names that learners are told, which are public."""
        return self._told

    def count_unreadable_targets(self, feature_map: FeatureMap) -> int:
        """How many records get the map's public target, for the operator's eyes."""
        targets = feature_map.target.raw(self._table[feature_map.target_name])
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
        missing = [name for name in feature_map.columns_needed if name not in self._table.columns]
        if missing:
            raise PolicyError(
                f"this owner has no column {missing[0][:80]!r} for studies; see Describe for its "
                "columns"
            )
        records = feature_map.apply(self._table, where=self._where, fill_target=True)
        return self._keep(feature_map, Shard(records))

    def _keep(self, feature_map: FeatureMap, shard: Shard) -> Shard:
        with self._lock:
            self._used[feature_map.digest] = shard
            self._shards[feature_map.digest] = shard
            self._shards.move_to_end(feature_map.digest)
            if len(self._shards) > KEPT_SHARDS:
                self._shards.popitem(last=False)
        return shard
