"""What varies between groups of records, and what within them: components of variance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common.arrays import Indices, Matrix, Vector

# What all groups differ by counts as this many directions that a group differs in.
PRIOR = 4.0


@dataclass(frozen=True)
class Components:
    """What records differ by.

    Args:
      all_groups: The variance D of what groups differ by beyond chance, at least 0.
      each_group: What each group is expected to differ by, the D_g, shape (number of groups,).
      within: The variance t of single records within their groups.
    """

    all_groups: float
    each_group: Vector
    within: float


def components(sizes: Vector, excess: Vector, scores: Matrix) -> Components:
    r"""What groups differ by beyond chance: all of them, and each.

    One-way analysis of variance with random groups: G of them of m_g records, n together, whose
    mean scores have the squares q_g, where single records' have s and vary in d directions,

    .. math:: t = \frac{n s - \sum m_g q_g}{n - G}, \qquad
              D = \frac{\sum m_g q_g - (G - 1)\,t}{n - \sum m_g^2/n}

    Some groups differ by far more than others: a group's own excess counts as far as it is known,

    .. math:: D_g = \frac{4 D + d_g \max(q_g - t/m_g, 0)}{4 + d_g}, \qquad
              d_g = d\,\Big(\frac{D}{D + t/m_g}\Big)^2

    Args:
      sizes: The m_g, 0 for a group that is not looked at, shape (number of groups,).
      excess: The q_g.
      scores: The whitened gradients of all records, mean 0, shape (n, d).

    References: Searle, Casella, McCulloch (1992), Variance Components.

    >>> scores = np.array([[1.0], [3.0], [-1.0], [-3.0]])
    >>> found = components(np.array([2.0, 2.0]), np.array([4.0, 4.0]), scores)
    >>> found.all_groups, found.within, found.each_group.round(3)
    (7.0, 2.0, array([6.357, 6.357]))
    """
    used = sizes > 0
    m, q = sizes[used], excess[used]
    covariance = scores.T @ scores / len(scores)
    single = float(np.trace(covariance))
    none = Components(0.0, np.zeros(len(sizes)), single)
    count = float(m.sum())
    if len(m) < 2 or count <= len(m):
        return none
    within = max(0.0, (count * single - float(m @ q)) / (count - len(m)))
    D = float((m @ q - (len(m) - 1) * within) / (count - m @ m / count))
    if not D > 0:
        return none
    directions = single**2 / float(np.sum(covariance**2))
    chance = within / np.maximum(sizes, 1.0)
    weight = directions * (D / (D + chance)) ** 2
    beyond = np.maximum(np.nan_to_num(excess) - chance, 0.0)
    return Components(D, (PRIOR * D + weight * beyond) / (PRIOR + weight), within)


def covariance_within(features: Matrix, groups: Sequence[Indices]) -> Matrix:
    """Covariance of the features within groups, shape (p, p), from groups of two rows or more."""
    p = features.shape[1]
    total, count = np.zeros((p, p)), 0
    for rows in groups:
        if rows.size > 1:
            away = features[rows] - features[rows].mean(axis=0)
            total += away.T @ away
            count += rows.size - 1
    return total / max(count, 1)
