r"""The best model for hinge loss: a quadratic program, whose duality gap says when to stop."""

from __future__ import annotations

import numpy as np

from common.arrays import Matrix, Vector

# The duality gap, relative to the value, at which a model is accepted.
GAP = 1e-10
# What the program itself has left is no more than rounding, whatever the bounds still say.
ROUNDING = 1e-14
STEPS = 200
# A step aims at this share of what is left to the walls.
CENTER = 0.1


def least_hinge(Z: Matrix, needed: Vector, *, weight: float, box: float) -> Vector:
    r"""The theta of the box with the least mean lack of margin, and a weight on its length.

    .. math:: \arg\min_{\|\theta\|_\infty \le b}\; w\,\theta^\top\theta
              + \frac1n \sum_r \max(0, m_r - z_r^\top\theta)

    A primal-dual interior point with slack variables xi: minimise
    :math:`n w\,\theta^\top\theta + \sum_r \xi_r` with :math:`\xi \ge 0` and
    :math:`\xi \ge m - Z\theta`. It takes n p^2 operations a step and a few dozen steps.

    Args:
      Z: Features times classes, y x in a row for each record, shape (n, p).
      needed: The margins m at which nothing is lost, shape (n,); 1 for hinge loss around 0.
      weight: The weight w, at least 0.
      box: Half the side b of the box.

    References: Boyd and Vandenberghe, Convex Optimization (2004), section 11.7.

    >>> least_hinge(np.array([[1.0], [2.0]]), np.ones(2), weight=0.01, box=9.0).round(6)
    array([1.])
    """
    theta, value, is_best = _walked(Z, needed, weight=weight, box=box, careful=False)
    if not is_best:
        # Where a few records are far longer than the others, the quick way may end at a wall.
        other, others_value, _ = _walked(Z, needed, weight=weight, box=box, careful=True)
        theta = other if others_value < value else theta
    return np.clip(theta, -box, box)


def _walked(
    Z: Matrix, needed: Vector, *, weight: float, box: float, careful: bool
) -> tuple[Vector, float, bool]:
    """The model at the end of one way, its value, and whether no model is better.

    ``alpha`` are the multipliers of the margins, ``beta`` = 1 - alpha those of xi >= 0, ``gamma``
    those of the box. What must stay above 0 is kept as such: a difference of two numbers that are
    nearly equal is 0. The careful way follows a step that was cut short by one away from the walls.
    """
    n, p = Z.shape
    curvature = 2.0 * n * weight
    theta, gamma, room = np.zeros(p), np.ones((2, p)), np.full((2, p), box)
    xi, alpha, beta = np.maximum(needed, 0.0) + 1.0, np.full(n, 0.5), np.full(n, 0.5)
    margin = xi - needed
    step = 1.0
    for _ in range(STEPS):
        lower, upper = _bounds(Z, needed, alpha, theta, weight=weight, box=box)
        left = margin @ alpha + xi @ beta + np.sum(room * gamma)
        if upper - lower <= GAP * upper or left <= ROUNDING * n * upper:
            return theta, upper, True
        center = max(CENTER, (1.0 - step) ** 2) if careful else CENTER
        # Newton's equations of the perturbed optimality conditions, reduced to theta.
        mu = center * left / (2 * (n + p))
        d = 1.0 / (margin + alpha * xi / beta)
        pull = d * (mu - margin * alpha - alpha * (mu - xi * beta) / beta)
        push = mu / room - gamma
        residual = curvature * theta - alpha @ Z + gamma[0] - gamma[1]
        hessian = (Z.T * (d * alpha)) @ Z + np.diag(curvature + np.sum(gamma / room, axis=0))
        # Without a weight several models may be best: then nothing but this curves between them.
        hessian[np.diag_indices(p)] *= 1.0 + ROUNDING
        d_theta = np.linalg.solve(hessian, pull @ Z - residual - push[0] + push[1])
        d_alpha = pull - d * alpha * (Z @ d_theta)
        d_xi = (mu - xi * beta + xi * d_alpha) / beta
        toward = np.stack([d_theta, -d_theta])
        d_gamma = push + gamma / room * toward
        pairs = (
            (margin, d_xi + Z @ d_theta), (xi, d_xi), (room, -toward),
            (alpha, d_alpha), (beta, -d_alpha), (gamma, d_gamma),
        )  # fmt: skip
        step = _longest_step(*pairs)
        theta = theta + step * d_theta
        margin, xi, room, alpha, beta, gamma = (value + step * change for value, change in pairs)
    return theta, _value(Z, needed, theta, weight), False


def _bounds(
    Z: Matrix, needed: Vector, alpha: Vector, theta: Vector, *, weight: float, box: float
) -> tuple[float, float]:
    """A lower bound of the least value, by duality from 0 <= alpha <= 1, and theta's value."""
    n = len(alpha)
    pull = alpha @ Z / n
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.clip(np.nan_to_num(pull / (2 * weight)), -box, box)
    lower = np.mean(alpha * needed) + weight * inner @ inner - pull @ inner
    return float(lower), _value(Z, needed, theta, weight)


def _value(Z: Matrix, needed: Vector, theta: Vector, weight: float) -> float:
    """What is made as small as it can be."""
    return float(weight * theta @ theta + np.mean(np.maximum(0.0, needed - Z @ theta)))


def _longest_step(*pairs: tuple[Vector, Vector]) -> float:
    """The longest step up to 1 that keeps every (value, direction) pair positive, shortened."""
    ratios = [1.0 / 0.995] + [float(np.max(-change / value)) for value, change in pairs]
    return 1.0 / max(1.0, max(ratios) / 0.995)
