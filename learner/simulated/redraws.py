r"""What the public records could also have been, and the best model that goes with it.

The public records differ by chance from what they were drawn from. Rubin's bootstrap draws each
record's weight at random, so that their best model varies around theirs, :math:`\theta_0`, as
:math:`\theta_0` itself varies around the true one. But then it is larger than the true one by the
chance in both: where records tell little, most of a model of theirs is chance, and what begins at 0
looks worse than it is.

In coordinates in which the curvature at :math:`\theta_0` is I and chance is independent, of
variance :math:`v_j`, coordinate :math:`z_j` of :math:`\theta_0` is kept as far as it is larger than
chance, and so is the chance around it:

.. math:: k_j = \max(0, 1 - v_j/z_j^2), \qquad z_j^* \sim (k_j z_j,\; k_j v_j)

These are the mean and variance after :math:`z_j` is seen, if true coordinates vary around 0 by
:math:`z_j^2 - v_j`. The mean square of :math:`z_j^* - z_j` is :math:`v_j` as in the bootstrap, but
:math:`z_j^2` where nothing is kept, which is less.

References: Rubin (1981), The Bayesian bootstrap. James and Stein (1961), Estimation with quadratic
loss. Breiman (1995), Better subset regression using the nonnegative garrote, for the factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from common.arrays import Matrix, Vector
from common.terms import Records
from learner.algorithms.shrinkage import whitening
from learner.simulated.problem import Problem

__all__ = ["Redraws"]

# The least that a redrawn record weighs, where the mean is 1.
LEAST_WEIGHT = 1e-9
TINY = 1e-300


@dataclass(frozen=True, kw_only=True, eq=False)
class Redraws:
    """Random weights of the public records.

    Args:
      problem: What is learnt.
      records: The public records, n of them.
      theta: Their best model, shape (p,).

    >>> from common.losses import Regulariser, Squared
    >>> rng = np.random.default_rng(1)
    >>> x, chance = np.ones((100, 1)), rng.standard_normal(100)
    >>> problem = Problem(loss=Squared(), regulariser=Regulariser(coefficient=0.0), theta_max=9.0)
    >>> def models(targets):
    ...     public = Records(features=x, targets=targets)
    ...     redraws = Redraws(problem=problem, records=public, theta=problem.optimum(public))
    ...     return [float(redraws.weights(rng=rng) @ targets / 100) for _ in range(50)]
    >>> far, near = models(chance + 5.0), models(chance)
    >>> [round(float(value), 2) for value in (chance.mean(), np.mean(far), np.mean(near))]
    [-0.07, 4.93, -0.0]
    """

    problem: Problem
    records: Records
    theta: Vector

    def weights(self, *, rng: np.random.Generator) -> Vector:
        """Weights of mean 1, none of them 0, shape (n,).

        A record's weight is exponential, with a variance of n/(n-p), since residuals of p fitted
        parameters are too small by that; then it is tilted along its gradient. A small owner has
        few records, and each of them must weigh something. A loss with kinks has no curvature that
        would tell how far its model is chance, so there nothing is tilted.
        """
        n, p = self.records.features.shape
        weights = 1.0 + np.sqrt(n / max(n - p, 1)) * (rng.standard_exponential(n) - 1.0)
        if self.problem.loss.curvature is not None:
            weights += self._tilt(weights)
        weights = np.maximum(weights, LEAST_WEIGHT)
        return np.asarray(weights / weights.mean())

    def _tilt(self, weights: Vector) -> Vector:
        """What moves these records' best model to where it should be, to first order, (n,)."""
        n, p = self.records.features.shape
        scores, model = self._coordinates
        variances = np.maximum(np.mean(scores**2, axis=0), TINY)
        chance_in_model = variances / max(n - p, 1)
        kept = np.maximum(0.0, 1.0 - chance_in_model / np.maximum(model**2, TINY))
        chance = (weights - 1.0) @ scores / n
        wanted = np.sqrt(kept) * chance + (1.0 - kept) * model
        tilt: Vector = scores @ ((wanted - chance) / variances)
        return tilt

    @cached_property
    def _coordinates(self) -> tuple[Matrix, Vector]:
        """Each record's gradient where curvature is I and chance independent, (n, d); the model."""
        x, theta = self.records.features, self.theta
        each = self.problem.curvatures(theta, self.records, None) / len(x)
        curvature = (x * each[:, None]).T @ x
        curvature += self.problem.regulariser.strong_convexity * np.eye(theta.size)
        basis = whitening(curvature)
        gradients = self.problem.gradients(theta, self.records, None) @ basis
        scores = gradients - gradients.mean(axis=0)
        axes = np.linalg.eigh(scores.T @ scores)[1]
        return scores @ axes, axes.T @ (basis.T @ (curvature @ theta))
