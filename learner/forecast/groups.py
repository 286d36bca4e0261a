r"""What groups of public records differ by, beyond chance.

Their mean gradient at the optimum of all, :math:`v_g`, says how much group g differs; its excess
fitness :math:`q_g = v_g^\top H^{-1} v_g` is what a model of the group alone would lose, twice.
But a group of :math:`m` public records differs by chance too, by :math:`t/m` in the mean with
:math:`t = \mathrm{tr}(H^{-1}\,\mathrm{Cov}\,\nabla\ell)`. Where nothing but the order of the table
is known, what its parts differ by beyond chance is told as a drift, and as a random walk.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from common.arrays import Labels, Matrix, Vector
from common.errors import InputError
from common.losses import Loss, Regulariser
from common.terms import Records
from learner.simulated.evaluation import Evaluation, optimum

__all__ = ["NOTABLE_DRIFT", "Model", "PublicGroups", "consecutive_parts", "drift"]


# Parts of the public table that are compared to find a drift, and by how many deviations of
# chance they must differ.
WALK_PARTS = 10
DEVIATIONS = 4.0
# A model loses this share of its fitness from one end of the public table to the other.
NOTABLE_DRIFT = 0.02
# Consecutive parts that play the owners where there are no labels.
PARTS = 12


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """What is learnt: the loss, the regulariser and the box."""

    loss: Loss
    regulariser: Regulariser
    theta_max: float

    def optimum(self, records: Records) -> Vector:
        """The best model of the box on these records, shape (p,)."""
        return optimum(
            records, loss=self.loss, regulariser=self.regulariser, theta_max=self.theta_max
        )

    def gradients(self, theta: Vector, records: Records, clip: float | None) -> Matrix:
        """Each record's gradient, scaled down to L1 norm ``clip``, shape (n, p)."""
        slopes = self.loss.slopes(records.features @ theta, records.targets)
        if clip is not None:
            with np.errstate(divide="ignore"):
                largest = clip / np.abs(records.features).sum(axis=1)
            slopes = np.clip(slopes, -largest, largest)
        rows: Matrix = slopes[:, None] * records.features
        return rows


@dataclass(frozen=True, kw_only=True, eq=False)
class PublicGroups:
    """The public records in groups, with what the groups differ by.

    Args:
      model: What is learnt.
      records: The public records, n of them.
      labels: The group of each record, from 0, -1 for none, shape (n,); None where nothing is
        known but the order.
    """

    model: Model
    records: Records
    labels: Labels | None

    def __post_init__(self) -> None:
        """Refuse too few records."""
        n, p = self.records.features.shape
        if n < p:
            raise InputError(
                f"forecast: {n} public records for {p} features; give at least as many records "
                "as features"
            )

    @cached_property
    def groups(self) -> list[NDArray[np.intp]]:
        """The rows of each group that has enough of them to say something."""
        n, p = self.records.features.shape
        labels = consecutive_parts(n, PARTS) if self.labels is None else self.labels
        rows = [np.nonzero(labels == g)[0] for g in range(int(labels.max()) + 1)]
        return [own if own.size >= 2 * p else np.empty(0, dtype=np.intp) for own in rows]

    @cached_property
    def usable(self) -> list[int]:
        """The groups that may play an owner."""
        return [g for g, rows in enumerate(self.groups) if rows.size]

    @cached_property
    def theta_optimal(self) -> Vector:
        """The best model of all public records, shape (p,)."""
        return self.model.optimum(self.records)

    @cached_property
    def whitening(self) -> Matrix:
        """A matrix B with BB' = H^(-1), H the Hessian of the mean loss, shape (p, d)."""
        x = self.records.features
        curvature = self.model.loss.curvature or 1.0
        hessian = curvature * x.T @ x / len(self.records)
        hessian += self.model.regulariser.strong_convexity * np.eye(x.shape[1])
        values, vectors = np.linalg.eigh(hessian)
        kept = values > values[-1] * 1e-12
        whitening: Matrix = vectors[:, kept] / np.sqrt(values[kept])
        return whitening

    @cached_property
    def scores(self) -> Matrix:
        """Whitened gradients of each record at the optimum, mean 0, shape (n, d)."""
        gradients = self.model.gradients(self.theta_optimal, self.records, None)
        scores: Matrix = (gradients - gradients.mean(axis=0)) @ self.whitening
        return scores

    @cached_property
    def trace(self) -> float:
        """The t of chance: what one record's gradient differs by."""
        return float(np.mean(np.sum(self.scores**2, axis=1)))

    @cached_property
    def excess(self) -> Vector:
        """The q_g of each group, chance included; NaN where there are too few records."""
        return np.array(
            [
                float(np.sum(self.scores[rows].mean(axis=0) ** 2)) if rows.size else np.nan
                for rows in self.groups
            ]
        )

    @cached_property
    def difference(self) -> float:
        """Mean of q_g - t/m over the groups: what groups differ by beyond chance, at least 0."""
        usable = self.usable
        if len(usable) < 2:
            return 0.0
        chance = self.trace / np.array([self.groups[g].size for g in usable])
        return max(0.0, float(np.mean(self.excess[usable] - chance)))

    @cached_property
    def walk(self) -> Matrix | None:
        """Covariance of the random walk of whitened gradients for one row, shape (d, d).

        None where the parts of the table differ no more than by chance.
        """
        n = len(self.records)
        m = n // WALK_PARTS
        if m < 2 * self.records.features.shape[1]:
            return None
        means = self.scores[: m * WALK_PARTS].reshape(WALK_PARTS, m, -1).mean(axis=1)
        chance = 2.0 * self.scores.T @ self.scores / n / m
        # Neighbours: the increments of a walk are independent, longer differences are not.
        steps = np.diff(means, axis=0)
        total = steps.T @ steps - len(steps) * chance
        rows = len(steps) * m * (2.0 / 3.0)  # means over parts are smoother than the walk
        beyond = float(np.trace(total))
        # Deviation of the sum of squared differences of neighbours where nothing drifts.
        deviation = float(np.sqrt(2 * (6 * len(steps) - 2) * np.sum((chance / 2) ** 2)))
        if beyond < DEVIATIONS * deviation:
            return None
        values, vectors = np.linalg.eigh(total)
        positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
        covariance: Matrix = positive * (beyond / np.trace(positive) / rows)
        return covariance


def consecutive_parts(num_records: int, parts: int) -> Labels:
    """Labels of consecutive parts of equal size, shape (n,).

    >>> consecutive_parts(5, 2).tolist()
    [0, 0, 0, 1, 1]
    """
    return (np.arange(num_records) * parts // num_records).astype(np.intp)


def drift(public: PublicGroups) -> float:
    r"""How much more the two ends of the public table differ than chance explains, in [0, inf).

    :math:`\tfrac12(\|v_1 - v_2\|_{H^{-1}}^2 - t(1/m_1+1/m_2)) / f(\theta^*)` for the first and
    the last third: what a model loses, relative to its fitness, from one end of the table to the
    other. Where there are labels, what groups differ by does not count. Above ``NOTABLE_DRIFT``
    the records change along the table, and the private ones may be beyond its ends.
    """
    scores = public.scores
    if public.labels is not None:
        scores = scores.copy()
        for rows in public.groups:
            if rows.size:
                scores[rows] -= scores[rows].mean(axis=0)
    third = max(1, len(public.records) // 3)
    squared = float(np.sum((scores[:third].mean(axis=0) - scores[-third:].mean(axis=0)) ** 2))
    beyond = max(0.0, squared - 2.0 * public.trace / third)
    return 0.5 * beyond / _fitness_optimal(public)


def _fitness_optimal(public: PublicGroups) -> float:
    """The fitness of the best model of all public records."""
    return Evaluation(
        shards=[public.records],
        loss=public.model.loss,
        regulariser=public.model.regulariser,
        theta_max=public.model.theta_max,
    ).fitness_optimal
