"""Rows of which one changes at a time: every version is a value, the newest has the memory.

A version is never changed. The newest one has the array; an older one remembers the row in which
it differs from the next, and is rebuilt, at the cost of a copy, only if it is read again. So a
change costs as much for a million rows as for ten.

References: H. G. Baker, "Shallow binding makes functional arrays fast", ACM SIGPLAN Notices 26(8),
1991.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from common.arrays import Array


class Versioned:
    """An array of N rows, as a value.

    Guarantees:
      * What a version says is the same at any time, whatever is made of it.
      * The newest version reads and replaces a row in time that does not depend on N.

    Args:
      rows: The rows, shape (N, ...); they are copied.

    >>> one = Versioned([1.0, 2.0])
    >>> two = one.replaced(0, 5.0)
    >>> two.whole(), one.whole(), float(two.row(0))
    (array([5., 2.]), array([1., 2.]), 5.0)
    """

    def __init__(self, rows: ArrayLike) -> None:
        self._array: Array | None = np.array(rows, dtype=np.float64)
        self._next: tuple[Versioned, int, Array] | None = None

    def row(self, index: int) -> Array:
        """One row, shape (...)."""
        return self._held()[index].copy()

    def whole(self) -> Array:
        """All rows, shape (N, ...): a copy."""
        return self._held().copy()

    def replaced(self, index: int, row: ArrayLike) -> Versioned:
        """The version with another row in this place."""
        array = self._held()
        newer = Versioned.__new__(Versioned)
        newer._array, newer._next = array, None
        # First what is remembered, then the change: the array is the newer version's from here on.
        self._next, self._array = (newer, index, array[index].copy()), None
        array[index] = row
        return newer

    def _held(self) -> Array:
        """The array of this version, rebuilt if a newer one has it."""
        if self._array is None:
            at, changes = self, []
            while at._next is not None:
                at, index, row = at._next
                changes.append((index, row))
            array = at.whole()
            for index, row in reversed(changes):
                array[index] = row
            self._array, self._next = array, None
        return self._array
