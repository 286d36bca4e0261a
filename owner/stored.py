r"""How a shard's features are stored: in float64, or in float32 rounded towards zero.

**Float32 costs no privacy.** A float64 x is stored as the float32 :math:`\tilde x` that is nearest
to it among those with :math:`|\tilde x| \le |x|` and its sign. So a stored record keeps every
bound that the record kept, on each feature and on the L1 norm of all, exactly and in real numbers:

.. math:: |\tilde x_j| \le |x_j| \le \beta_j, \qquad \|\tilde x\|_1 \le \|x\|_1 \le B

A stored record depends on its own record alone and lies in the public domain. Whatever is
answered of stored records therefore has the sensitivity of the domain, :math:`2\Xi/n_i` or that of
the clip, and what :mod:`common.privacy` counts for sums covers the arithmetic: each stored number
is a float64 too, and all sums are float64. The rounding's own share of the sensitivity is 0, which
no other direction has: to the nearest, a bound could be passed by :math:`2^{-24}` of itself, and
every ledger would promise another noise scale. What the owner pays is accuracy: a feature is
smaller by less than :math:`2^{-23}` of itself (or :math:`2^{-149}`), far below the noise. The
constant feature 1 is exact, and so are the targets, which stay float64.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from common.arrays import Matrix
from owner.sums import blocks

Storage = Literal["float64", "float32"]


def stored_float32(features: Matrix) -> NDArray[np.float32]:
    """Features in float32, none of them larger in size than before, shape (n, p).

    >>> stored_float32(np.array([[1.0, 0.1, -0.1, 1e300]])).astype(np.float64)
    array([[ 1.00000000e+00,  9.99999940e-02, -9.99999940e-02,
             3.40282347e+38]])
    """
    stored = np.empty(features.shape, dtype=np.float32)
    for chosen, x in blocks(features, 0, len(features)):
        with np.errstate(over="ignore", under="ignore"):
            nearest = x.astype(np.float32)
        away = np.abs(nearest.astype(np.float64)) > np.abs(x)
        # One bit pattern less is the next number towards 0, without a branch on its sign.
        stored[chosen] = (nearest.view(np.int32) - away).view(np.float32)
    return stored
