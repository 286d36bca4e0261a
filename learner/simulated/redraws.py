r"""What the public records could also have been, and the best model that goes with it.

The public records differ by chance from what they were drawn from. Rubin's bootstrap draws each
record's weight at random, so that their best model varies around theirs, :math:`\theta_0`, as
:math:`\theta_0` itself varies around the true one. But then it is larger than the true one by the
chance in both: where records tell little, most of a model of theirs is chance, and what begins at 0
looks worse than it is. Steps that lean on the public model lean on that chance, too, so that they
begin at the part of it that is not (:attr:`learner.simulated.groups.PublicGroups.start`).

In coordinates in which the curvature at :math:`\theta_0` is I and chance is independent, of
variance :math:`v_j`, a world's true coordinate has the mean and variance that it has once
:math:`z_j` of :math:`\theta_0` is seen, if most are no larger than chance and some far larger. With
the horseshoe for that, normal of variance :math:`\lambda_j^2 v_j` and :math:`\lambda_j`
half-Cauchy, :math:`k_j = \lambda_j^2/(1 + \lambda_j^2)` and :math:`s_j = z_j^2/v_j`,

.. math:: \mathrm{E}\,z_j^* = \mathrm{E}(k_j)\, z_j, \qquad
          \mathrm{Var}\,z_j^* = \bigl(\mathrm{E}(k_j) + s_j \mathrm{Var}(k_j)\bigr)\, v_j,
          \qquad p(k_j) \propto k_j^{-1/2}\, e^{k_j s_j/2}

Of a coordinate of five deviations 92 % are kept. One of 0 is not taken for 0, else nothing would be
left to learn of it.

References: Rubin (1981), The Bayesian bootstrap. Carvalho, Polson and Scott (2010), The horseshoe
estimator for sparse signals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from common.arrays import Matrix, Vector
from common.terms import Records
from learner.algorithms.shrinkage import whitening
from learner.simulated.problem import Problem

# The least that a redrawn record weighs, where the mean is 1.
LEAST_WEIGHT = 1e-9
TINY = 1e-300
# Angles by whose sum an integral is computed, and the square for which they are too coarse.
ANGLES, FAR = 1000, 1e4


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
    [-0.07, 4.93, -0.02]
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
        n = len(self.records)
        weights = 1.0 + np.sqrt(n / self._freedom) * (rng.standard_exponential(n) - 1.0)
        if self.problem.loss.curvature is not None:
            weights += self._tilt(weights)
        weights = np.maximum(weights, LEAST_WEIGHT)
        return weights / weights.mean()

    def _tilt(self, weights: Vector) -> Vector:
        """What moves these records' best model to where it should be, to first order, (n,)."""
        # At an edge of the box the model is not what its records say; that of no box is.
        known, model = self._coordinates, self._coordinates.of(self._unbound)
        with np.errstate(over="ignore"):  # of records without chance
            told = model**2 * (self._freedom / known.variances)
        taken, wider = _taken(told)
        chance = (weights - 1.0) @ known.scores / len(weights)
        wanted = np.sqrt(1.0 - taken + wider) * chance + taken * model
        return known.scores @ ((wanted - chance) / known.variances)

    @cached_property
    def _unbound(self) -> Vector:
        """The model if there were no box, to first order, shape (p,)."""
        return self.theta - self._coordinates.basis @ self._coordinates.pull

    @property
    def _freedom(self) -> int:
        """The records beyond those that p parameters fit."""
        return max(len(self.records) - self.theta.size, 1)

    @cached_property
    def _coordinates(self) -> _Coordinates:
        """Where curvature is I and chance independent."""
        records, theta, problem = self.records, self.theta, self.problem
        curvature = problem.curvature(theta, records)
        white = whitening(curvature)
        scores = problem.gradients(theta, records, None) @ white
        scores -= scores.mean(axis=0)
        axes = np.linalg.eigh(scores.T @ scores)[1]
        outwards = problem.outwards(theta, records)
        return _Coordinates(
            curvature=curvature,
            basis=white @ axes,
            scores=scores @ axes,
            pull=axes.T @ (white.T @ outwards),
        )


def _taken(told: Vector) -> tuple[Vector, Vector]:
    r"""What of coordinates is not kept, :math:`1 - \mathrm{E}(k_j)`; and what that varies by.

    As k is the square of the sine of an angle whose tangent is half-Cauchy, angles are uniform
    before :math:`z_j` is seen, and as likely as it is after that. Far beyond chance
    :math:`1 - k_j` is exponential, of mean :math:`2/s_j`.

    Args:
      told: The coordinates' squares in variances of chance, :math:`s_j`, shape (d,).

    Returns:
      That, and :math:`s_j \mathrm{Var}(k_j)`, shapes (d,).

    >>> [each.round(3).tolist() for each in _taken(np.array([0.0, 4.0, 25.0, np.inf]))]
    [[0.667, 0.469, 0.084, 0.0], [0.0, 0.402, 0.18, 0.0]]
    """
    away = np.cos((np.arange(ANGLES) + 0.5) * (np.pi / 2 / ANGLES)) ** 2
    near = np.minimum(told, FAR)
    likely = np.sqrt(away) * np.exp(-0.5 * np.multiply.outer(near, away))
    likely /= likely.sum(axis=1, keepdims=True)
    mean = likely @ away
    spread = near * (likely @ away**2 - mean**2)
    beyond = np.maximum(told, FAR)
    return np.where(told > FAR, 2.0 / beyond, mean), np.where(told > FAR, 4.0 / beyond, spread)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Coordinates:
    """Coordinates in which curvature at the model is I and chance is independent.

    Args:
      curvature: That of the records, with g, shape (p, p).
      basis: The coordinates' directions, shape (p, d).
      scores: Each record's gradient less their mean, shape (n, d).
      pull: What the records would have a model at an edge of the box do, shape (d,).
    """

    curvature: Matrix
    basis: Matrix
    scores: Matrix
    pull: Vector

    def of(self, theta: Vector) -> Vector:
        """A model in these coordinates, shape (d,)."""
        return self.basis.T @ (self.curvature @ theta)

    @cached_property
    def variances(self) -> Vector:
        """Those of one record's gradient, shape (d,)."""
        return np.maximum(np.mean(self.scores**2, axis=0), TINY)
