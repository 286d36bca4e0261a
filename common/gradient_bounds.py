"""How long the gradient of any admissible record can be, and what its rounding is relative to."""

from __future__ import annotations

import math

from common.domain import Domain
from common.losses import Loss


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
      loss: The loss.
      domain: The public bounds.
      theta_max: Half the side of the box that theta must keep, L-infinity norm.

    Returns:
      The bound, in gradient units, L1 norm.

    Raises:
      ValueError: ``theta_max`` is not positive and finite.

    >>> import numpy as np
    >>> from common.losses import Squared
    >>> d = Domain(feature_bound=np.array([1.0, 2.0]), target_bound=4.0)
    >>> domain_gradient_bound(Squared(), d, theta_max=0.5)
    33.0

    References: Assumption 2 of Farokhi et al. (2021).
    """
    if not 0 < theta_max < math.inf:
        raise ValueError(f"theta_max: got {theta_max}, expected a finite value > 0")
    b = domain.feature_l1_bound
    return loss.slope_bound(theta_max * b, largest_target(loss, domain)) * b


def rounded_gradient(loss: Loss, domain: Domain, *, theta_max: float) -> float:
    """Size of the numbers whose rounding one record's computed gradient carries, L1 norm.

    It is never below :func:`domain_gradient_bound`, and above it where a slope is bounded more
    closely than the residual that it is computed from:

    >>> import numpy as np
    >>> from common.losses import Huber
    >>> d = Domain(feature_bound=np.array([1.0, 2.0]), target_bound=4.0)
    >>> rounded_gradient(Huber(delta=1.0), d, theta_max=0.5)
    16.5
    >>> domain_gradient_bound(Huber(delta=1.0), d, theta_max=0.5)
    3.0
    """
    b = domain.feature_l1_bound
    return loss.rounded_size(theta_max * b, largest_target(loss, domain)) * b


def largest_target(loss: Loss, domain: Domain) -> float:
    """The largest size of a target: of a class it is 1, else what the domain says.

    >>> import numpy as np
    >>> from common.losses import Hinge, Squared
    >>> d = Domain(feature_bound=np.ones(1), target_bound=4.0)
    >>> largest_target(Squared(), d), largest_target(Hinge(), d)
    (4.0, 1.0)
    """
    return domain.target_bound if loss.targets is None else max(map(abs, loss.targets))
