r"""How good a model is on the union of the records: fitness, its optimum, relative fitness.

This looks at all records at once, which no learner of a real study can do: it is for simulations,
for public records, and for an owner that compares a model with its own.

The optimum over the box is computed to rounding for squared loss, and otherwise to a relative
fitness of about 1e-9 or better: logistic loss is smooth, and hinge loss is a quadratic program
whose duality gap says when to stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from common.arrays import Matrix, Vector
from common.errors import InputError
from common.losses import Hinge, Loss, Regulariser
from common.terms import Records
from learner.algorithms.box_least_squares import box_least_squares

__all__ = ["Evaluation", "fitness", "optimum", "union"]


# Margins held at once when many models are evaluated: 32 MB.
LARGEST_BLOCK = 4_000_000
# The duality gap, relative to the fitness, at which the optimum for hinge loss is accepted.
HINGE_GAP = 1e-10
HINGE_STEPS = 200


def union(shards: Sequence[Records]) -> Records:
    """All owners' records in one table, in the order of the owners."""
    return Records(
        features=np.concatenate([shard.features for shard in shards]),
        targets=np.concatenate([shard.targets for shard in shards]),
    )


def fitness(theta: Vector, records: Records, *, loss: Loss, regulariser: Regulariser) -> float:
    r"""Fitness (2): :math:`f(\theta) = g(\theta) + \frac1n \sum \ell(\theta^\top x, y)`.

    >>> from common.losses import Squared
    >>> records = Records(features=np.array([[1.0], [2.0]]), targets=np.zeros(2))
    >>> g = Regulariser(coefficient=0.5)
    >>> fitness(np.array([1.0]), records, loss=Squared(), regulariser=g)
    3.0

    References: equation (2) of Farokhi et al. (2021).
    """
    mean_loss = loss.mean_value(theta, records.features, records.targets)
    return regulariser.value(theta) + mean_loss


def optimum(records: Records, *, loss: Loss, regulariser: Regulariser, theta_max: float) -> Vector:
    r"""The model of the box with the best fitness on these records, shape (p,).

    .. math:: \theta^* = \arg\min_{\|\theta\|_\infty \le \theta_{max}} f(\theta)

    Args:
      records: At least one record.
      loss: The loss.
      regulariser: The term g; its coefficient may be 0.
      theta_max: Half the side of the box of admissible models, L-infinity norm.

    Raises:
      InputError: There is no record.

    >>> from common.losses import Squared
    >>> records = Records(features=np.array([[1.0], [1.0]]), targets=np.array([1.0, 2.0]))
    >>> g = Regulariser(coefficient=0.0)
    >>> optimum(records, loss=Squared(), regulariser=g, theta_max=9.0).round(9)
    array([1.5])
    >>> optimum(records, loss=Squared(), regulariser=g, theta_max=1.0).round(9)
    array([1.])

    References: equation (1) of Farokhi et al. (2021).
    """
    if len(records) == 0:
        raise InputError("optimum: got no records; give at least one record")
    if loss.is_quadratic:
        return _squared_optimum(records, regulariser, theta_max)
    if isinstance(loss, Hinge):
        return _hinge_optimum(records, regulariser, theta_max)
    if loss.curvature is None:
        raise ValueError(f"optimum: {loss.name} loss has kinks; give it a solver of its own")
    return _smooth_optimum(records, loss, regulariser, theta_max)


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    r"""What is needed to tell the relative fitness :math:`\psi(\theta) = f(\theta)/f(\theta^*)-1`.

    The optimum on the union is computed once, when it is first needed; after that, squared loss
    needs the moments only, whatever the number of records.

    Args:
      shards: Each owner's records.
      loss: The loss.
      regulariser: The term g.
      theta_max: Half the side of the box of admissible models, L-infinity norm.

    >>> from common.losses import Squared
    >>> shard = Records(features=np.ones((2, 1)), targets=np.array([1.0, 3.0]))
    >>> evaluation = Evaluation(shards=[shard], loss=Squared(),
    ...     regulariser=Regulariser(coefficient=0.0), theta_max=9.0)
    >>> evaluation.relative_fitness(np.array([[2.0], [4.0]])).round(9)
    array([0., 4.])
    """

    shards: Sequence[Records]
    loss: Loss
    regulariser: Regulariser
    theta_max: float

    @cached_property
    def records(self) -> Records:
        """The union of the shards."""
        return union(self.shards)

    @cached_property
    def theta_optimal(self) -> Vector:
        """The optimum theta* on the union, shape (p,)."""
        return self._optimum(self.records)

    @cached_property
    def fitness_optimal(self) -> float:
        """The fitness f(theta*) on the union.

        Raises:
          InputError: It is 0, so that no fitness is relative to it.
        """
        value = self.fitness(self.theta_optimal)
        if not value > 0:
            raise InputError(
                f"fitness: its optimum is {value}, so relative fitness is not defined; "
                "use records that no model fits exactly"
            )
        return value

    def fitness(self, theta: Vector) -> float:
        """Fitness (2) of one model of shape (p,) on the union."""
        return fitness(theta, self.records, loss=self.loss, regulariser=self.regulariser)

    def relative_fitness(self, thetas: Matrix) -> Vector:
        """Relative fitness psi of many models at once.

        Args:
          thetas: Models, shape (..., p).

        Returns:
          Their relative fitness, shape (...), at least 0 inside the box up to rounding.
        """
        rows = np.reshape(thetas, (-1, thetas.shape[-1]))
        excess = self._squared_excess(rows) if self.loss.is_quadratic else self._excess(rows)
        return np.reshape(excess / self.fitness_optimal, thetas.shape[:-1])

    @cached_property
    def relative_fitness_alone(self) -> Vector:
        """Relative fitness on the union of each owner's own optimum theta_i*, shape (N,)."""
        return self.relative_fitness(np.stack([self._optimum(shard) for shard in self.shards]))

    def _optimum(self, records: Records) -> Vector:
        return optimum(
            records, loss=self.loss, regulariser=self.regulariser, theta_max=self.theta_max
        )

    def _squared_excess(self, thetas: Matrix) -> Vector:
        """f(theta) - f(theta*) around theta*, so that nothing cancels, shape (m,)."""
        hessian, slope = self._squared_expansion
        away = thetas - self.theta_optimal
        excess: Vector = 0.5 * np.einsum("mi,mi->m", away @ hessian, away) + away @ slope
        return excess

    @cached_property
    def _squared_expansion(self) -> tuple[Matrix, Vector]:
        """Hessian of f, and its gradient at theta*: 0 but where the box holds theta* back."""
        A, b = _squared_moments(self.records, self.regulariser)
        at_bound = np.abs(self.theta_optimal) >= self.theta_max * (1 - 1e-9)
        return 2.0 * A, np.where(at_bound, 2.0 * (A @ self.theta_optimal - b), 0.0)

    def _excess(self, thetas: Matrix) -> Vector:
        """f(theta) - f(theta*) for any loss, a block of models at a time, shape (m,)."""
        x, y = self.records.features, self.records.targets
        blocks = np.array_split(thetas, 1 + len(thetas) * len(y) // LARGEST_BLOCK)
        losses = [self.loss.values(block @ x.T, y).mean(axis=1) for block in blocks]
        g = self.regulariser.coefficient * np.sum(thetas**2, axis=1)
        excess: Vector = g + np.concatenate(losses) - self.fitness_optimal
        return excess


def _squared_moments(records: Records, regulariser: Regulariser) -> tuple[Matrix, Vector]:
    """A and b of f = theta'A theta - 2 b'theta + constant."""
    x, y = records.features, records.targets
    ridge = regulariser.coefficient * np.eye(x.shape[1])
    return x.T @ x / len(records) + ridge, y @ x / len(records)


def _squared_optimum(records: Records, regulariser: Regulariser, theta_max: float) -> Vector:
    """The closed form where it lies in the box, else the active-set solution."""
    A, b = _squared_moments(records, regulariser)
    return box_least_squares(A, b, theta_max=theta_max)


def _smooth_optimum(
    records: Records, loss: Loss, regulariser: Regulariser, theta_max: float
) -> Vector:
    """Quasi-Newton in the box with the exact gradient."""
    x, y = records.features, records.targets

    def value_and_gradient(theta: Vector) -> tuple[float, Vector]:
        value = fitness(theta, records, loss=loss, regulariser=regulariser)
        return value, regulariser.gradient(theta) + loss.mean_gradient(theta, x, y)

    p = x.shape[1]
    from scipy.optimize import minimize  # noqa: PLC0415 (training starts without it)

    solution = minimize(
        value_and_gradient,
        np.zeros(p),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-theta_max, theta_max)] * p,
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-11, "maxcor": 30},
    )
    return np.asarray(solution.x, dtype=np.float64)


def _hinge_optimum(records: Records, regulariser: Regulariser, theta_max: float) -> Vector:
    r"""A primal-dual interior point of the quadratic program with slack variables xi.

    Minimise :math:`n c\,\theta^\top\theta + \sum_r \xi_r` with :math:`\xi \ge 0`,
    :math:`\xi \ge 1 - Z\theta` (Z has the rows y x) and theta in the box. ``alpha`` are the
    multipliers of the margins, 1 - alpha those of xi >= 0, ``gamma`` those of the box.
    """
    n, p = records.features.shape
    Z = records.targets[:, None] * records.features
    curvature = n * regulariser.strong_convexity
    theta, xi, alpha, gamma = np.zeros(p), np.full(n, 2.0), np.full(n, 0.5), np.ones((2, p))
    for _ in range(HINGE_STEPS):
        lower, upper = _hinge_bounds(Z, alpha, theta, regulariser.coefficient, theta_max)
        if upper - lower <= HINGE_GAP * upper:
            break
        margin = xi - 1.0 + Z @ theta
        room = np.stack([theta_max - theta, theta_max + theta])
        beta = 1.0 - alpha
        mu = 0.1 * (margin @ alpha + xi @ beta + np.sum(room * gamma)) / (2 * (n + p))
        # Newton's equations of the perturbed optimality conditions, reduced to theta.
        d = 1.0 / (margin + alpha * xi / beta)
        pull = d * (mu - margin * alpha - alpha * (mu - xi * beta) / beta)
        push = mu / room - gamma
        residual = curvature * theta - alpha @ Z + gamma[0] - gamma[1]
        hessian = (Z.T * (d * alpha)) @ Z + np.diag(curvature + np.sum(gamma / room, axis=0))
        d_theta = np.linalg.solve(hessian, pull @ Z - residual - push[0] + push[1])
        d_alpha = pull - d * alpha * (Z @ d_theta)
        d_xi = (mu - xi * beta + xi * d_alpha) / beta
        toward = np.stack([d_theta, -d_theta])
        d_gamma = push + gamma / room * toward
        step = _longest_step(
            (margin, d_xi + Z @ d_theta), (xi, d_xi), (room, -toward),
            (alpha, d_alpha), (beta, -d_alpha), (gamma, d_gamma),
        )  # fmt: skip
        theta, xi = theta + step * d_theta, xi + step * d_xi
        alpha, gamma = alpha + step * d_alpha, gamma + step * d_gamma
    return theta


def _hinge_bounds(
    Z: Matrix, alpha: Vector, theta: Vector, coefficient: float, theta_max: float
) -> tuple[float, float]:
    """A lower bound of the best fitness, by duality from 0 <= alpha <= 1, and theta's fitness."""
    n = len(alpha)
    pull = alpha @ Z / n
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.clip(np.nan_to_num(pull / (2 * coefficient)), -theta_max, theta_max)
    lower = np.mean(alpha) + coefficient * inner @ inner - pull @ inner
    upper = coefficient * theta @ theta + np.mean(np.maximum(0.0, 1.0 - Z @ theta))
    return float(lower), float(upper)


def _longest_step(*pairs: tuple[NDArray[np.float64], NDArray[np.float64]]) -> float:
    """The longest step up to 1 that keeps every (value, direction) pair positive, shortened."""
    ratios = [1.0 / 0.995] + [float(np.max(-change / value)) for value, change in pairs]
    return 1.0 / max(1.0, max(ratios) / 0.995)
