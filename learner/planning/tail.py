r"""What a clip takes of records whose gradients are longer than those of all public ones.

A clip that leaves every public gradient as it is looks as if it took nothing. But of one more
record beside n it is as likely as 1 to n + 1 that it is the longest, however lengths are
distributed; and owners have many. By how much such a record is longer, the k = sqrt(n) longest of
the n say: what they exceed the next one by, is taken to be of a generalised Pareto distribution.
With the mean m and the variance v of these excesses, and M the largest of them,

.. math:: \xi = \tfrac12\Big(1 - \frac{m^2}{v}\Big), \qquad
          \sigma = \tfrac12\, m \Big(1 + \frac{m^2}{v}\Big), \qquad
          \sigma_M = \max(0, \sigma + \xi M)

are its shape and scale, and the scale beyond M. A record that is longer than all exceeds a clip
that lies t beyond the longest by, in the mean,

.. math:: h(t) = \frac{\sigma_M}{1 - \xi} \Big(1 + \frac{\xi t}{\sigma_M}\Big)_+^{1 - 1/\xi},

less what no admissible record can have.

References: Pickands (1975), Statistical inference using extreme order statistics. Hosking and
Wallis (1987), Parameter and quantile estimation for the generalized Pareto distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from common.arrays import Indices, Matrix, Vector

TINY = 1e-300
# Shapes nearer to 0 than this are those of an exponential distribution.
EXPONENTIAL = 1e-6


@dataclass(frozen=True, eq=False)
class Tail:
    """The gradients of n public records, and what they say of longer ones.

    Args:
      gradients: One of each record, shape (n, p).
      most: No admissible record has one with a larger L1 norm.

    >>> even = Tail(np.linspace(-1.0, 1.0, 101)[:, None], most=9.0)
    >>> heavy = Tail(np.tan(1.4 * np.abs(even.gradients)), most=9.0)
    >>> [round(tail.farthest, 2) for tail in (even, heavy)], round(float(heavy.norms.max()), 2)
    ([1.0, 6.08], 5.8)
    >>> heavy.lost(5.8).round(4), heavy.lost(9.0)
    (array([0.0014]), array([0.]))
    """

    gradients: Matrix
    most: float

    @cached_property
    def norms(self) -> Vector:
        """Their L1 norms, shape (n,)."""
        return np.abs(self.gradients).sum(axis=1)

    @property
    def longest(self) -> float:
        """The largest of them."""
        return float(self.norms.max())

    @property
    def farthest(self) -> float:
        """As far beyond the longest as that is beyond the rest, on the scale there."""
        shape, scale = self._shape_and_scale
        beyond = float(self._excess[-1])
        factor = max(0.0, 1.0 + shape * beyond / scale) if scale else 0.0
        return min(self.longest + factor * beyond, self.most)

    def lost(self, clip: float) -> Vector:
        """What a clip is expected to take of the mean gradient in longer records, shape (p,).

        Args:
          clip: The clip C; one that public gradients show counts as the longest of them.
        """
        clip = max(clip, self.longest)
        over = max(0.0, self._over(clip) - self._over(max(clip, self.most)))
        return over / (len(self.norms) + 1) * self._direction

    def _over(self, clip: float) -> float:
        """By how much a record that is longer than all exceeds a clip in the mean, the h(t)."""
        shape, scale = self._shape_and_scale
        beyond = scale + shape * float(self._excess[-1])
        if not beyond > 0.0:
            return 0.0
        far = (clip - self.longest) / beyond
        if abs(shape) < EXPONENTIAL:
            return float(beyond * np.exp(-far))
        left = max(0.0, 1.0 + shape * far)
        return float(beyond / (1.0 - shape) * left ** (1.0 - 1.0 / shape))

    @cached_property
    def _order(self) -> Indices:
        """The rows of the one before the k longest, and of these in order, shape (k + 1,)."""
        n = len(self.norms)
        return np.argsort(self.norms)[-min(int(np.sqrt(n)) + 1, n) :]

    @cached_property
    def _excess(self) -> Vector:
        """What the k longest exceed the one before them by, shape (k,)."""
        norms = self.norms[self._order]
        return norms[1:] - norms[0] if len(norms) > 1 else np.zeros(1)

    @cached_property
    def _direction(self) -> Vector:
        """What a unit of excess is in the mean, shape (p,)."""
        rows = self._order[-len(self._excess) :]
        units = self.gradients[rows] / np.maximum(self.norms[rows], TINY)[:, None]
        return self._excess @ units / max(float(self._excess.sum()), TINY)

    @cached_property
    def _shape_and_scale(self) -> tuple[float, float]:
        """The distribution's xi and sigma; nothing where excesses are alike."""
        mean, variance = float(self._excess.mean()), float(self._excess.var())
        if not variance > 0.0:
            return 0.0, 0.0
        ratio = mean**2 / variance
        return 0.5 * (1.0 - ratio), 0.5 * mean * (1.0 + ratio)
