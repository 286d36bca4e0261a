r"""Sums over an owner's records, added in one order whatever the threads.

Floating-point sums depend on the order of their additions, and equal seeds must give equal bits
on one thread and on many, in this process and in an owner's own. So the order follows from the
shape (n, p) alone: the records are cut into blocks that fit a core's cache, whole blocks are
joined to stretches (:mod:`common.stretches`), each stretch is added from its beginning to its end
by one thread, and the stretches are added in their order. A shard of one block is added as a whole.

:mod:`common.privacy` counts how many additions that puts in a row.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from common.arrays import Matrix, Vector
from common.blas import one_blas_thread
from common.stretches import BLOCK_CELLS, STRETCHES, block_records, stretches

# Records of fewer cells are read sooner than another thread has woken: a full block per stretch.
SHARED_CELLS = STRETCHES * BLOCK_CELLS

Sum = TypeVar("Sum", bound=tuple[Matrix, ...])


def usable_threads() -> int:
    """How many threads can add at the same time in this process."""
    return min(STRETCHES, len(os.sched_getaffinity(0)))


def blocks(features: NDArray[np.floating], start: int, stop: int) -> Iterator[tuple[slice, Matrix]]:
    """The blocks of a stretch: which records, and their features in float64, shape (rows, p)."""
    rows = block_records(features.shape[1])
    for first in range(start, stop, rows):
        chosen = slice(first, min(first + rows, stop))
        yield chosen, features[chosen].astype(np.float64, copy=False)


def margins(x: Matrix, theta: Vector) -> Vector:
    r"""Each record's margin :math:`\theta^\top x`, the same to the last bit wherever it stands.

    One matrix product of a block may round the margin of its last records otherwise than that of
    others. In a table that a database sorts, a record that is replaced moves others to such a
    place. A slope that jumps, or a cell of a table, would then change with many of them: no
    sensitivity counts that. In a large model the parts of a margin near 0 are large, and so is
    their rounding: there a logistic slope jumps as well. Only where the loss counts margins
    (``Loss.counts_margins``) a slope may be computed from ``x @ theta``, whose rounding
    :mod:`common.privacy` then counts.

    Args:
      x: Features in float64, shape (n, p).
      theta: Shape (p,).

    >>> margins(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0]))
    array([3., 7.])
    """
    # As many products as there are records, each of one record with the model.
    alone: Vector = (x[:, None, :] @ theta)[:, 0]
    return alone


@one_blas_thread()
def in_order(
    part: Callable[[int, int], Sum], num_records: int, num_features: int, *, threads: int
) -> Sum:
    """The sums of all stretches, whose bits do not depend on the number of threads.

    Products within are computed by one thread of linear algebra each.

    Args:
      part: (first record, behind the last one) -> the stretch's own sums, which it gives away.
      num_records: The number n of records.
      num_features: The number p of features.
      threads: How many stretches are added at the same time.
    """
    ranges = stretches(num_records, num_features)
    if len(ranges) == 1:
        return part(*ranges[0])
    total, *others = _sums_of(part, ranges, min(threads, len(ranges)))
    for sums in others:
        for k, one in enumerate(sums):
            np.add(total[k], one, out=total[k])
    return total


def _sums_of(
    part: Callable[[int, int], Sum], ranges: Sequence[tuple[int, int]], threads: int
) -> list[Sum]:
    """The sums of each stretch; the caller adds, too, so that fewer threads need to be woken."""
    found: dict[int, Sum] = {}
    # Threads may take from a deque at the same time.
    left = deque(range(len(ranges)))

    def add() -> None:
        while left:
            try:
                k = left.popleft()
            except IndexError:
                return
            found[k] = part(*ranges[k])

    helpers = [_pool(threads - 1).submit(add) for _ in range(threads - 1)]
    add()
    for helper in helpers:
        # One that never began raises nothing.
        if not helper.cancel():
            helper.result()
    return [found[k] for k in range(len(ranges))]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """The threads that help to add; they wait without work, and end with the process."""
    return ThreadPoolExecutor(threads, thread_name_prefix="sums")


def moment_sums(
    features: NDArray[np.floating], targets: Vector, *, threads: int
) -> tuple[Matrix, Vector]:
    """X'X and X'y, shapes (p, p) and (p,), by matrix products of blocks.

    Args:
      features: X, shape (n, p).
      targets: y, shape (n,).
      threads: How many threads add them; the sums are the same.

    >>> x = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> moment_sums(x, np.array([1.0, 1.0]), threads=1)
    (array([[10., 14.],
           [14., 20.]]), array([4., 6.]))
    """
    p = features.shape[1]

    def part(start: int, stop: int) -> tuple[Matrix, Vector]:
        gram, cross = np.zeros((p, p)), np.zeros(p)
        for chosen, x in blocks(features, start, stop):
            gram += x.T @ x
            cross += targets[chosen] @ x
        return gram, cross

    return in_order(part, len(targets), p, threads=threads)


class MomentStream:
    """The sums of :func:`moment_sums`, to the last bit, of records that go by in their order.

    One block of them is held, and the sums of one stretch.

    Args:
      num_records: The number n of records that will come.
      num_features: The number p of features.

    >>> stream = MomentStream(2, 2)
    >>> for x in ([1.0, 2.0], [3.0, 4.0]):
    ...     stream.add(np.array([x]), np.array([1.0]))
    >>> stream.sums()
    (array([[10., 14.],
           [14., 20.]]), array([4., 6.]))
    """

    def __init__(self, num_records: int, num_features: int) -> None:
        self._num_records, self._num_features = num_records, num_features
        self._ends = {stop for _, stop in stretches(num_records, num_features)}
        size = min(block_records(num_features), num_records)
        self._features, self._targets = np.empty((size, num_features)), np.empty(size)
        self._held = self._added = 0
        self._stretch = self._zeros()
        self._total: tuple[Matrix, Vector] | None = None

    @property
    def num_seen(self) -> int:
        """How many records came so far."""
        return self._added + self._held

    def add(self, features: NDArray[np.floating], targets: Vector) -> None:
        """The next records, any number of them: X of shape (k, p), y of shape (k,)."""
        first = 0
        while first < len(targets):
            chosen = slice(first, first + len(self._targets) - self._held)
            count = len(targets[chosen])
            place = slice(self._held, self._held + count)
            self._features[place], self._targets[place] = features[chosen], targets[chosen]
            self._held, first = self._held + count, first + count
            if self._held == len(self._targets) or self.num_seen == self._num_records:
                self._add_block()

    def sums(self) -> tuple[Matrix, Vector]:
        """X'X (p, p) and X'y (p,) of all records, once they have come.

        Raises:
          RuntimeError: Some have not.
        """
        if self._total is None or self._added != self._num_records:
            raise RuntimeError(f"{self.num_seen} of {self._num_records} records came")
        return self._total

    def _zeros(self) -> tuple[Matrix, Vector]:
        return np.zeros((self._num_features, self._num_features)), np.zeros(self._num_features)

    def _add_block(self) -> None:
        """Add what is held to its stretch, and a stretch that ends with it to the total."""
        x, y = self._features[: self._held], self._targets[: self._held]
        gram, cross = self._stretch
        with one_blas_thread():
            gram += x.T @ x
            cross += y @ x
        self._added, self._held = self._added + self._held, 0
        if self._added not in self._ends:
            return
        if self._total is None:
            self._total = self._stretch
        else:
            for total, one in zip(self._total, self._stretch, strict=True):
                np.add(total, one, out=total)
        self._stretch = self._zeros()
