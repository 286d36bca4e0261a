"""Who speaks when, and who learns: groups, clock rates, and an owner as the learner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from common.arrays import Vector
from common.names import repeated
from common.texts import first_few
from learner.algorithms.clocks import Groups
from learner.planning.sections import AUTO, not_its_key

if TYPE_CHECKING:
    from learner.planning.settings import StudySettings

NAMED = 20  # owners in a sentence


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


def with_own_rate(settings: StudySettings) -> Sequence[str]:
    """Names of the owners whose clock has a rate of its own."""
    return [entry.name for entry in settings.owners if entry.clock_rate != 1]


def check_roles(settings: StudySettings) -> None:
    """Refuse roles that contradict each other: the first of their problems.

    Raises:
      ValueError: It names the key and says what to do.
    """
    for problem in chain(
        _group_problems(settings), _clock_problems(settings), _own_problems(settings)
    ):
        raise ValueError(problem)


def _group_problems(settings: StudySettings) -> Iterator[str]:
    names = {entry.name: entry for entry in settings.owners}
    named = [name for group in settings.groups for name in group]
    unknown = [name for name in named if name not in names]
    twice = repeated(named)
    if not all(settings.groups):
        yield "groups: a group is empty; name at least one owner in each group"
    if unknown:
        yield (
            f"groups: {unknown[0]!r} is not an owner of this study; name its owners, which are "
            f"{first_few([*names], NAMED)}"
        )
    if twice:
        yield f"groups: {twice[0]!r} stands in two groups; name each owner once"
    for group in settings.groups:
        if len({names[name].clock_rate for name in group}) > 1:
            yield (
                f"groups: {first_few(group, NAMED)} are asked by one clock but have different "
                "owners.clock_rate; give all of a group the same"
            )


def _clock_problems(settings: StudySettings) -> Iterator[str]:
    given = settings.algorithm
    # Of the ways that "auto" may take, those that ask groups: learner.planning.ways.
    if settings.groups and given.name != AUTO and "groups" not in given.kind.uses:
        yield not_its_key("groups", given.name)
    if settings.groups and given.initiative != "learner":
        yield (
            "groups: fixed groups are asked at the same time by the learner; use them with "
            'algorithm.initiative = "learner"'
        )
    if given.clocks == "records" and given.initiative != "learner":
        yield (
            'algorithm.clocks = "records" is for the learner\'s clocks; use it with '
            'algorithm.initiative = "learner"'
        )
    own_rates = with_own_rate(settings)
    if given.clocks == "records" and own_rates:
        yield (
            f'owners: {own_rates[0]} has a clock_rate, but algorithm.clocks = "records" sets all '
            "rates; remove one of the two"
        )
    if given.interval is not None and given.initiative != "broadcast":
        yield (
            'algorithm.interval is the time between offers of algorithm.initiative = "broadcast"; '
            "remove it"
        )


def _own_problems(settings: StudySettings) -> Iterator[str]:
    own = settings.learner.own
    if own is None:
        if settings.learner.shows_model:
            yield "learner.shows_model goes with learner.own; remove it"
        return
    if own not in {entry.name for entry in settings.owners}:
        yield f"learner.own: {own!r} is not an owner of this study; name one of its owners"
    if settings.algorithm.initiative != "learner":
        yield (
            'learner.own needs algorithm.initiative = "learner": the learner\'s own shard '
            "has no clock and no port"
        )
    if not settings.learner.shows_model:
        yield (
            f"learner.own: {own}'s records are asked without noise, and the queries show the other "
            "owners models made from them; set learner.shows_model = true if they may see that"
        )
