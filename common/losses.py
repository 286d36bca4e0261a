r"""The losses, as functions of the margin :math:`z = \theta^\top x`.

Every model here is linear in its parameters, so one record's gradient is

.. math:: \nabla_\theta \ell(\theta^\top x, y) = s(z, y)\, x

with the scalar *slope* :math:`s = \partial \ell / \partial z`. Its L1 norm is
:math:`|s|\,\|x\|_1`: that is all that sensitivity and clipping need to know.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Protocol

import numpy as np

from common.arrays import Matrix, Vector

# Of normal numbers: their deviation over the median of their absolute values.
DEVIATION_PER_MEDIAN = 1.4826
# The delta, in deviations, at which Huber loss is 95 % as efficient as squared loss.
EFFICIENT_DELTA = 1.345
# Between them exp(-t) is computed in one way; outside it is 1 or 0 to 1e-15.
_LEAST_EXPONENT, _LARGEST_EXPONENT = 1e-15, 40.0


@dataclass(frozen=True)
class Loss(ABC):
    """A convex loss of the margin and the target; its parameters are its fields.

    Attributes:
      name: Its name in settings and on the wire.
      targets: The targets it is defined for, or None for all real numbers.
      curvature: Largest second derivative in z; None where the loss has kinks.
      is_quadratic: Whether it is (z - y)^2, of which second moments say everything.
      counts_margins: Whether ``rounded_size`` grows as fast as a slope may with the margin, so that
        the rounding of a margin is counted, however it was rounded.
    """

    name: ClassVar[str]
    targets: ClassVar[tuple[float, ...] | None] = None
    curvature: ClassVar[float | None]
    is_quadratic: ClassVar[bool] = False
    counts_margins: ClassVar[bool] = False

    @abstractmethod
    def values(self, z: Matrix, y: Vector) -> Matrix:
        """The loss of each record, shapes (..., n), (n,) -> (..., n)."""

    @abstractmethod
    def slopes(self, z: Matrix, y: Vector) -> Matrix:
        """Its derivative in z, a sub-gradient where there is a kink, shape of z."""

    def curvatures(self, z: Matrix, y: Vector) -> Matrix:
        """Its second derivative in z, from 0 to ``curvature``, shape of z.

        Raises:
          ValueError: The loss has kinks, and no curvature.
        """
        raise ValueError(f"{self.name} loss has no curvature")

    @abstractmethod
    def slope_bound(self, z_bound: float, y_bound: float) -> float:
        """(Largest margin, largest target) -> largest slope, in size; attained, growing in both."""

    @abstractmethod
    def rounded_size(self, z_bound: float, y_bound: float) -> float:
        """Size of the numbers whose rounding a computed slope carries.

        One operation on the margin moves the slope by at most a unit roundoff of it beyond what
        the slope bound allows. It is never below the slope bound.
        """

    @classmethod
    def has_classes(cls) -> bool:
        """Whether targets must be -1 and +1."""
        return cls.targets is not None

    @classmethod
    def example(cls) -> Loss:
        """One such loss, where any parameters will do: to attack it, to test it."""
        return cls()

    @classmethod
    def fitted(cls, residuals: Vector) -> Loss:
        """The loss whose parameters go with public residuals of least squares, shape (n,).

        Raises:
          ValueError: They say nothing of its parameters.
        """
        del residuals
        return cls()

    def as_terms(self) -> dict[str, Any]:
        """Name and parameters as terms hold them: what :func:`loss_of` reads.

        >>> Squared().as_terms()
        {'loss': 'squared'}
        """
        return {"loss": self.name} | asdict(self)

    def mean_value(self, theta: Vector, features: Matrix, targets: Vector) -> float:
        r"""Mean loss :math:`\frac1n\sum \ell(\theta^\top x, y)` of the records.

        >>> Squared().mean_value(np.array([1.0]), np.array([[1.0], [2.0]]), np.zeros(2))
        2.5
        """
        return float(np.mean(self.values(features @ theta, targets)))

    def mean_gradient(self, theta: Vector, features: Matrix, targets: Vector) -> Vector:
        r"""Query (3): :math:`\frac1n\sum \nabla_\theta\ell(\theta^\top x, y)`, shape (p,).

        >>> Squared().mean_gradient(np.array([1.0]), np.array([[1.0], [2.0]]), np.zeros(2))
        array([5.])
        """
        slopes = self.slopes(features @ theta, targets)
        gradient: Vector = slopes @ features / features.shape[0]
        return gradient


@dataclass(frozen=True)
class Squared(Loss):
    """Least squares, :math:`(z - y)^2`."""

    name = "squared"
    curvature = 2.0
    is_quadratic = True
    counts_margins = True

    def values(self, z: Matrix, y: Vector) -> Matrix:
        """The squared residual."""
        return (z - y) ** 2

    def slopes(self, z: Matrix, y: Vector) -> Matrix:
        """Twice the residual."""
        return 2.0 * (z - y)

    def curvatures(self, z: Matrix, y: Vector) -> Matrix:
        """2 everywhere."""
        return np.full_like(z, 2.0)

    def slope_bound(self, z_bound: float, y_bound: float) -> float:
        """Twice the largest residual."""
        return 2.0 * (z_bound + y_bound)

    def rounded_size(self, z_bound: float, y_bound: float) -> float:
        """The residual is as large as the slope."""
        return self.slope_bound(z_bound, y_bound)


@dataclass(frozen=True)
class Hinge(Loss):
    r"""Support vector machine, :math:`\max(0, 1 - yz)` for classes y of -1 and +1."""

    name = "hinge"
    curvature = None
    targets = (-1.0, 1.0)

    def values(self, z: Matrix, y: Vector) -> Matrix:
        """What the margin lacks of 1."""
        return np.maximum(0.0, 1.0 - y * z)

    def slopes(self, z: Matrix, y: Vector) -> Matrix:
        """-y where the margin lacks something, else 0."""
        slopes: Matrix = np.asarray(y * z)
        np.less(slopes, 1.0, out=slopes)
        slopes *= -y
        slopes += 0.0  # no -0
        return slopes

    def slope_bound(self, z_bound: float, y_bound: float) -> float:
        """The largest target."""
        del z_bound
        return y_bound

    def rounded_size(self, z_bound: float, y_bound: float) -> float:
        """Rounding may choose the other side of the kink, never a steeper one."""
        return self.slope_bound(z_bound, y_bound)


@dataclass(frozen=True)
class Logistic(Loss):
    r"""Logistic regression, :math:`\ln(1 + e^{-yz})` for classes y of -1 and +1."""

    name = "logistic"
    curvature = 0.25
    targets = (-1.0, 1.0)

    def values(self, z: Matrix, y: Vector) -> Matrix:
        r"""Minus the logarithm of the class's probability, to 1e-15.

        .. math:: \max(0, -yz) + \ln(2 + 2e^{-|z|}) - \ln 2

        An owner computes it, so it takes as long for one margin as for another: the library's
        ``logaddexp`` does not, nor does a logarithm near 1 or an exponential that is tiny.
        """
        t: Matrix = np.asarray(-y * z)
        size = np.fmin(np.maximum(np.abs(t), _LEAST_EXPONENT), _LARGEST_EXPONENT)
        beyond = np.log(2.0 + 2.0 * np.exp(-size)) - math.log(2.0)
        values: Matrix = np.maximum(t, 0.0) + beyond
        return values

    def slopes(self, z: Matrix, y: Vector) -> Matrix:
        """Minus y times the other class's probability."""
        # 1 / (1 + exp(yz)) through tanh, which cannot overflow; in place, three times as fast.
        share: Matrix = np.asarray(0.5 * y * z)
        np.tanh(share, out=share)
        share *= -0.5
        share += 0.5
        share *= -y
        return share

    def curvatures(self, z: Matrix, y: Vector) -> Matrix:
        """The product of both classes' probabilities."""
        del y
        return 0.25 - 0.25 * np.tanh(0.5 * z) ** 2

    def slope_bound(self, z_bound: float, y_bound: float) -> float:
        """The probability of the wrong class at the largest margin."""
        return y_bound * (0.5 + 0.5 * math.tanh(0.5 * y_bound * z_bound))

    def rounded_size(self, z_bound: float, y_bound: float) -> float:
        """Whatever the margin is rounded to, its slope is one that some margin has."""
        return self.slope_bound(z_bound, y_bound)


@dataclass(frozen=True)
class Huber(Loss):
    r"""Least squares for residuals up to delta and absolute beyond, so no record pulls far.

    .. math:: \ell = \tfrac12 r^2 \text{ for } |r| \le \delta, \quad
              \delta(|r| - \tfrac12\delta) \text{ beyond}, \qquad r = z - y

    Its slope is the residual cut off at delta, so one record's gradient is bounded by delta times
    the bound of its features, whatever the box and the targets.

    Args:
      delta: Where squared becomes absolute, in units of the scaled target.

    Raises:
      ValueError: It is not positive and finite.

    >>> Huber(delta=1.0).values(np.array([0.5, 3.0]), np.zeros(2))
    array([0.125, 2.5  ])

    References: Huber (1964), Robust estimation of a location parameter.
    """

    delta: float

    name = "huber"
    curvature = 1.0
    counts_margins = True

    def __post_init__(self) -> None:
        """Refuse a delta that bounds nothing."""
        if not 0 < self.delta < math.inf:
            raise ValueError(f"delta: got {self.delta}, expected a finite number greater than 0")

    @classmethod
    def example(cls) -> Huber:
        """One whose delta lies within targets of 1."""
        return cls(delta=0.5)

    @classmethod
    def fitted(cls, residuals: Vector) -> Huber:
        """Delta is 1.345 deviations, estimated from their median absolute value.

        Under normal residuals it loses a twentieth of the efficiency of least squares.

        >>> round(Huber.fitted(np.array([-2.0, -1.0, 0.0, 1.0, 1e6])).delta, 3)
        1.994
        """
        scale = DEVIATION_PER_MEDIAN * float(np.median(np.abs(residuals)))
        return cls(delta=EFFICIENT_DELTA * scale)

    def values(self, z: Matrix, y: Vector) -> Matrix:
        """Squared to delta, absolute beyond."""
        r = np.abs(z - y)
        inner = np.minimum(r, self.delta)
        return inner * (r - 0.5 * inner)

    def slopes(self, z: Matrix, y: Vector) -> Matrix:
        """The residual, cut off at delta."""
        r: Matrix = np.asarray(z - y)
        return np.clip(r, -self.delta, self.delta, out=r)

    def curvatures(self, z: Matrix, y: Vector) -> Matrix:
        """1 where the loss is squared, 0 where it is absolute."""
        return (np.abs(z - y) <= self.delta).astype(np.float64)

    def slope_bound(self, z_bound: float, y_bound: float) -> float:
        """Delta, or the largest residual where that is less."""
        return min(self.delta, z_bound + y_bound)

    def rounded_size(self, z_bound: float, y_bound: float) -> float:
        """The residual is rounded before it is cut off."""
        return z_bound + y_bound


LOSSES: dict[str, type[Loss]] = {kind.name: kind for kind in (Squared, Hinge, Logistic, Huber)}
"""Every loss, by its name."""


class NamesLoss(Protocol):
    """What names a loss, and holds its parameters under the names of its fields."""

    @property
    def loss(self) -> str:
        """A key of ``LOSSES``."""


def loss_of(terms: NamesLoss) -> Loss:
    """The loss that terms or settings name, with the parameters that they hold for it.

    Raises:
      ValueError: There is no such loss, or a parameter is missing, wrong, or another loss's.

    >>> from types import SimpleNamespace
    >>> loss_of(SimpleNamespace(loss="huber", delta=2.0))
    Huber(delta=2.0)
    """
    if terms.loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}")
    takes = _TAKES[terms.loss]
    given = {}
    for name in PARAMETERS:
        value = getattr(terms, name, None)
        if value is not None and name not in takes:
            raise ValueError(f"{name} does not belong to {terms.loss} loss; remove it")
        if value is None and name in takes:
            raise ValueError(f"{terms.loss} loss needs {name} = NUMBER")
        if value is not None:
            given[name] = value
    return LOSSES[terms.loss](**given)


_TAKES = {name: {field.name for field in fields(kind)} for name, kind in LOSSES.items()}
PARAMETERS = sorted(set().union(*_TAKES.values()))
"""The names of all losses' parameters."""


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
