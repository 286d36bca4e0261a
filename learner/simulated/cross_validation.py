"""What a model of the public records is worth on records that it was not fitted to.

A model of classes fits the records that it is learnt from better than others, and may fit few of
them perfectly: they know neither it nor the best fitness of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from common.arrays import Matrix, Vector
from common.terms import Records
from learner.algorithms.box_least_squares import box_least_squares
from learner.simulated.problem import Problem

FOLDS, FOLDS_SEED = 5, 0
# The calibration slope of a model that is twice too sure of what it has not seen.
LEAST_SLOPE = 0.5
TINY = 1e-300
# What the mean curvature is multiplied by for a ridge.
RIDGES = (0.0, *(10.0 ** (power / 2) for power in range(-10, 5)))
# What a ridge gains on records held out counts less so many of its standard errors.
DOUBT = 0.5


class Fold(NamedTuple):
    """The best model of all folds but one, their records, and those of that one."""

    model: Vector
    known: Records
    left: Records


@dataclass(frozen=True, kw_only=True, eq=False)
class CrossValidation:
    """Five-fold cross-validation of the best model of some records.

    Args:
      problem: What is learnt.
      records: The records, n of them.
      theta: Their best model, shape (p,).

    >>> from common.losses import Logistic, Regulariser
    >>> x = np.repeat([[1.0], [-1.0]], 20, axis=0)
    >>> problem = Problem(loss=Logistic(), regulariser=Regulariser(coefficient=0.0), theta_max=9.0)
    >>> known = Records(features=x, targets=np.r_[-1.0, np.ones(19), 1.0, -np.ones(19)])
    >>> CrossValidation(problem=problem, records=known, theta=problem.optimum(known)).is_overfit
    False
    >>> tossed = Records(features=x, targets=np.tile([1.0, 1.0, -1.0, -1.0], 10))
    >>> CrossValidation(problem=problem, records=tossed, theta=problem.optimum(tossed)).is_overfit
    True
    """

    problem: Problem
    records: Records
    theta: Vector

    @cached_property
    def folds(self) -> list[Fold]:
        """Five folds, or one of each record if there are fewer; none of a single record."""
        n = len(self.records)
        labels = np.random.default_rng(FOLDS_SEED).permutation(n) % FOLDS
        found = []
        for fold in range(min(FOLDS, n) if n > 1 else 0):
            known = self.records.at(np.nonzero(labels != fold)[0])
            left = self.records.at(np.nonzero(labels == fold)[0])
            found.append(Fold(self.problem.optimum(known), known, left))
        return found

    @cached_property
    def is_overfit(self) -> bool:
        r"""Whether a model of these records is more than twice too sure of others.

        Its calibration slope, the s at which margins times s lose least on the records held out,
        is below a half. The loss is convex in s, so that its derivative there decides.

        References: Cox (1958), Two further applications of a model for binary regression; Copas
        (1983), Regression, prediction and shrinkage.
        """
        derivative = 0.0
        for model, _, left in self.folds:
            margins = left.features @ model
            slopes = self.problem.loss.slopes(LEAST_SLOPE * margins, left.targets)
            derivative += float(slopes @ margins)
        return derivative > 0.0

    @cached_property
    def ridged(self) -> Vector:
        r"""The model, shrunk by the ridge that surely tells records held out best, shape (p,).

        With the curvature H of a model's records at it, and of squared loss their gradient
        :math:`g_e` at the edges of the box, which keep it from going farther, it becomes the model
        of the box that minimises

        .. math:: \tfrac12\theta^\top (H + \lambda\bar h I)\,\theta
                  - (H\theta_0 - g_e)^\top\theta, \qquad \bar h = \mathrm{tr}(H)/p

        which for squared loss is ridge regression. A model of classes lies at an edge because it is
        too sure of its records, so it is shrunk from there. Directions in which records hardly
        vary, and so say little, are shrunk most.

        :math:`\lambda` is 0 or a power of :math:`\sqrt{10}`. By each, a model of four fifths of
        the records loses on record j, of the last fifth, less by :math:`d_j(\lambda)` than without
        a ridge. Chance makes the sum of these vary by its standard error, and of fifteen ridges the
        one that chance favours looks best; but the model as it is, is free. So the ridge is the one
        whose gain is largest less k times that error, and 0 where none is better by as much,

        .. math:: \lambda = \arg\max_\lambda\; \sum_j d_j(\lambda)
                  - k\sqrt{\textstyle\sum_j (d_j(\lambda) - \bar d(\lambda))^2}

        with k = 1/2. With k = 1 a ridge makes the model worse less often still, but more of what
        one gains is given away. Of classes k = 0: a model that is too sure of its records is no
        safe one to stay at.

        References: Hoerl and Kennard (1970), Ridge regression. Stone (1974), Cross-validatory
        choice and assessment of statistical predictions. Breiman et al. (1984), Classification and
        regression trees, section 3.4.3, on the standard error of what is held out.

        >>> from common.losses import Regulariser, Squared
        >>> problem = Problem(loss=Squared(), regulariser=Regulariser(coefficient=0.0),
        ...     theta_max=9.0)
        >>> def kept(size):
        ...     x, chance = np.tile(np.eye(6), (9, 1)), np.random.default_rng(1).normal(size=54)
        ...     records = Records(features=x, targets=size * x.sum(axis=1) + chance)
        ...     theta = problem.optimum(records)
        ...     model = CrossValidation(problem=problem, records=records, theta=theta).ridged
        ...     return round(float(model @ theta / (theta @ theta)), 2)
        >>> kept(0.0), kept(3.0)
        (0.01, 1.0)
        """
        if not self.folds:
            return self.theta
        less = np.concatenate([self._less_lost(fold) for fold in self.folds])
        doubt = 0.0 if self.problem.loss.has_classes() else DOUBT
        surely = less.sum(axis=0) - doubt * np.sqrt(len(less)) * less.std(axis=0)
        ridge = RIDGES[int(np.argmax(surely))]
        return _ridge_path(self.problem, self.records, self.theta, (ridge,))[0]

    def _less_lost(self, fold: Fold) -> Matrix:
        """What each record held out loses less by each ridge than by none, shape (n, ridges)."""
        problem, left = self.problem, fold.left
        models = np.stack(_ridge_path(problem, fold.known, fold.model))
        lost = problem.loss.values(models @ left.features.T, left.targets)
        lost += np.array([[problem.regulariser.value(model)] for model in models])
        return (lost[0] - lost).T

    @cached_property
    def fitness(self) -> tuple[float, float]:
        """Fitness of the model on its own records, and on records held out, which is no less."""
        inside = self.problem.fitness(self.theta, self.records)
        outside = sum(
            self.problem.fitness(model, left) * len(left) / len(self.records)
            for model, _, left in self.folds
        )
        return inside, max(outside, inside)

    @property
    def wrong(self) -> float:
        """The share of the records held out whose class is told wrongly."""
        told = sum(
            int(np.sum(left.targets * (left.features @ m) > 0.0)) for m, _, left in self.folds
        )
        return 1.0 - told / len(self.records)

    def honest(self, worlds: int) -> tuple[Vector, Vector]:
        r"""Factors for relative fitness, and psi of the model of these records, in so many worlds.

        The model's fitness f on its own records is less than others' best, and :math:`f_{cv}` on
        records held out is more. Nothing tells where between them that is, and it is the unit of
        relative fitness. So world w of W has another one,

        .. math:: f_w^* = f^{1-u} f_{cv}^u, \qquad u = (w + 1/2)/W

        the middle one half-way. Where the two are near each other it matters little where. Where
        these records' classes can be told apart nearly without a mistake, f is next to nothing and
        :math:`f_{cv}` many times larger; half of their sum would have psi below 1, however bad the
        model is.

        Args:
          worlds: How many worlds.

        Returns:
          The factors :math:`f/f_w^*` that simulated relative fitness is times, and the psi
          :math:`f_{cv}/f_w^* - 1` of the model, shapes (W,).

        References: Efron (1983), on the optimism of a rule's apparent error.

        >>> from common.losses import Logistic, Regulariser
        >>> problem = Problem(loss=Logistic(), regulariser=Regulariser(coefficient=0.0),
        ...     theta_max=9.0)
        >>> records = Records(features=np.ones((5, 1)), targets=np.array([1.0, 1, 1, 1, -1]))
        >>> known = CrossValidation(problem=problem, records=records, theta=np.ones(1))
        >>> known.__dict__["fitness"] = 0.01, 1.0
        >>> [each.round(3).tolist() for each in known.honest(3)]
        [[0.464, 0.1, 0.022], [45.416, 9.0, 1.154]]
        """
        inside, outside = self.fitness
        place = (np.arange(worlds) + 0.5) / worlds
        more = outside / inside
        factor: Vector = more**-place
        return factor, factor * more - 1.0


def _ridge_path(
    problem: Problem, records: Records, theta: Vector, ridges: Sequence[float] = RIDGES
) -> list[Vector]:
    """The records' best model, shrunk by each ridge: :attr:`CrossValidation.ridged`."""
    curvature = problem.curvature(theta, records)
    told = curvature @ theta
    if problem.loss.is_quadratic:
        told -= problem.outwards(theta, records)
    # In the curvature's own directions each ridge is a division.
    values, vectors = np.linalg.eigh(curvature)
    along, unit = vectors.T @ told, max(float(values.mean()), TINY)
    models = []
    for ridge in ridges:
        model = vectors @ (along / (values + ridge * unit)) if ridge else theta
        if np.abs(model).max() > problem.theta_max:
            shrinking = curvature + ridge * unit * np.eye(theta.size)
            model = box_least_squares(shrinking, told, theta_max=problem.theta_max)
        models.append(model)
    return models
