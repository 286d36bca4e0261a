r"""What groups of public records differ by, beyond chance.

Their mean gradient at the optimum of all, :math:`v_g`, says how much group g differs; its excess
fitness :math:`q_g = v_g^\top H^{-1} v_g` is what a model of the group alone would lose, twice.
But a group of :math:`m` public records differs by chance too, by :math:`t/m` in the mean with
:math:`t = \mathrm{tr}(H^{-1}\,\mathrm{Cov}\,\nabla\ell)`. Where nothing but the order of the table
is known, it shows how records drift along it (:mod:`learner.simulated.drift`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from common.arrays import Flags, Indices, Matrix, Vector
from common.errors import InputError
from common.terms import Records
from learner.algorithms.shrinkage import whitening
from learner.simulated.components import Components, components, covariance_within
from learner.simulated.cross_validation import CrossValidation
from learner.simulated.drift import Drift, drift_of, drifts_of_residuals
from learner.simulated.evaluation import Evaluation
from learner.simulated.problem import Problem
from learner.simulated.redraws import Redraws

# Records drift along their table if that is as probable as this.
SURE = 0.95
# A model loses this share of its fitness from one end of the public table to the other.
NOTABLE_DRIFT = 0.02
# Consecutive parts that play the owners where there are no labels.
PARTS = 12
# Directions that little more than g curves are whitened, too; less is rounding.
LEAST_CURVATURE = 1e-12
# The fewest records of a group: one says nothing of what records of a group have in common.
FEWEST = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class PublicGroups:
    """The public records in groups, with what the groups differ by.

    Args:
      problem: What is learnt.
      records: The public records, n of them.
      labels: The group of each record, from 0, -1 for none, shape (n,); None where nothing is
        known but the order.
    """

    problem: Problem
    records: Records
    labels: Indices | None

    def __post_init__(self) -> None:
        """Refuse too few records."""
        n, p = self.records.features.shape
        if n < p:
            raise InputError(
                f"public records: got {n} for {p} features; give at least as many as features"
            )

    @cached_property
    def groups(self) -> list[Indices]:
        """The rows of each group, shape (size,); none of a group that has only one."""
        n = len(self.records)
        labels = consecutive_parts(n, PARTS) if self.labels is None else self.labels
        rows = [np.nonzero(labels == g)[0] for g in range(int(labels.max()) + 1)]
        return [own if own.size >= FEWEST else np.empty(0, dtype=np.intp) for own in rows]

    @cached_property
    def usable(self) -> list[int]:
        """The groups that may play an owner."""
        return [g for g, rows in enumerate(self.groups) if rows.size]

    @cached_property
    def theta_optimal(self) -> Vector:
        """The best model of all public records, shape (p,)."""
        return self.problem.optimum(self.records)

    @cached_property
    def start(self) -> Vector:
        """The model that Newton's steps and moments begin at: that of these records, shrunk.

        How much ridge takes their chance off it, records held out from it say
        (:attr:`learner.simulated.cross_validation.CrossValidation.ridged`). A loss with kinks has
        no curvature, so there all of it is kept.

        Ticks begin at their model itself. They go a way that is fixed before owners are asked,
        while what owners tell and known noise decide how far a step goes; shrunk, too, the worlds
        in which they are compared would have ticks better than they are.
        """
        return self.theta_optimal if self.problem.loss.curvature is None else self.outside.ridged

    @cached_property
    def gradients(self) -> Matrix:
        """Each record's gradient at the optimum of all, shape (n, p)."""
        return self.problem.gradients(self.theta_optimal, self.records, None)

    def unclipped(self, clip: float | None) -> Flags:
        """Whose gradients at the optimum a clip leaves as they are, shape (n,)."""
        norms = np.abs(self.gradients).sum(axis=1)
        return norms <= (np.inf if clip is None else clip)

    @cached_property
    def gradient_root(self) -> Matrix:
        """A matrix R with R'R the second moments of one record's gradient, shape (p, p)."""
        values, vectors = np.linalg.eigh(self.gradients.T @ self.gradients / len(self.records))
        return np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T

    @cached_property
    def order(self) -> Indices:
        """The rows sorted by target and margin, so that a draw can be spread evenly, shape (n,)."""
        margins = self.records.features @ self.theta_optimal
        return np.lexsort((margins, self.records.targets))

    @cached_property
    def redraws(self) -> Redraws:
        """What the public records could also have been."""
        return Redraws(problem=self.problem, records=self.records, theta=self.theta_optimal)

    @cached_property
    def outside(self) -> CrossValidation:
        """What the model of the public records is worth where it was not fitted."""
        return CrossValidation(problem=self.problem, records=self.records, theta=self.theta_optimal)

    def drawn(self, weights: Vector, size: int, *, rng: np.random.Generator) -> Records:
        """Systematically drawn records, spread evenly over targets and margins.

        Args:
          weights: Weights of the records, shape (n,).
          size: How many are drawn.
          rng: Where the place of the first comes from.
        """
        edges = np.cumsum(weights[self.order])
        places = (np.arange(size) + rng.random()) / size * edges[-1]
        rows = self.order[np.minimum(np.searchsorted(edges, places), len(edges) - 1)]
        return self.records.at(rows)

    @cached_property
    def whitening(self) -> Matrix:
        """A matrix B with BB' = H^(-1), H the Hessian of the mean loss, shape (p, d)."""
        x = self.records.features
        curvature = self.problem.loss.curvature or 1.0
        hessian = curvature * x.T @ x / len(self.records)
        hessian += self.problem.regulariser.strong_convexity * np.eye(x.shape[1])
        return whitening(hessian, least=LEAST_CURVATURE)

    @cached_property
    def scores(self) -> Matrix:
        """Whitened gradients of each record at the optimum, mean 0, shape (n, d)."""
        return (self.gradients - self.gradients.mean(axis=0)) @ self.whitening

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
    def components(self) -> Components:
        """What groups differ by, and single records within them."""
        sizes = np.array([rows.size for rows in self.groups], dtype=np.float64)
        # Parts of one table differ by chance, and what seems to be beyond it is, too.
        if self.labels is None and not self.drifts:
            return Components(0.0, np.zeros(len(sizes)), self.trace)
        return components(sizes, self.excess, self.scores)

    @cached_property
    def within(self) -> Matrix:
        """Covariance of the features within groups, shape (p, p)."""
        return covariance_within(self.records.features, self.groups)

    @cached_property
    def score_drifts(self) -> list[Drift]:
        """How whitened gradients drift where nothing but the order is known, if it shows."""
        if self.labels is not None:
            return []
        return drifts_of_residuals(self.scores, self.records.features, self.whitening)

    @cached_property
    def feature_drift(self) -> Drift | None:
        """The same of the features themselves: records of another time or place are others."""
        if self.labels is not None:
            return None
        # Not of whitened features: in their own principal directions chance looks like a drift.
        features = self.records.features
        found = drift_of(features - features.mean(axis=0), features.shape[1])
        scaled = self.whitening / self.scale
        return None if found is None else replace(found, root=found.root @ scaled)

    @cached_property
    def standardised(self) -> Matrix:
        """Features in coordinates where their second moments are I, less their means, (n, d)."""
        scaled = self.records.features @ self.whitening / self.scale
        return scaled - scaled.mean(axis=0)

    @cached_property
    def scale(self) -> float:
        """The root of the mean square of whitened features."""
        return float(np.sqrt(np.mean((self.records.features @ self.whitening) ** 2))) or 1.0

    @property
    def drifts(self) -> bool:
        """Whether nothing but the order is known, and it shows that records change along it."""
        return _show_change(self.feature_drift, *self.score_drifts)


def _show_change(*drifts: Drift | None) -> bool:
    """Whether one of them is sure."""
    return any(each.steady < 1.0 - SURE for each in drifts if each is not None)


def consecutive_parts(num_records: int, parts: int) -> Indices:
    """Labels of consecutive parts of equal size, shape (n,).

    >>> consecutive_parts(5, 2).tolist()
    [0, 0, 0, 1, 1]
    """
    return (np.arange(num_records) * parts // num_records).astype(np.intp)


def drifts_within(public: PublicGroups) -> bool:
    """Whether the order shows that records of one group change along the table."""
    features = _less_means(public, public.records.features)
    scores = _less_means(public, public.scores)
    return _show_change(
        drift_of(features - features.mean(axis=0), features.shape[1]),
        *drifts_of_residuals(scores, public.records.features, public.whitening),
    )


def _less_means(public: PublicGroups, rows: Matrix) -> Matrix:
    """What each record has less the mean of its group, shape of ``rows``."""
    within = rows.copy()
    for own in public.groups:
        if own.size:
            within[own] -= within[own].mean(axis=0)
    return within


class Ends(NamedTuple):
    """How the two ends of a public table differ.

    Args:
      drift: What a model loses, relative to its fitness, from one end to the other, in [0, inf).
      is_notable: Whether that is to be told of, and more than chance: the records then change along
        the table, and the private ones may be beyond its ends.
    """

    drift: float
    is_notable: bool


def ends_of(public: PublicGroups) -> Ends:
    r"""How much more the two ends of the public table differ than chance explains.

    :math:`\tfrac12(\|v_1 - v_2\|_{H^{-1}}^2 - t(1/m_1+1/m_2)) / f(\theta^*)` for the first and
    the last third. Where there are labels, what groups differ by does not count. By chance the
    square lies more than two standard deviations above its mean in one table of twenty.
    """
    scores = public.scores
    if public.labels is not None:
        scores = _less_means(public, scores)
    third = max(1, len(public.records) // 3)
    squared = float(np.sum((scores[:third].mean(axis=0) - scores[-third:].mean(axis=0)) ** 2))
    beyond = squared - 2.0 * public.trace / third
    # Chance: a sum of squares of normal numbers, with the eigenvalues of 2 second / third as
    # their variances.
    second = scores.T @ scores / len(scores)
    deviation = 2.0 * np.sqrt(2.0) * float(np.linalg.norm(second)) / third
    fitness = Evaluation(shards=[public.records], problem=public.problem).fitness_optimal
    drift = 0.5 * max(0.0, beyond) / fitness
    return Ends(drift, beyond > 2.0 * deviation and drift > NOTABLE_DRIFT)
