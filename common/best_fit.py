r"""The best model of records that are here, near another model: used where nothing leaves.

.. math:: \arg\min_\theta\; \frac1n \sum \ell(\theta^\top x, y) + w\,\|\theta - \theta_0\|_2^2

With :math:`\theta_0 = 0` and a small weight w it is an owner's own model; with the common model as
:math:`\theta_0` it is that model, bent to the owner's records. No box and no noise: the result is
as private as the records.
"""

from __future__ import annotations

import numpy as np

from common.arrays import Matrix, Vector
from common.losses import Hinge, Loss
from common.terms import Records

__all__ = ["fit_near"]

MOST_STEPS = 2_000
# Of the dual, which has as many variables as there are records: fewer steps where these are many.
FEWEST_STEPS, DUAL_WORK = 300, 4_000_000


def fit_near(records: Records, loss: Loss, *, center: Vector, weight: float) -> Vector:
    """The model of these records with the least mean loss, held near a center.

    Args:
      records: At least one record after the feature map.
      loss: The loss.
      center: Where it is pulled to, shape (p,).
      weight: How strongly, > 0.

    Raises:
      ValueError: There is no record, or the weight is not positive.

    >>> from common.losses import Squared
    >>> records = Records(features=np.ones((2, 1)), targets=np.array([1.0, 3.0]))
    >>> fit_near(records, Squared(), center=np.array([5.0]), weight=1.0)
    array([3.5])
    """
    if not len(records) > 0:
        raise ValueError("records: expected at least one")
    if not weight > 0:
        raise ValueError(f"weight: got {weight}, expected a value > 0")
    if loss.is_quadratic:
        return _squared(records, center, weight)
    if isinstance(loss, Hinge):
        return _hinge(records, center, weight)
    return _smooth(records, loss, center, weight)


def _squared(records: Records, center: Vector, weight: float) -> Vector:
    """The normal equations around the center."""
    x, y, n = records.features, records.targets, len(records)
    hessian: Matrix = x.T @ x / n + weight * np.eye(len(center))
    pull: Vector = (y - x @ center) @ x / n
    return center + np.asarray(np.linalg.solve(hessian, pull), dtype=np.float64)


def _smooth(records: Records, loss: Loss, center: Vector, weight: float) -> Vector:
    """Quasi-Newton with the exact gradient."""
    x, y = records.features, records.targets

    def value_and_gradient(theta: Vector) -> tuple[float, Vector]:
        away = theta - center
        value = loss.mean_value(theta, x, y) + weight * float(away @ away)
        return value, loss.mean_gradient(theta, x, y) + 2.0 * weight * away

    return _minimised(value_and_gradient, center.copy(), steps=MOST_STEPS, bounds=None)


def _hinge(records: Records, center: Vector, weight: float) -> Vector:
    r"""The dual, which is smooth: :math:`\theta = \theta_0 + Z^\top\alpha/(2wn)`, alpha in [0, 1].

    Z has the rows y x; the dual's gradient is the margin that each record lacks.
    """
    n = len(records)
    Z: Matrix = records.targets[:, None] * records.features

    def model(alpha: Vector) -> Vector:
        return center + alpha @ Z / (2.0 * weight * n)

    def value_and_gradient(alpha: Vector) -> tuple[float, Vector]:
        theta = model(alpha)
        away = theta - center
        lacking = 1.0 - Z @ theta
        value = weight * float(away @ away) - float(alpha @ (1.0 - Z @ center)) / n
        return value, -lacking / n

    bounds = [(0.0, 1.0)] * n
    steps = int(np.clip(DUAL_WORK // n, FEWEST_STEPS, MOST_STEPS))
    alpha = _minimised(value_and_gradient, np.zeros(n), steps=steps, bounds=bounds)
    return model(alpha)


def _minimised(value_and_gradient: object, start: Vector, *, steps: int, bounds: object) -> Vector:
    from scipy.optimize import minimize  # noqa: PLC0415 (training starts without it)

    options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-15, "gtol": 1e-10}
    solution = minimize(
        value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return np.asarray(solution.x, dtype=np.float64)
