"""Groups of owners that are asked at the same time, each one larger owner (Remark 2 of 2021)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from common.arrays import Array, Indices, Vector
from learner.algorithms.clocks import Groups

_Answer = Callable[[Indices, Array], Array]


def group_shares(groups: Groups, weights: Vector) -> list[Vector]:
    """What share of its group's records each member has, in the members' order.

    >>> group_shares(((1, 2), (0,)), np.array([0.2, 0.2, 0.6]))
    [array([0.25, 0.75]), array([1.])]
    """
    return [weights[list(group)] / weights[list(group)].sum() for group in groups]


def asked_together(answer: _Answer, groups: Groups, weights: Vector) -> _Answer:
    """The mean gradients of groups, where each member is asked by itself.

    Args:
      answer: (owners (B,), models (B, ..., p)) -> their mean gradients, of the models' shape.
      groups: The groups.
      weights: The owners' shares of all records, shape (N,).

    Returns:
      The same of (slots (B,), models), where a slot is the index of a group.
    """
    size = max(map(len, groups))
    # A group's members in rows, filled up with its first at weight 0.
    members = np.array([[*group, *[group[0]] * (size - len(group))] for group in groups])
    shares = np.array([[*own, *[0.0] * (size - len(own))] for own in group_shares(groups, weights)])

    def together(slots: Indices, thetas: Array) -> Array:
        total = np.zeros_like(thetas)
        for place in range(size):
            share = shares[slots, place].reshape(-1, *[1] * (thetas.ndim - 1))
            total += share * answer(members[slots, place], thetas)
        return total

    return together
