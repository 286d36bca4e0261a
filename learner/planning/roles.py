"""Who speaks when, and who learns: groups, clock rates, and an owner as the learner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.arrays import Vector
from learner.algorithms.clocks import Groups
from learner.planning.settings import StudySettings


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
        return sizes / sizes.mean()
    return np.array([settings.owners[group[0]].clock_rate for group in groups])


def own_index(settings: StudySettings) -> int | None:
    """The index of the owner that is the learner, or None."""
    own = settings.learner.own
    return None if own is None else [entry.name for entry in settings.owners].index(own)


def epsilons_of(settings: StudySettings) -> Vector:
    """What the training has of each epsilon_i/kappa, infinite for the learner's own, shape (N,)."""
    kappa = settings.privacy.kappa
    epsilons = np.array([float(settings.for_training(entry) / kappa) for entry in settings.owners])
    own = own_index(settings)
    if own is not None:
        epsilons[own] = np.inf
    return epsilons
