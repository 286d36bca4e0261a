"""How far a sum of Laplace and normal noise reaches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from common.arrays import Vector
from common.quality import COVERAGE

# Where the inverted characteristic function is cut off and how fine it is, in deviations.
LARGEST_FREQUENCY, FREQUENCIES = 100.0, 10_000
# How far, in deviations, the last step of the search may be.
CLOSE = 1e-9
MOST_STEPS = 100


def half_width(scales: Sequence[float] | Vector, deviation: float) -> float:
    r"""The x with :math:`P(|\sum_j w_j + z| \le x) = 0.95`, as all intervals of quality hold.

    For independent Laplace w_j of these scales and a normal z of this deviation,

    .. math:: P(|S| \le x) = \frac2\pi \int_0^\infty \frac{\sin tx}{t}\,
              e^{-t^2\sigma^2/2} \prod_j \frac1{1 + b_j^2t^2}\, dt

    >>> round(half_width([1.0], 0.0), 3), round(half_width([], 1.0), 3), half_width([], 0.0)
    (2.996, 1.96, 0.0)

    References: Gil-Pelaez (1951).
    """
    b = np.array([scale for scale in scales if scale > 0], dtype=np.float64)
    whole = math.sqrt(2.0 * float(np.sum(b**2)) + deviation**2)
    if not whole > 0:
        return 0.0
    step = LARGEST_FREQUENCY / FREQUENCIES
    # Middles of equal steps: the integrand has no value at 0.
    t = (np.arange(FREQUENCIES) + 0.5) * step
    logs = -0.5 * (t * deviation / whole) ** 2
    for scale in b / whole:
        logs -= np.log1p((scale * t) ** 2)
    density = 2.0 / math.pi * step * np.exp(logs)
    # Newton's steps from 0. The density falls, so none goes beyond the x that is looked for.
    x, last = 0.0, math.inf
    for _ in range(MOST_STEPS):
        if last < CLOSE:
            break
        missing = COVERAGE - float(np.sum(np.sin(t * x) * (density / t)))
        last = missing / float(np.sum(np.cos(t * x) * density))
        x += last
    return whole * x
