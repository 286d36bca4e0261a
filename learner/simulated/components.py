"""What varies between groups of records, and what within them: components of variance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.arrays import Labels, Matrix, Vector

__all__ = ["components", "covariance_within"]

# What all groups differ by counts as so many directions that a group differs in.
PRIOR = 4.0


def components(sizes: Vector, excess: Vector, scores: Matrix) -> tuple[float, Vector]:
    r"""What groups differ by beyond chance: all of them, and each.

    One-way analysis of variance with random groups: G of them of m_g records, whose mean scores
    have the squares q_g, where single records' have t and vary in d directions,

    .. math:: D = \frac{\sum m_g q_g - (G - 1)\,t}{\sum m_g - \sum m_g^2/\sum m_g}

    Some groups differ by far more than others: a group's own excess counts as far as it is known,

    .. math:: D_g = \frac{4 D + d_g \max(q_g - t/m_g, 0)}{4 + d_g}, \qquad
              d_g = d\,\Big(\frac{D}{D + t/m_g}\Big)^2

    Args:
      sizes: The m_g, 0 for a group that is not looked at, shape (number of groups,).
      excess: The q_g.
      scores: The whitened gradients of all records, mean 0, shape (n, d).

    Returns:
      D, at least 0, and the D_g.

    References: Searle, Casella, McCulloch (1992), Variance Components.

    >>> scores = np.array([[1.0], [3.0], [-1.0], [-3.0]])
    >>> components(np.array([2.0, 2.0]), np.array([4.0, 4.0]), scores)
    (5.5, array([5.07729258, 5.07729258]))
    """
    used, none = sizes > 0, np.zeros(len(sizes))
    m, q = sizes[used], excess[used]
    if len(m) < 2:
        return 0.0, none
    covariance = scores.T @ scores / len(scores)
    t, count = float(np.trace(covariance)), float(m.sum())
    D = float((m @ q - (len(m) - 1) * t) / (count - m @ m / count))
    if D <= 0:
        return 0.0, none
    directions = t**2 / float(np.sum(covariance**2))
    chance = t / np.maximum(sizes, 1.0)
    told = directions * (D / (D + chance)) ** 2
    beyond = np.maximum(np.nan_to_num(excess) - chance, 0.0)
    return D, (PRIOR * D + told * beyond) / (PRIOR + told)


def covariance_within(features: Matrix, groups: Sequence[Labels]) -> Matrix:
    """Covariance of the features within groups, shape (p, p), from groups of two rows or more."""
    p = features.shape[1]
    total, count = np.zeros((p, p)), 0
    for rows in groups:
        if rows.size > 1:
            away = features[rows] - features[rows].mean(axis=0)
            total += away.T @ away
            count += rows.size - 1
    return total / max(count, 1)
