r"""The best model of records that are here, near another model: used where nothing leaves.

.. math:: \arg\min_\theta\; \frac1n \sum \ell(\theta^\top x, y) + w\,\|\theta - \theta_0\|_2^2

With :math:`\theta_0 = 0` and a small weight w it is an owner's own model; with the common model as
:math:`\theta_0` it is that model, adapted to the owner's records. No box and no noise: the result
is as private as the records.
"""

from __future__ import annotations

import numpy as np

from common.arrays import Matrix, Vector
from common.blas import one_blas_thread
from common.hinge_program import least_hinge
from common.losses import Hinge, Loss
from common.terms import Records

MOST_STEPS = 2_000


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

    from scipy.optimize import minimize  # noqa: PLC0415 (training starts without it)

    options = {"maxiter": MOST_STEPS, "maxfun": 2 * MOST_STEPS, "ftol": 1e-15, "gtol": 1e-10}
    with one_blas_thread():
        solution = minimize(
            value_and_gradient, center, jac=True, method="L-BFGS-B", options=options
        )
    return np.asarray(solution.x, dtype=np.float64)


def _hinge(records: Records, center: Vector, weight: float) -> Vector:
    r"""The program of the way :math:`\delta` from the center.

    It needs no box: at the best :math:`\delta` the weight takes at most what is lost at 0.
    """
    Z: Matrix = records.targets[:, None] * records.features
    needed: Vector = 1.0 - Z @ center
    lost = float(np.mean(np.maximum(0.0, needed)))
    farthest = 2.0 * float(np.sqrt(lost / weight))
    return center + (least_hinge(Z, needed, weight=weight, box=farthest) if lost > 0 else 0.0)
