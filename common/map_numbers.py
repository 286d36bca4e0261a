"""The numbers that a feature map notes of public records: no more digits than they need."""

from __future__ import annotations

import numpy as np

from common.arrays import Vector

# A center or a bound may be off by this part of what the numbers spread over.
CENTERED = 1e-3


def center_and_scale(values: Vector) -> tuple[float, float]:
    """Mean and deviation, as a rule has them."""
    scale = tidy(np.std(values))
    return tidy_for(np.mean(values), scale), scale


def tidy_for(value: float | np.floating, spread: float) -> float:
    """Tidy, unless nine digits move it by a part of what the numbers that it is for spread over.

    >>> tidy_for(1 / 3, 1.0), tidy_for(10**12 + 1 / 4, 100.0)
    (0.333333333, 1000000000000.25)
    """
    exact, tidied = float(value), tidy(value)
    return tidied if abs(tidied - exact) <= spread * CENTERED else exact


def tidy(value: float | np.floating) -> float:
    """Nine digits: more would only record how this machine rounds."""
    return float(f"{value:.9g}")
