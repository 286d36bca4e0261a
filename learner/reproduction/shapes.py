r"""The shape of [A]'s bound (11) over n and epsilon, whose constants are fitted to runs.

.. math:: \frac{\bar c_1}{n}\sqrt{S} + \frac{\bar c_2}{n^2} S, \qquad S = \sum_i 1/\epsilon_i^2

[A] is Farokhi et al. (2021). Its figures 4, 5 and 9 show (11) with constants that were fitted to
runs which had spent the budget already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from common.arrays import Vector


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Constants of (11) fitted to runs.

    Args:
      sqrt_term: The constant of sqrt(S)/n.
      linear_term: The constant of S/n^2.
      largest_misfit: The largest |log10(fit/measured)| over the runs.
    """

    sqrt_term: float
    linear_term: float
    largest_misfit: float


def fit_constants(total_records: Vector, privacy_sums: Vector, costs: Vector) -> Constants:
    r"""The constants of (11) that fit measured costs best, both at least 0.

    Least squares of the relative error, since costs span orders of magnitude.

    Args:
      total_records: The n of each study, shape (m,).
      privacy_sums: Its S, shape (m,).
      costs: Its measured cost of privacy or relative fitness, above 0, shape (m,).

    Raises:
      ValueError: Lengths differ, or a number is not positive.

    >>> n, S = np.array([10.0, 20.0, 40.0]), np.ones(3)
    >>> fitted = fit_constants(n, S, 5.0 / n**2)
    >>> round(fitted.sqrt_term, 9), round(fitted.linear_term, 9)
    (0.0, 5.0)

    References: [A] (11), figures 4, 5 and 9.
    """
    if not total_records.shape == privacy_sums.shape == costs.shape or costs.size == 0:
        raise ValueError("costs: expected one n, one S and one cost for each study")
    if not (np.all(total_records > 0) and np.all(privacy_sums > 0) and np.all(costs > 0)):
        raise ValueError("costs: expected n, S and costs above 0")
    x = np.sqrt(privacy_sums) / total_records
    rows = np.stack([x, x**2], axis=1) / costs[:, None]
    # x spans decades: columns of equal size keep the solver's tolerance meaningful.
    size = np.linalg.norm(rows, axis=0)
    scaled, _ = nnls(rows / size, np.ones(costs.size))
    constants = scaled / size
    fit = rows @ constants
    misfit = float(np.max(np.abs(np.log10(fit)))) if np.all(fit > 0) else math.inf
    return Constants(
        sqrt_term=float(constants[0]), linear_term=float(constants[1]), largest_misfit=misfit
    )
