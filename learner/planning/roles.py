"""Who speaks when, and who learns: groups, clock rates, and an owner as the learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from common.arrays import Vector
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import Groups
from learner.planning.settings import StudySettings

__all__ = [
    "as_larger_owners",
    "clock_rates",
    "epsilons_of",
    "epsilons_of_groups",
    "frequency_of",
    "groups_of",
    "own_index",
]


def groups_of(settings: StudySettings) -> Groups:
    """The groups as indices of owners: those that are named, then everybody else alone."""
    index = {entry.name: i for i, entry in enumerate(settings.owners)}
    named = [tuple(sorted(index[name] for name in group)) for group in settings.groups]
    alone = set(index.values()) - {i for group in named for i in group}
    return (*named, *((i,) for i in sorted(alone)))


def clock_rates(settings: StudySettings, num_records: Sequence[int]) -> Vector:
    """The rate of each group's clock, shape (number of groups,).

    Args:
      settings: The study; with ``clocks = "records"`` rates follow the records, and are one on
        average.
      num_records: Each owner's n_i.
    """
    groups = groups_of(settings)
    if settings.algorithm.clocks == "records":
        sizes = np.array([sum(num_records[i] for i in group) for group in groups], np.float64)
        rates: Vector = sizes / sizes.mean()
        return rates
    return np.array([settings.owners[group[0]].clock_rate for group in groups])


def frequency_of(settings: StudySettings, num_records: Sequence[int]) -> Vector | None:
    """Remark 4's known frequencies, shape (number of groups,), where they are to be corrected."""
    if settings.algorithm.correction != "rates":
        return None
    return clock_rates(settings, num_records)


def own_index(settings: StudySettings) -> int | None:
    """The index of the owner that is the learner, or None."""
    names = [entry.name for entry in settings.owners]
    return None if settings.learner.own is None else names.index(settings.learner.own)


def epsilons_of(settings: StudySettings) -> Vector:
    """Each owner's epsilon_i/kappa, infinite for the learner's own shard, shape (N,)."""
    kappa = settings.privacy.kappa
    epsilons = np.array(
        [float((entry.epsilon or settings.privacy.epsilon) / kappa) for entry in settings.owners]
    )
    own = own_index(settings)
    if own is not None:
        epsilons[own] = np.inf
    return epsilons


def as_larger_owners(algorithm: Asynchronous) -> Asynchronous:
    """The same algorithm with one larger owner for each group.

    >>> from common.losses import Regulariser
    >>> grouped = Asynchronous(weights=np.array([0.5, 0.2, 0.3]), num_features=1, theta_max=1.0,
    ...     regulariser=Regulariser(coefficient=1e-5), rho=1.0, horizon=9, groups=((0, 2), (1,)))
    >>> as_larger_owners(grouped).weights
    array([0.8, 0.2])

    References: Remark 2 of Farokhi et al. (2021).
    """
    if not algorithm.groups:
        return algorithm
    weights = np.array([algorithm.weights[list(group)].sum() for group in algorithm.groups])
    return replace(algorithm, weights=weights, groups=())


def epsilons_of_groups(epsilons: Vector, groups: Groups) -> Vector:
    r"""The epsilon of a larger owner whose noise has the variance of its members' mean.

    The members' noises of scale :math:`b_j \propto 1/(n_j\epsilon_j)` are averaged by records,
    which gives the variance of one owner of :math:`\sum n_j` records with
    :math:`\epsilon = (\sum_j \epsilon_j^{-2})^{-1/2}`.

    Args:
      epsilons: Each owner's epsilon, infinite for the learner's own shard, shape (N,).
      groups: The groups.

    >>> epsilons_of_groups(np.array([3.0, np.inf, 4.0, 1.0]), ((0, 2), (1,), (3,)))
    array([2.4, inf, 1. ])
    """

    def merged(group: tuple[int, ...]) -> float:
        inverse_square = float(np.sum(epsilons[list(group)] ** -2.0))
        return inverse_square**-0.5 if inverse_square > 0 else np.inf

    # One owner alone keeps its epsilon to the last bit.
    return np.array([epsilons[g[0]] if len(g) == 1 else merged(g) for g in groups])
