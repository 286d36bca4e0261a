r"""How the mean of records changes along their table: what is known of it, and what it may be.

The table is cut into K consecutive parts of m = n/K records. In directions where single records
vary by I within parts, the mean of part k is, but for a constant that is not known,

.. math:: y_k = \frac1m \int_k P(s)\,ds + e_k, \qquad e_k \sim \mathrm{N}(0, I/m), \qquad
          \mathrm{Cov}(P_j(s), P_j(t)) = V_j\,e^{-|s-t|/\ell}

with Ornstein-Uhlenbeck processes :math:`P_j`, each with a variance and a length of its own. What
parts differ by is :math:`S_j = V_j\,\mathrm{tr}(R_\ell)/(K-1)` in the mean, :math:`R_\ell` the
covariance of parts of a process of variance 1, less their mean. A priori there is no drift with
probability 1/2; else a level S is log-uniform, and each :math:`S_j` is log-normal around it, a
decade wide. Lengths are log-uniform from half a part on. The posterior is on a grid.

A path through the owners' records, which lie before the table, is drawn with :math:`\ell_j` and
:math:`V_j` of the posterior, lengths at most the whole study's, since longer ones look the same
there; and given the means that were seen: a path of the process is drawn, with parts seen through
chance, and what these differ from the real ones by is taken off as the best linear prediction has
it (kriging).

**What a model absorbs.** Where features change along the table, a model that is fitted to it takes
up the drift of the target that follows them. Of a course of the parts' mean features whose share of
that feature's variance is :math:`\rho`, only :math:`1-\rho` is left in the residuals.

References: Cressie (1993), Statistics for Spatial Data, chapter 3; Journel and Huijbregts (1978),
Mining Geostatistics, on paths given what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from common.arrays import Array, Flags, Indices, Matrix, Vector

# Parts of the table, and the fewest that show anything; each has two records a feature at least.
MOST_PARTS, FEWEST_PARTS, RECORDS_PER_FEATURE = 30, 6, 2
# The grid: lengths from half a part to this many tables, and what parts differ by, in the variance
# of a single record, from a tenth of the chance of the whole table.
LENGTHS, SHORTEST, LONGEST = 12, 0.5, 30.0
LEVELS, LOWEST, HIGHEST = 16, 0.1, 1.0
# A priori there is no drift this often, and directions differ by this many powers of ten.
STEADY, DECADES = 0.5, 1.0
# Directions in which records vary by less than this share of the most do not count.
NEGLIGIBLE = 1e-9


class _Modes(NamedTuple):
    """A process of variance 1 and some length, as the parts of the table show it.

    ``covariance`` is that of the parts' means, shape (K, K), and ``size`` what they differ by;
    ``variances`` and ``vectors`` are the principal ones of what is left in the residuals.
    """

    covariance: Matrix
    size: float
    variances: Vector
    vectors: Matrix


@dataclass(frozen=True, kw_only=True, eq=False)
class Drift:
    """What is known of a drift along a table.

    Args:
      rows: Records of a part, m.
      means: The parts' means less that of all, where single records vary by I, shape (K, k).
      root: From there to the values' own coordinates, shape (k, d).
      left: What a model that was fitted to the table leaves of a course, shape (K, K).
    """

    rows: float
    means: Matrix
    root: Matrix
    left: Matrix

    @property
    def steady(self) -> float:
        """The probability that nothing drifts."""
        return float(self.posterior[0])

    @cached_property
    def lengths(self) -> Vector:
        """The grid of lengths, in records, shape (number of lengths,)."""
        return np.geomspace(SHORTEST, LONGEST * len(self.means), LENGTHS) * self.rows

    @cached_property
    def levels(self) -> Vector:
        """What parts may differ by, in a record's variance, shape (levels,), the first 0."""
        n = self.rows * len(self.means)
        return np.append(0.0, np.geomspace(LOWEST / n, HIGHEST, LEVELS))

    @cached_property
    def prior(self) -> Matrix:
        """Probabilities of a direction's level given that of all, shape (LEVELS + 1,) twice."""
        decades = np.log10(self.levels[1:])
        around = np.exp(-0.5 * (np.subtract.outer(decades, decades) / DECADES) ** 2)
        table = np.zeros((LEVELS + 1, LEVELS + 1))
        table[0, 0] = 1.0
        table[1:, 1:] = around / around.sum(axis=1, keepdims=True)
        return table

    @cached_property
    def modes(self) -> list[_Modes]:
        """The process of each length as the parts show it."""
        return [_modes(self.rows / length, self.left) for length in self.lengths]

    @cached_property
    def likelihood(self) -> Array:
        """Logarithm, for each length, level and direction, shape (LENGTHS, LEVELS + 1, k)."""
        tables = []
        for modes in self.modes:
            spread = np.outer(self.levels / modes.size, modes.variances) + 1.0 / self.rows
            squares = (modes.vectors.T @ self.means) ** 2
            tables.append(-0.5 * (np.log(spread).sum(axis=1)[:, None] + (1.0 / spread) @ squares))
        return np.stack(tables)

    @cached_property
    def posterior(self) -> Vector:
        """Probabilities of the level of all directions, shape (LEVELS + 1,)."""
        most = self.likelihood.max(axis=(0, 1))
        each = np.exp(self.likelihood - most).mean(axis=0)
        with np.errstate(divide="ignore"):  # a level that the table rules out
            total = np.log(self.prior @ each).sum(axis=1)
        total += np.log([STEADY, *[(1.0 - STEADY) / LEVELS] * LEVELS])
        total = np.exp(total - total.max())
        return total / total.sum()

    def path(self, num_records: Vector, *, rng: np.random.Generator) -> Matrix:
        """How far each owner's mean is from the table's, in one world, shape (N, d).

        Args:
          num_records: The owners' n_i, in their order before the table, shape (N,).
          rng: Where the world comes from.
        """
        places, levels = self._drawn(float(num_records.sum()), rng=rng)
        away = np.zeros((num_records.size, levels.size))
        for place in np.unique(places[levels > 0]).tolist():
            alike = (places == place) & (levels > 0)
            away[:, alike] = self._away(place, levels[alike], alike, num_records, rng=rng)
        return away @ self.root

    def _away(
        self,
        place: int,
        levels: Vector,
        which: Flags,
        num_records: Vector,
        *,
        rng: np.random.Generator,
    ) -> Matrix:
        """The same in the directions of one length, shape (N, directions)."""
        modes, length, m = self.modes[place], self.lengths[place], self.rows
        V, K = levels / modes.size, len(self.means)
        sizes = np.append(num_records, np.full(K, m)) / length
        own, parts = np.split(np.sqrt(V) * _process(sizes, V.size, rng=rng), [num_records.size])
        seen = self.left @ parts + rng.standard_normal(parts.shape) / np.sqrt(m)
        missed = modes.vectors.T @ (self.means[:, which] - seen)
        missed *= V / (np.outer(modes.variances, V) + 1.0 / m)
        # Covariances of the owners' means less the table's with what the parts show.
        gaps = np.append(np.cumsum(num_records[:0:-1])[::-1], 0.0)[:, None] + np.arange(K) * m
        shared = np.outer(_faded(sizes[: own.shape[0]]), _faded(sizes[-K:]))
        with_parts = np.exp(-gaps / length) * shared - modes.covariance.mean(axis=0)
        return own - parts.mean(axis=0) + with_parts @ self.left @ modes.vectors @ missed

    def _drawn(self, num_private: float, *, rng: np.random.Generator) -> tuple[Indices, Vector]:
        """The place of a length, and a level, for each direction, shapes (k,)."""
        whole = self.rows * len(self.means) + num_private
        short = self.likelihood[self.lengths <= whole]
        common = rng.choice(LEVELS + 1, p=self.posterior)
        each = self.prior[common][:, None] * np.exp(short - short.max(axis=(0, 1)))
        edges = np.cumsum(each.reshape(len(short) * (LEVELS + 1), -1), axis=0)
        picks = (rng.random(edges.shape[1]) * edges[-1] > edges[:-1]).sum(axis=0)
        places, levels = np.divmod(picks, LEVELS + 1)
        return places, self.levels[levels]


def drift_of(
    values: Matrix, num_features: int, *, absorbed_by: Matrix | None = None
) -> Drift | None:
    """What is known of how these values drift; None where there are too few of them.

    Args:
      values: A row for each record, mean 0, shape (n, d).
      num_features: The number p of fitted parameters.
      absorbed_by: The features of a model whose residuals these are, mean 0, shape (n, p).
    """
    n = len(values)
    K = min(MOST_PARTS, n // (RECORDS_PER_FEATURE * num_features))
    if K < FEWEST_PARTS:
        return None
    means = _means(values, K)
    within = (values.T @ values - means.T @ means * (n / K)) / (n - K)
    white, root = _square_roots(within)
    left = np.eye(K) - 1.0 / K
    if absorbed_by is not None:
        left -= _followed(absorbed_by, K)
    return Drift(rows=n / K, means=(means - means.mean(axis=0)) @ white, root=root, left=left)


def drifts_of_residuals(scores: Matrix, features: Matrix, whitening: Matrix) -> list[Drift]:
    """How a model's whitened gradients drift; none where there are too few of them.

    Along the mean record they tell what residuals are in the mean, which the fit has pulled to 0
    as far as the features follow it; in all other directions it has not.

    Args:
      scores: The whitened gradients at the model that is best on these records, shape (n, d).
      features: Their features, shape (n, p).
      whitening: What whitens them, shape (p, d).
    """
    level = features.mean(axis=0) @ whitening
    level /= np.linalg.norm(level) or 1.0
    along = np.outer(scores @ level, level)
    p, centred = features.shape[1], features - features.mean(axis=0)
    drifts = drift_of(along, p, absorbed_by=centred), drift_of(scores - along, p)
    return [each for each in drifts if each is not None]


def _means(values: Matrix, parts: int) -> Matrix:
    """The mean of each of this many consecutive parts, shape (parts, d)."""
    starts = np.arange(parts) * len(values) // parts
    sizes = np.diff(np.append(starts, len(values)))
    return np.add.reduceat(values, starts, axis=0) / sizes[:, None]


def _square_roots(covariance: Matrix) -> tuple[Matrix, Matrix]:
    """W and R with W'CW = I and R'R = C, in the directions there are, shapes (d, k), (k, d)."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > max(values[-1], 0.0) * NEGLIGIBLE
    roots = np.sqrt(values[kept])
    return vectors[:, kept] / roots, roots[:, None] * vectors[:, kept].T


def _followed(features: Matrix, parts: int) -> Matrix:
    """The courses of these features, each as far as it is the features' whole variance, (K, K)."""
    white, _ = _square_roots(features.T @ features / len(features))
    means = _means(features, parts) @ white
    courses, sizes, _ = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    return (courses * np.minimum(sizes**2 / parts, 1.0)) @ courses.T


def _modes(part: float, left: Matrix) -> _Modes:
    """The process of variance 1, where a part is so many lengths long."""
    K = len(left)
    lag = np.maximum(np.abs(np.subtract.outer(np.arange(K), np.arange(K))) - 1, 0)
    covariance = _faded(np.array(part)) ** 2 * np.exp(-part * lag)
    np.fill_diagonal(covariance, 2.0 * (part + np.expm1(-part)) / part**2)
    size = float(np.trace(covariance) - covariance.sum() / K) / (K - 1)
    values, vectors = np.linalg.eigh(left @ covariance @ left)
    # Nothing is known of the mean of all parts, whose variance is the one that is exactly 0.
    return _Modes(covariance, size, np.maximum(values, 0.0), vectors)


def _faded(lengths: Vector) -> Vector:
    """What is left in the mean over this many lengths of what was there at their start."""
    return np.asarray(-np.expm1(-lengths) / lengths)


def _process(lengths: Vector, count: int, *, rng: np.random.Generator) -> Matrix:
    """Means of processes of variance 1 over consecutive stretches, shape (stretches, count).

    Args:
      lengths: Each stretch in lengths of the process, shape (stretches,).
      count: The number of independent processes.
      rng: Where they come from.
    """
    kept, fresh = np.exp(-lengths), np.sqrt(-np.expm1(-2.0 * lengths))
    ends = rng.standard_normal((lengths.size + 1, count))
    for k in range(lengths.size):
        ends[k + 1] = kept[k] * ends[k] + fresh[k] * ends[k + 1]
    # Given both of its ends, the mean of a stretch is normal.
    half = 2.0 * np.tanh(lengths / 2.0)
    middle = (ends[:-1] + ends[1:]) * (half / (2.0 * lengths))[:, None]
    around = np.sqrt(np.maximum(2.0 * (lengths - half), 0.0)) / lengths
    return middle + around[:, None] * rng.standard_normal(middle.shape)
