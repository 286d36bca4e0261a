r"""What may be changed about Algorithm 1 without changing its equations.

*Groups* (Remark 2): fixed sets of owners asked at the same time, each counting as one larger owner.
*Frequencies* (Remark 4): who ticks more often moves the model by less at a tick.
*The tail's average*: the result is the mean of theta_L over the last half of the ticks.

References: Remarks 2 and 4 of Farokhi et al. (2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from common.arrays import Array, Vector
from common.errors import InputError
from learner.algorithms.clocks import Groups, Tick, each_alone
from learner.algorithms.protocol import check_numbers
from learner.algorithms.versions import Versioned

# An owner that is back after a long absence must not throw the model into a corner of the box.
LARGEST_COUNTED_FACTOR = 10.0
# Ratios of frequencies held at once.
LARGEST_BLOCK = 100_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Variants:
    """Groups, frequencies and the tail's average.

    Args:
      weights: Shares n_i/n of the records, one per owner, summing to 1.
      horizon: The number T of ticks of the study.
      groups: Fixed sets of owners asked at the same time, each counting as one larger owner
        (Remark 2); N is then their number. Empty: every owner by itself.
      frequency: Relative frequency of the ticks of each owner or group, shape (N,), in any
        unit; gradients are scaled inversely to it (Remark 4). None: equal frequencies.
      counted: Whether the frequencies of Remark 4 are counted as the run goes instead: an owner
        that had c of the k ticks so far is scaled by (k + N)/(N (c + 1)), at most by 10. It is 1
        at first, and depends on nothing but the ticks applied, so a resumed run repeats it.
      tail_average: Whether the result is the mean of theta_L over the last half of the ticks,
        free post-processing, instead of the last theta_L.
      start: Where all N + 1 models begin, shape (p,); None for 0, as in the paper.
    """

    weights: Vector
    horizon: int
    groups: Groups = ()
    frequency: Vector | None = None
    counted: bool = False
    tail_average: bool = False
    start: Vector | None = None

    def check(self, **positive: float) -> None:
        """Refuse what the equations are not defined for.

        Args:
          positive: The algorithm's own numbers, which must be positive and finite.

        Raises:
          InputError: A number is wrong, a group leaves an owner out, or frequencies are not N
            positive numbers.
        """
        check_numbers(self.weights, horizon=self.horizon, **positive)
        owners, rates = [i for group in self._groups for i in group], self.frequency
        if sorted(owners) != list(range(len(self.weights))):
            raise InputError(
                f"groups: got {self.groups}, expected each of the {len(self.weights)} owners once"
            )
        if rates is not None and not (
            rates.shape == (self.num_copies,) and np.all(rates > 0) and np.all(np.isfinite(rates))
        ):
            raise InputError(
                f"frequency: got {rates}, expected {self.num_copies} finite numbers above 0"
            )
        if rates is not None and self.counted:
            raise InputError("frequency: expected none where frequencies are counted; leave it out")

    @property
    def num_copies(self) -> int:
        """N: the number of owners, or of groups."""
        return len(self._groups)

    @property
    def tail_start(self) -> int:
        """The number of ticks before those that the tail average is taken over."""
        return self.horizon // 2

    @cached_property
    def inverse_frequency(self) -> Vector:
        """Remark 4: mean frequency over own frequency, shape (N,); exactly 1 for equal ones."""
        rates = np.ones(self.num_copies) if self.frequency is None else self.frequency
        return inverse_frequency(rates)

    def slot(self, tick: Tick) -> int:
        """The index of the copy that belongs to the tick's owners.

        Raises:
          InputError: No group of the algorithm's is made of these owners.
        """
        first = tick.owners[0]
        # Looked up only in groups: a table of a million owners is in no cache.
        alone = not self.groups and len(tick.owners) == 1 and 0 <= first < len(self.weights)
        found = first if alone else self._slots.get(tick.owners)
        if found is None:
            raise InputError(
                f"tick: got owners {tick.owners}, expected one of {self._groups}; "
                "give the clocks the algorithm's groups"
            )
        return found

    def factor(self, slot: int, *, k: int, counts: Versioned | None) -> float:
        """Remark 4's factor after k ticks: from known frequencies, or from the counts so far."""
        if counts is None:
            return float(self.inverse_frequency[slot])
        N = self.num_copies
        return min((k + N) / (N * (float(counts.row(slot)) + 1)), LARGEST_COUNTED_FACTOR)

    def no_counts(self) -> Versioned | None:
        """The counts before the first tick, shape (N,); None where nobody counts."""
        return Versioned(np.zeros(self.num_copies)) if self.counted else None

    def one_more(self, counts: Versioned | None, slot: int) -> Versioned | None:
        """The counts after a tick of this copy."""
        return None if counts is None else counts.replaced(slot, counts.row(slot) + 1)

    @cached_property
    def _groups(self) -> Groups:
        return self.groups or each_alone(len(self.weights))

    @cached_property
    def _slots(self) -> dict[tuple[int, ...], int]:
        return {group: slot for slot, group in enumerate(self._groups)}


def inverse_frequency(frequency: Array) -> Array:
    """Remark 4's factors: mean over own frequency, along the first axis; exactly 1 for equal ones.

    Linear in the number N of frequencies for each different value among them: a schedule counts, so
    that a million owners have a few dozen.

    Args:
      frequency: Positive frequencies, shape (N,), or (N, R) of R studies.

    >>> inverse_frequency(np.array([[1.0, 3.0], [3.0, 3.0]]))
    array([[2.        , 1.        ],
           [0.66666667, 1.        ]])
    """
    values, own = np.unique(frequency, return_inverse=True)
    own = own.reshape(frequency.shape)
    values = values.reshape(-1, *[1] * (frequency.ndim - 1))
    # Ratios first: equal frequencies then give exactly N/N. In the owners' order, one by one.
    total = np.zeros((len(values), *frequency.shape[1:]))
    for block in np.array_split(frequency, 1 + len(frequency) * total.size // LARGEST_BLOCK):
        ratios = block[:, None] / values
        total = np.add.accumulate(np.concatenate([total[None], ratios]))[-1]
    factors: Array = np.take_along_axis(total, own, axis=0)
    return factors / len(frequency)
