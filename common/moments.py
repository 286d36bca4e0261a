r"""Second moments in one release: their layout on the wire, and how far one record moves them.

For least squares the moments :math:`X'X/n_i` and :math:`X'y/n_i` say all that any number of
gradients could, so an owner may spend its whole epsilon on sending them once.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from common.arrays import Indices, Matrix, Vector
from common.domain import Domain


def packed_length(num_features: int) -> int:
    """Length p(p+1)/2 + p of the packed moments.

    >>> packed_length(3)
    9
    """
    return num_features * (num_features + 1) // 2 + num_features


@lru_cache(maxsize=8)
def upper_triangle(size: int) -> tuple[Indices, Indices]:
    """Rows and columns of the entries on and above the diagonal, row by row.

    >>> upper_triangle(2)
    (array([0, 0, 1]), array([0, 1, 1]))
    """
    rows, columns = np.triu_indices(size)
    return rows, columns


def pack_moments(gram: Matrix, cross: Vector) -> Vector:
    """The upper triangle of ``gram``, row by row, and then ``cross``; or of many, (..., length).

    Args:
      gram: X'X/n, shape (p, p) or (..., p, p).
      cross: X'y/n, shape (p,) or (..., p).

    >>> pack_moments(np.array([[1.0, 2.0], [2.0, 3.0]]), np.array([4.0, 5.0]))
    array([1., 2., 3., 4., 5.])
    """
    return np.concatenate([gram[..., *upper_triangle(cross.shape[-1])], cross], axis=-1)


def unpack_moments(packed: Vector, num_features: int) -> tuple[Matrix, Vector]:
    """The symmetric matrix (p, p) and the vector (p,) of packed moments, or of many, (..., length).

    >>> unpack_moments(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 2)[0]
    array([[1., 2.],
           [2., 3.]])
    """
    p = num_features
    rows, columns = upper_triangle(p)
    symmetric = np.empty((*packed.shape[:-1], p, p))
    symmetric[..., rows, columns] = symmetric[..., columns, rows] = packed[..., :-p] + 0.0  # no -0
    return symmetric, packed[..., -p:].copy()


def moments_change(domain: Domain) -> float:
    r"""Largest L1 change of the sum of packed moments when one record is replaced.

    With :math:`v(x, y) = (x_i x_j)_{i \le j}, (x_i y)_i`, the bound B on :math:`\|x\|_1` and Y on
    :math:`|y|`:

    .. math:: \sup \|v(x, y) - v(x', y')\|_1 \le B^2 + 2YB + \tfrac12 U, \qquad
              U = \min\Big(\sum_i \beta_i^2,\; 2 \max_{x} \|x\|_2^2\Big)

    where :math:`\beta_i` bounds :math:`|x_i|` by itself. **Why.** Let a, a' be the absolute
    values of the two records, s and s' their sums, q and q' their squared L2 norms. Products of
    two features and of a feature with the target may change their signs, so the off-diagonal
    part is at most :math:`\frac12(s^2-q) + \frac12(s'^2-q')` and the last at most
    :math:`Y(s+s')`. Squares cannot: they change by at most :math:`\sum |a_i^2-a_i'^2|`. With
    u and l the larger and the smaller of :math:`a_i, a_i'`, :math:`q+q' = \sum u^2+l^2`, so
    all together are at most

    .. math:: \tfrac12 s^2 + \tfrac12 s'^2 + Y(s+s') + \sum (\tfrac12 u^2 - \tfrac32 l^2)

    and :math:`s, s' \le B`, while :math:`\sum u^2` is at most the sum of all
    :math:`\beta_i^2` and at most :math:`q+q'`. The bound is attained by two records of different
    features wherever the radius lets both reach B at the largest L2 norm.

    The mean over n_i records changes by 1/n_i of it.

    Args:
      domain: The public bounds that every record keeps.

    >>> moments_change(Domain(feature_bound=np.array([1.0, 1.0]), target_bound=0.5, l1_radius=1.0))
    3.0
    """
    # In this order: the scale of noise promised before is the same to the last bit.
    B, Y = domain.feature_l1_bound, domain.target_bound
    return B * B + 2.0 * Y * B + 0.5 * _squares(domain)


def gram_change(domain: Domain) -> float:
    r"""Largest L1 change of the sum of packed :math:`x x^\top` when one record is replaced.

    .. math:: \sup \|(x_i x_j)_{i \le j} - (x'_i x'_j)_{i \le j}\|_1 \le B^2 + \tfrac12 U

    with B and U of :func:`moments_change`, whose proof with Y = 0 is this one's. It also bounds
    the change of :math:`c\,x x^\top` with any factors c and c' in [0, 1] that the records choose,
    since :math:`\sqrt c\,x` keeps the same bounds.

    >>> gram_change(Domain(feature_bound=np.array([1.0, 1.0]), target_bound=0.5, l1_radius=1.0))
    2.0
    """
    B = domain.feature_l1_bound
    return B * B + 0.5 * _squares(domain)


def _squares(domain: Domain) -> float:
    """The U of the bound."""
    return min(float(np.sum(domain.feature_bound**2)), 2.0 * _largest_square(domain))


def _largest_square(domain: Domain) -> float:
    """Largest squared L2 norm of a record: the radius filled with the largest features first."""
    room, total = domain.feature_l1_bound, 0.0
    for bound in np.sort(domain.feature_bound)[::-1]:
        part = min(float(bound), room)
        total += part * part
        room -= part
    return total
