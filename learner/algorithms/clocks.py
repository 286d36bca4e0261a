r"""When who is asked: Poisson clocks and synchronous rounds, as iterators of ticks.

Each clock fires by itself, with exponential gaps of its own rate. Together they are one Poisson
process of the total rate :math:`\lambda = \sum_j \lambda_j` whose k-th tick belongs to clock j
with probability :math:`\lambda_j/\lambda`, independently of when it comes; that is how ticks are
drawn here. A clock belongs to one owner, or to a fixed group of owners that is asked at the same
time. No clock looks at data, so the whole sequence may be drawn before a study starts.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.arrays import Indices, Vector
from common.errors import InputError

Groups = tuple[tuple[int, ...], ...]

# An answer moves its owner's copy, and reaches the central model when the owner is asked again.
LEAST_TICKS = 2
GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class Tick:
    """One moment of communication.

    Args:
      time: When, in units of virtual time, since the study began.
      owners: Indices of the owners that are asked together; one owner in Algorithm 1.
    """

    time: float
    owners: tuple[int, ...]


def each_alone(num_owners: int) -> Groups:
    """Every owner is a group by itself.

    >>> each_alone(3)
    ((0,), (1,), (2,))
    """
    return tuple((owner,) for owner in range(num_owners))


class PoissonClocks(Iterator[Tick]):
    """An endless iterator over the ticks of independent Poisson clocks.

    Guarantees:
      * The gap between two ticks is exponential with the total rate.
      * A tick belongs to a clock with probability proportional to its rate, whatever came before.
      * A tick takes two uniform numbers from ``rng``, so the sequence does not depend on the
        block size. The clocks draw ahead: nobody else may draw from their ``rng``.

    Args:
      groups: The owners of each clock; :func:`each_alone` for one clock per owner.
      rates: Expected ticks per unit of virtual time, shape (number of groups,), all above 0.
      block: How many ticks are drawn at once.
      rng: Where the randomness comes from.

    Raises:
      InputError: A rate is not positive and finite, or a group is empty or named twice.

    >>> clocks = PoissonClocks(each_alone(3), np.ones(3), rng=np.random.default_rng(1))
    >>> [tick.owners for tick in itertools.islice(clocks, 4)]
    [(2,), (2,), (1,), (1,)]

    References: section III of Farokhi et al. (2021).
    """

    def __init__(
        self, groups: Groups, rates: Vector, *, block: int = 1024, rng: np.random.Generator
    ) -> None:
        _check_groups(groups)
        self._groups = groups
        self._is_each_alone = groups == each_alone(len(groups))
        self._total_rate = float(np.sum(rates))
        self._shares = _cumulative_shares(rates, len(groups))
        self._block = block
        self._rng = rng
        self._now = 0.0
        self._ready: Iterator[Tick] = iter(())

    def __next__(self) -> Tick:
        """The next tick."""
        tick = next(self._ready, None)
        if tick is None:
            self._ready = iter(self._draw_block())
            tick = next(self._ready)
        return tick

    def _draw_block(self) -> list[Tick]:
        """The next block of ticks; the times go on where the last block ended."""
        uniform = self._rng.random((self._block, 2))
        gaps = -np.log1p(-uniform[:, 0]) / self._total_rate
        gaps[0] += self._now
        times = np.cumsum(gaps)
        self._now = float(times[-1])
        # Looked for in their order, which keeps to one place of many shares at a time.
        order = np.argsort(uniform[:, 1])
        slots = np.empty(self._block, dtype=np.intp)
        slots[order] = np.searchsorted(self._shares, uniform[order, 1], side="right")
        return list(map(Tick, times.tolist(), self._owners(slots.tolist())))

    def _owners(self, slots: list[int]) -> list[tuple[int, ...]]:
        """Whose these clocks are; a million tuples lie all over memory, so they are made anew."""
        if self._is_each_alone:
            return [(slot,) for slot in slots]
        return [self._groups[slot] for slot in slots]


def synchronous_rounds(num_owners: int) -> Iterator[Tick]:
    """Endless rounds at times 1, 2, 3, ... that ask every owner.

    >>> list(itertools.islice(synchronous_rounds(2), 2))
    [Tick(time=1.0, owners=(0, 1)), Tick(time=2.0, owners=(0, 1))]
    """
    everyone = tuple(range(num_owners))
    return (Tick(float(k), everyone) for k in itertools.count(1))


def first_ticks(clocks: Iterable[Tick], num_owners: int) -> Iterator[Tick]:
    """The first tick of each owner's clock.

    >>> ticks = [Tick(0.1, (1,)), Tick(0.2, (1,)), Tick(0.3, (0,)), Tick(0.4, (1,))]
    >>> list(first_ticks(ticks, 2))
    [Tick(time=0.1, owners=(1,)), Tick(time=0.3, owners=(0,))]
    """
    seen: set[tuple[int, ...]] = set()
    for tick in clocks:
        if tick.owners not in seen:
            seen.add(tick.owners)
            yield tick
        if len(seen) == num_owners:
            return


def count_per_owner(ticks: Iterable[Tick], num_owners: int) -> NDArray[np.int64]:
    """How many responses each owner gives in these ticks, shape (N,).

    >>> count_per_owner([Tick(0.5, (0,)), Tick(0.7, (0, 2))], 3)
    array([2, 0, 1])
    """
    owners = [owner for tick in ticks for owner in tick.owners]
    return np.bincount(np.array(owners, dtype=np.intp), minlength=num_owners).astype(np.int64)


def draw_slots(
    rates: Vector, *, horizon: int, replicates: int, rng: np.random.Generator
) -> Indices:
    """Which clock ticks at each k in each of many runs, without the times.

    Args:
      rates: Rates of the clocks, shape (number of groups,), all above 0.
      horizon: The number T of ticks.
      replicates: The number R of independent runs.
      rng: Where the randomness comes from.

    Returns:
      Indices of clocks, shape (T, R).

    Raises:
      InputError: A rate is not positive and finite.

    >>> draw_slots(np.ones(3), horizon=2, replicates=4, rng=np.random.default_rng(1)).shape
    (2, 4)
    """
    shares = _cumulative_shares(rates, len(rates))
    uniform = rng.random((horizon, replicates))
    return np.searchsorted(shares, uniform, side="right").astype(np.intp, copy=False)


def first_slots(rates: Vector, *, horizon: int, rng: np.random.Generator) -> Indices:
    """Whose the first ticks of :class:`PoissonClocks` are, as indices of groups, without the times.

    Args:
      rates: Rates of the clocks, shape (number of groups,), all above 0.
      horizon: The number T of ticks.
      rng: The clocks' own, from its beginning.

    Returns:
      Indices of clocks, shape (T,).

    >>> first_slots(np.ones(3), horizon=4, rng=np.random.default_rng(1)).tolist()
    [2, 2, 1, 1]
    """
    shares = _cumulative_shares(rates, len(rates))
    # Each tick takes two numbers, the first for its time.
    uniform = rng.random((horizon, 2))[:, 1]
    return np.searchsorted(shares, uniform, side="right").astype(np.intp, copy=False)


def _cumulative_shares(rates: Vector, num_groups: int) -> Vector:
    """Cumulative probabilities of the clocks, the last one exactly 1."""
    if rates.shape != (num_groups,) or num_groups == 0:
        raise InputError(
            f"clock rates: got {rates.size} for {num_groups} clocks; give one rate for each clock"
        )
    if not (np.all(rates > 0) and np.all(np.isfinite(rates))):
        raise InputError(
            f"clock rates: got {rates.tolist()}, expected finite numbers above 0; "
            "leave out owners that never answer"
        )
    shares: Vector = np.cumsum(rates) / np.sum(rates)
    shares[-1] = 1.0
    return shares


def _check_groups(groups: Sequence[tuple[int, ...]]) -> None:
    """Refuse an empty group, and an owner with two clocks."""
    named = [owner for group in groups for owner in group]
    if not all(groups) or len(set(named)) != len(named):
        raise InputError(
            f"groups: got {list(groups)}, expected at least one owner in each group and no owner "
            "in two; list each owner once"
        )


def slots_of(ticks: Iterable[Tick], groups: Groups) -> Indices:
    """Whose the ticks are, as indices of groups, shape (number of ticks,).

    >>> slots_of([Tick(0.1, (2,)), Tick(0.4, (0, 1))], ((0, 1), (2,))).tolist()
    [1, 0]
    """
    slot = {group: index for index, group in enumerate(groups)}
    return np.array([slot[tick.owners] for tick in ticks], dtype=np.intp)


def scheduled_frequency(counts: NDArray[Any]) -> Vector:
    """Remark 4's frequencies from a schedule's counts T_i, of any shape; at least one tick each.

    An owner that never ticks has no gradient to be scaled.

    >>> scheduled_frequency(np.array([3, 0, 5]))
    array([3., 1., 5.])
    """
    return np.maximum(counts, 1).astype(np.float64)


def with_everyone(slots: Indices, num_groups: int) -> Indices:
    """The same ticks, a few of them handed on so that every clock has two, shape (T,).

    An owner that is asked once has spent its budget on an answer that never reaches the central
    model, one that is not asked has its records left out. Each tick that is missing is taken from
    the clock with most ticks at that moment. With fewer than two ticks for each clock everyone
    has one; with fewer than one nothing is changed. Like the clocks, this looks at no data.

    Args:
      slots: Whose the ticks are, as indices of groups.
      num_groups: The number of clocks.

    >>> with_everyone(np.array([0, 0, 0, 1, 0, 0, 1, 0]), 3).tolist()
    [0, 2, 0, 1, 2, 0, 1, 0]
    """
    handed = slots.copy()
    counts = np.bincount(slots, minlength=num_groups)
    least = min(LEAST_TICKS, len(slots) // num_groups)
    # Who hands on has more than the least, and who is handed a tick at most that: never both.
    order, ends = np.argsort(slots, kind="stable"), np.cumsum(counts)
    donors = [(-int(counts[slot]), int(slot)) for slot in np.flatnonzero(counts > least)]
    heapq.heapify(donors)
    held: dict[int, list[int]] = {}
    for k, slot in enumerate(np.repeat(np.arange(num_groups), np.maximum(least - counts, 0))):
        count, donor = donors[0]
        if donor not in held:
            held[donor] = order[ends[donor] - counts[donor] : ends[donor]].tolist()
        # Spread over the whole study by the golden section.
        handed[held[donor].pop(int(-count * ((k + 1) * GOLDEN % 1.0)))] = slot
        heapq.heapreplace(donors, (count + 1, donor))
    return handed


def asking_everyone(ticks: Iterable[Tick], groups: Groups) -> list[Tick]:
    """These ticks at the same times, handed on as :func:`with_everyone` does.

    >>> ticks = [Tick(0.1, (0,)), Tick(0.2, (0,)), Tick(0.3, (0,))]
    >>> [tick.owners for tick in asking_everyone(ticks, ((0,), (1, 2)))]
    [(0,), (1, 2), (0,)]
    """
    drawn = list(ticks)
    slots = with_everyone(slots_of(drawn, groups), len(groups)).tolist()
    return [Tick(tick.time, groups[slot]) for tick, slot in zip(drawn, slots, strict=True)]
