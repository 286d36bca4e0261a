r"""In which stretches an owner adds its records, and so how far a sum may be rounded off.

The order of additions follows from the shape (n, p) alone (:mod:`owner.sums`), so both sides know
it before anything is added.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

# 1 MB of float64: half to all of a core's second cache. Twice as much and half as much are slower.
BLOCK_CELLS = 2**17
# More threads than these cannot share the work; more stretches would hold more partial sums.
STRETCHES = 16


def block_records(num_features: int) -> int:
    """How many records are one block; it depends on p alone.

    >>> block_records(100)
    1310
    """
    return max(1, BLOCK_CELLS // max(1, num_features))


@lru_cache(maxsize=64)
def stretches(num_records: int, num_features: int) -> tuple[tuple[int, int], ...]:
    """Where each stretch begins and ends: whole blocks, about as many in each.

    >>> stretches(1000, 100), stretches(3000, 100), len(stretches(500_000, 100))
    (((0, 1000),), ((0, 1310), (1310, 2620), (2620, 3000)), 16)
    """
    rows = block_records(num_features)
    num_blocks = max(1, -(-num_records // rows))
    count = min(STRETCHES, num_blocks)
    edges = [min(num_blocks * k // count * rows, num_records) for k in range(count + 1)]
    return tuple(pairwise(edges))


def longest_chain(num_records: int, num_features: int) -> int:
    r"""The most additions d that a record's part goes through in a sum over all n, and one more.

    Within a stretch of m records a part is added at most m - 1 times, however they are added: one
    after the other, or in blocks of which each is added by itself in any order. The sums of S
    stretches are joined one after the other, S - 1 additions at most. What is added to 0 is exact.
    So :math:`d = \max m - 1 + S - 1`, and the computed sum is :math:`\sum t_k (1 + \delta_k)` with

    .. math:: |\delta_k| \le (1 + u)^d - 1 \le \frac{du}{1 - du}

    One more is for the division by n, which makes the mean of the sum.

    >>> longest_chain(1000, 100), longest_chain(10**9, 1)
    (1000, 62521359)

    References: Higham (2002), Accuracy and Stability of Numerical Algorithms, Lemma 3.1 and 4.2.
    """
    ranges = stretches(num_records, num_features)
    return max(stop - start for start, stop in ranges) + len(ranges) - 1
