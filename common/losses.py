r"""The three losses of the papers, as functions of the margin :math:`z = \theta^\top x`.

Every model here is linear in its parameters, so one record's gradient is

.. math:: \nabla_\theta \ell(\theta^\top x, y) = s(z, y)\, x

with the scalar *slope* :math:`s = \partial \ell / \partial z`. Its L1 norm is
:math:`|s|\,\|x\|_1`: that is all that sensitivity and clipping need to know.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from common.arrays import Matrix, Vector

__all__ = ["LOSSES", "Domain", "Loss", "Regulariser", "domain_gradient_bound"]


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Public bounds that every admissible record keeps, so that one record's influence is bounded.

    They come from public records or from common knowledge, never from a private shard.

    Args:
      feature_bound: Largest absolute value of each feature, shape (p,), in feature units,
        the constant feature included.
      target_bound: Largest absolute target, in target units.
      l1_radius: Optional bound on the L1 norm of a record's features, to which longer
        records are scaled down.
    """

    feature_bound: Vector
    target_bound: float
    l1_radius: float | None = None

    def __post_init__(self) -> None:
        """Refuse bounds that bound nothing."""
        if not (np.all(np.isfinite(self.feature_bound)) and np.all(self.feature_bound >= 0)):
            raise ValueError("feature_bound: expected finite values of at least 0")
        if not 0 <= self.target_bound < math.inf:
            raise ValueError(f"target_bound: got {self.target_bound}, expected a finite value >= 0")
        if self.l1_radius is not None and not 0 < self.l1_radius < math.inf:
            raise ValueError(f"l1_radius: got {self.l1_radius}, expected a finite value > 0")

    @property
    def num_features(self) -> int:
        """The number p of features."""
        return int(self.feature_bound.shape[0])

    @property
    def feature_l1_bound(self) -> float:
        """Largest L1 norm of one record's features.

        >>> Domain(feature_bound=np.array([1.0, 2.0]), target_bound=1.0).feature_l1_bound
        3.0
        """
        box = float(np.sum(self.feature_bound))
        return box if self.l1_radius is None else min(box, self.l1_radius)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A convex loss of the margin and the target.

    Args:
      name: Its name in settings and on the wire.
      values: (z, y) -> loss of each record, shapes (n,), (n,) -> (n,).
      slopes: (z, y) -> its derivative in z, a sub-gradient where there is a kink.
      slope_bound: (largest |z|, largest |y|) -> largest |slope|, attained.
      curvature: Largest second derivative in z; None where the loss has kinks.
      targets: The targets it is defined for, or None for all real numbers.
    """

    name: str
    values: Callable[[Vector, Vector], Vector]
    slopes: Callable[[Vector, Vector], Vector]
    slope_bound: Callable[[float, float], float]
    curvature: float | None
    targets: tuple[float, ...] | None

    def mean_value(self, theta: Vector, features: Matrix, targets: Vector) -> float:
        r"""Mean loss :math:`\frac1n\sum \ell(\theta^\top x, y)` of the records.

        >>> LOSSES["squared"].mean_value(np.array([1.0]), np.array([[1.0], [2.0]]), np.zeros(2))
        2.5
        """
        return float(np.mean(self.values(features @ theta, targets)))

    def mean_gradient(self, theta: Vector, features: Matrix, targets: Vector) -> Vector:
        r"""Query (3): :math:`\frac1n\sum \nabla_\theta\ell(\theta^\top x, y)`, shape (p,).

        >>> LOSSES["squared"].mean_gradient(np.array([1.0]), np.array([[1.0], [2.0]]), np.zeros(2))
        array([5.])
        """
        slopes = self.slopes(features @ theta, targets)
        gradient: Vector = slopes @ features / features.shape[0]
        return gradient


def _squared_values(z: Vector, y: Vector) -> Vector:
    return (z - y) ** 2


def _squared_slopes(z: Vector, y: Vector) -> Vector:
    return 2.0 * (z - y)


def _squared_slope_bound(z_bound: float, y_bound: float) -> float:
    return 2.0 * (z_bound + y_bound)


def _hinge_values(z: Vector, y: Vector) -> Vector:
    return np.maximum(0.0, 1.0 - y * z)


def _hinge_slopes(z: Vector, y: Vector) -> Vector:
    return np.where(y * z < 1.0, -y, 0.0)


def _hinge_slope_bound(z_bound: float, y_bound: float) -> float:
    del z_bound
    return y_bound


def _logistic_values(z: Vector, y: Vector) -> Vector:
    return np.logaddexp(0.0, -y * z)


def _logistic_slopes(z: Vector, y: Vector) -> Vector:
    # 1 / (1 + exp(yz)) through tanh, which cannot overflow.
    return -y * (0.5 - 0.5 * np.tanh(0.5 * y * z))


def _logistic_slope_bound(z_bound: float, y_bound: float) -> float:
    return y_bound * (0.5 + 0.5 * math.tanh(0.5 * y_bound * z_bound))


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss(
            name="squared",
            values=_squared_values,
            slopes=_squared_slopes,
            slope_bound=_squared_slope_bound,
            curvature=2.0,
            targets=None,
        ),
        Loss(
            name="hinge",
            values=_hinge_values,
            slopes=_hinge_slopes,
            slope_bound=_hinge_slope_bound,
            curvature=None,
            targets=(-1.0, 1.0),
        ),
        Loss(
            name="logistic",
            values=_logistic_values,
            slopes=_logistic_slopes,
            slope_bound=_logistic_slope_bound,
            curvature=0.25,
            targets=(-1.0, 1.0),
        ),
    )
}


def domain_gradient_bound(loss: Loss, domain: Domain, *, theta_max: float) -> float:
    r"""Largest L1 norm of one record's gradient over the whole public domain.

    With :math:`B = \max \|x\|_1`, and because :math:`|\theta^\top x| \le \theta_{max} \|x\|_1`
    holds with equality at a corner of the box,

    .. math:: \Xi = \sup_{\theta, x, y} |s(\theta^\top x, y)|\,\|x\|_1
              = s_{max}(\theta_{max} B, Y)\,B

    where the slope bound grows with its arguments, so the supremum sits at :math:`\|x\|_1 = B`.
    For squared loss this is :math:`2(\theta_{max}B + Y)B`, for hinge :math:`B`, for
    logistic :math:`B/(1+e^{-\theta_{max}B})`. It is attained, hence tight.

    Args:
      loss: One of ``LOSSES``.
      domain: The public bounds.
      theta_max: Half the side of the box that theta must keep, L-infinity norm.

    Returns:
      The bound, in gradient units, L1 norm.

    Raises:
      ValueError: ``theta_max`` is not positive and finite.

    >>> d = Domain(feature_bound=np.array([1.0, 2.0]), target_bound=4.0)
    >>> domain_gradient_bound(LOSSES["squared"], d, theta_max=0.5)
    33.0

    References: Assumption 2 of Farokhi et al. (2021).
    """
    if not 0 < theta_max < math.inf:
        raise ValueError(f"theta_max: got {theta_max}, expected a finite value > 0")
    b = domain.feature_l1_bound
    target_bound = domain.target_bound if loss.targets is None else max(map(abs, loss.targets))
    return loss.slope_bound(theta_max * b, target_bound) * b


@dataclass(frozen=True, kw_only=True)
class Regulariser:
    r"""The term :math:`g(\theta) = c\,\theta^\top\theta` of the fitness (2).

    >>> g = Regulariser(coefficient=0.5)
    >>> g.value(np.array([1.0, 2.0])), g.strong_convexity
    (2.5, 1.0)
    """

    coefficient: float

    def __post_init__(self) -> None:
        """Refuse a coefficient that is negative or not a number."""
        if not 0 <= self.coefficient < math.inf:
            raise ValueError(f"coefficient: got {self.coefficient}, expected a finite value >= 0")

    def value(self, theta: Vector) -> float:
        """g(theta)."""
        return self.coefficient * float(theta @ theta)

    def gradient(self, theta: Vector) -> Vector:
        """Gradient 2 c theta, shape of theta."""
        return 2.0 * self.coefficient * theta

    @property
    def strong_convexity(self) -> float:
        """The constant sigma = 2 c."""
        return 2.0 * self.coefficient
