r"""What is learnt: a loss, a regulariser and a box, and what follows from them.

The optimum over the box is computed to rounding for squared loss, and otherwise to a relative
fitness of about 1e-9 or better: logistic loss is smooth, and hinge loss is a quadratic program
whose duality gap says when to stop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from common.arrays import Flags, Matrix, Vector
from common.blas import one_blas_thread
from common.domain import Domain
from common.errors import InputError
from common.gradient_bounds import domain_gradient_bound
from common.hinge_program import least_hinge
from common.losses import Hinge, Loss, Regulariser
from common.terms import Records
from learner.algorithms.box_least_squares import box_least_squares

# A coordinate is at an edge of the box if it is as near as this: optima are found to rounding.
EDGE = 1.0 - 1e-9
# A smooth optimum is searched anew from where the search stopped while the box leaves it a longer
# way downhill, so many times at most; nearly always one search ends far below it.
STEEPEST, MOST_STARTS = 1e-6, 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    r"""Minimise fitness (2), :math:`f(\theta) = g(\theta) + \frac1n \sum \ell(\theta^\top x, y)`.

    Args:
      loss: The loss.
      regulariser: The term g; its coefficient may be 0.
      theta_max: Half the side of the box of admissible models, L-infinity norm.

    >>> from common.losses import Squared
    >>> problem = Problem(loss=Squared(), regulariser=Regulariser(coefficient=0.5),
    ...     theta_max=9.0)
    >>> records = Records(features=np.array([[1.0], [2.0]]), targets=np.zeros(2))
    >>> problem.fitness(np.array([1.0]), records)
    3.0

    References: equations (1) and (2) of Farokhi et al. (2021).
    """

    loss: Loss
    regulariser: Regulariser
    theta_max: float

    def fitness(self, theta: Vector, records: Records) -> float:
        """Fitness (2) of one model of shape (p,) on these records."""
        mean_loss = self.loss.mean_value(theta, records.features, records.targets)
        return self.regulariser.value(theta) + mean_loss

    def optimum(self, records: Records) -> Vector:
        r"""The model of the box with the best fitness on these records, shape (p,).

        .. math:: \theta^* = \arg\min_{\|\theta\|_\infty \le \theta_{max}} f(\theta)

        Raises:
          InputError: There is no record.

        >>> from common.losses import Squared
        >>> records = Records(features=np.array([[1.0], [1.0]]), targets=np.array([1.0, 2.0]))
        >>> g = Regulariser(coefficient=0.0)
        >>> [Problem(loss=Squared(), regulariser=g, theta_max=box).optimum(records).round(9)
        ...     for box in (9.0, 1.0)]
        [array([1.5]), array([1.])]
        """
        if len(records) == 0:
            raise InputError("optimum: got no records; give at least one record")
        if self.loss.is_quadratic:
            x, y = records.features, records.targets
            return self.optimum_of(x.T @ x / len(records), y @ x / len(records))
        if isinstance(self.loss, Hinge):
            rows: Matrix = records.targets[:, None] * records.features
            weight, box = self.regulariser.coefficient, self.theta_max
            return least_hinge(rows, np.ones(len(records)), weight=weight, box=box)
        if self.loss.curvature is None:
            raise ValueError(f"optimum: {self.loss.name} loss has kinks; give it its own solver")
        return _smooth_optimum(records, self)

    def slopes(self, theta: Vector, records: Records, clip: float | None) -> Vector:
        """The s of each record's gradient s x, scaled down to L1 norm ``clip``, shape (n,)."""
        slopes = self.loss.slopes(records.features @ theta, records.targets)
        if clip is None:
            return slopes
        with np.errstate(divide="ignore"):
            largest = clip / np.abs(records.features).sum(axis=1)
        return np.clip(slopes, -largest, largest)

    def gradients(self, theta: Vector, records: Records, clip: float | None) -> Matrix:
        """Each record's gradient, scaled down to L1 norm ``clip``, shape (n, p)."""
        return self.slopes(theta, records, clip)[:, None] * records.features

    def curvatures(self, theta: Vector, records: Records, clip: float | None) -> Vector:
        """The second derivative of each record's loss, 0 where the clip scales it down, (n,)."""
        margins = records.features @ theta
        curvatures = self.loss.curvatures(margins, records.targets)
        if clip is None:
            return curvatures
        lengths = np.abs(self.loss.slopes(margins, records.targets))
        lengths *= np.abs(records.features).sum(axis=1)
        return np.where(lengths <= clip, curvatures, 0.0)

    def curvature(self, theta: Vector, records: Records) -> Matrix:
        """The second derivative of the fitness, with g's, shape (p, p)."""
        each, n = self.curvatures(theta, records, None), len(records)
        ridge = self.regulariser.strong_convexity * np.eye(theta.size)
        return (records.features * each[:, None]).T @ records.features / n + ridge

    def outwards(self, theta: Vector, records: Records) -> Vector:
        """The gradient of the fitness at the edges of the box, 0 within it, shape (p,)."""
        mean = self.slopes(theta, records, None) @ records.features / len(records)
        return np.where(self.at_edge(theta), mean + self.regulariser.gradient(theta), 0.0)

    def at_edge(self, theta: Vector) -> Flags:
        """Which coordinates of a model lie at an edge of the box, to rounding, shape (p,)."""
        return np.abs(theta) >= self.theta_max * EDGE

    def optimum_of(self, gram: Matrix, cross: Vector) -> Vector:
        """The same for squared loss, from the records' mean xx' and yx: in the box to rounding.

        Args:
          gram: X'X/n, shape (p, p).
          cross: X'y/n, shape (p,).
        """
        ridge = self.regulariser.coefficient * np.eye(len(gram))
        return box_least_squares(gram + ridge, cross, theta_max=self.theta_max)

    def gradient_bound(self, domain: Domain) -> float:
        """Xi: the largest L1 norm of an admissible record's gradient in the box."""
        return domain_gradient_bound(self.loss, domain, theta_max=self.theta_max)


def squared_moments(records: Records, regulariser: Regulariser) -> tuple[Matrix, Vector]:
    """A (p, p) and b (p,) of f = theta'A theta - 2 b'theta + constant, for squared loss.

    >>> records = Records(features=np.ones((2, 1)), targets=np.array([1.0, 2.0]))
    >>> squared_moments(records, Regulariser(coefficient=0.5))
    (array([[1.5]]), array([1.5]))
    """
    x, y = records.features, records.targets
    ridge = regulariser.coefficient * np.eye(x.shape[1])
    return x.T @ x / len(records) + ridge, y @ x / len(records)


def _smooth_optimum(records: Records, problem: Problem) -> Vector:
    """Quasi-Newton in the box with the exact gradient."""
    x, y, box = records.features, records.targets, problem.theta_max

    def value_and_gradient(theta: Vector) -> tuple[float, Vector]:
        slope = problem.loss.mean_gradient(theta, x, y)
        return problem.fitness(theta, records), problem.regulariser.gradient(theta) + slope

    from scipy.optimize import minimize  # noqa: PLC0415 (training starts without it)

    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-16, "gtol": 1e-11, "maxcor": 30}
    theta: Vector = np.zeros(x.shape[1])
    with one_blas_thread():
        # At an edge a step may come to nothing and be taken for the end, however steep it is
        # there: a new start from that place forgets the curvature that it came from.
        for _ in range(MOST_STARTS):
            solution = minimize(
                value_and_gradient,
                theta,
                jac=True,
                method="L-BFGS-B",
                bounds=[(-box, box)] * len(theta),
                options=options,
            )
            theta = np.asarray(solution.x, dtype=np.float64)
            downhill = theta - value_and_gradient(theta)[1]
            if np.abs(np.clip(downhill, -box, box) - theta).max() <= STEEPEST:
                break
    return theta
