"""Names for the arrays of this program, so that a signature says what an array holds.

And what a masked array from elsewhere holds, and a choice that takes one time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Real numbers, one for each feature, owner, record or run; the docstrings give the shape.
Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
# The same of three axes, or of several shapes.
Array = NDArray[np.float64]
# Yes or no for each of something.
Flags = NDArray[np.bool_]
# Which row, owner or group, each by its place.
Indices = NDArray[np.intp]
# Whole multiples of the mechanism's grid.
Units = NDArray[np.int64]


def either(chosen: Flags, yes: Matrix | float, no: Matrix | float) -> Matrix:
    """The first where it is chosen, else the second, in a time that does not tell which.

    ``np.where`` branches on each number: where records are half this way and half that it takes six
    times as long, so whoever says between which values the choice is would read a count of records.

    >>> either(np.array([True, False]), np.nan, np.array([1.0, -0.0]))
    array([nan, -0.])
    """
    one, other = (np.asarray(part, dtype=np.float64).view(np.int64) for part in (yes, no))
    made: Matrix = (other ^ ((one ^ other) * chosen)).view(np.float64)
    return made


def unmasked(values: Any) -> Any:
    """A masked array with gaps where it is masked, which other libraries look behind; else itself.

    >>> unmasked(np.ma.masked_equal([1, 999], 999))
    array([ 1., nan])
    """
    if not isinstance(values, np.ma.MaskedArray):
        return values
    kind = np.float64 if values.dtype.kind in "biuf" else object
    return np.where(np.ma.getmaskarray(values), np.nan, values.data.astype(kind))
