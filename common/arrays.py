"""Names for the arrays of this program, so that a signature says what an array holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Flags", "Labels", "Matrix", "Slots", "Units", "Vector"]

# Real numbers, one for each feature, owner, record or run; the docstrings give the shape.
Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
# Yes or no for each of something.
Flags = NDArray[np.bool_]
# Which group each record is of.
Labels = NDArray[np.intp]
# Which owner or group ticks at each k, shape (runs, T).
Slots = NDArray[np.intp]
# Whole multiples of the mechanism's grid.
Units = NDArray[np.int64]
