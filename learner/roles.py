"""Who speaks when, and who learns: groups, clock rates, initiative, and an owner as the learner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from common.config import Settings
from learner.clocks import Groups
from learner.core import Asynchronous

if TYPE_CHECKING:
    from learner.settings import StudySettings

__all__ = [
    "Clocks",
    "Correction",
    "Initiative",
    "LearnerSettings",
    "as_larger_owners",
    "check_roles",
    "clock_rates",
    "epsilons_of",
    "epsilons_of_groups",
    "frequency_of",
    "groups_of",
    "own_index",
    "with_own_rate",
]

Vector = NDArray[np.float64]
Initiative = Literal["learner", "broadcast", "owner"]
Correction = Literal["none", "rates", "counted"]
Clocks = Literal["given", "records"]


class LearnerSettings(Settings):
    """The table ``[learner]``: for an owner that is the learner itself.

    Args:
      own: The owner that learns. Its shard is read here and asked without noise or charge; the
        model then depends on its raw records.
      shows_model: Must be true together with ``own``: the queries carry models, so the other
        owners see what the own records did to them, and nothing hides these records there.
    """

    own: str | None = None
    shows_model: bool = False


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


def with_own_rate(settings: StudySettings) -> Sequence[str]:
    """Names of the owners whose clock has a rate of its own."""
    return [entry.name for entry in settings.owners if entry.clock_rate != 1]


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
      epsilons: Each owner's epsilon, infinite for the own shard, shape (N,).
      groups: The groups.

    >>> epsilons_of_groups(np.array([3.0, np.inf, 4.0, 1.0]), ((0, 2), (1,), (3,)))
    array([2.4, inf, 1. ])
    """

    def merged(group: tuple[int, ...]) -> float:
        inverse_square = float(np.sum(epsilons[list(group)] ** -2.0))
        return inverse_square**-0.5 if inverse_square > 0 else np.inf

    # One owner alone keeps its epsilon to the last bit.
    return np.array([epsilons[g[0]] if len(g) == 1 else merged(g) for g in groups])


def check_roles(settings: StudySettings) -> None:
    """Refuse roles that contradict each other.

    Raises:
      ValueError: It names the key and says what to do.
    """
    for problem in (
        *_group_problems(settings),
        *_asynchronous_problems(settings),
        *_own_problems(settings),
    ):
        raise ValueError(problem)


def _group_problems(settings: StudySettings) -> Sequence[str]:
    names = {entry.name: entry for entry in settings.owners}
    named = [name for group in settings.groups for name in group]
    unknown = [name for name in named if name not in names]
    twice = [name for name, count in Counter(named).items() if count > 1]
    if not all(settings.groups):
        return ["groups: a group is empty; name at least one owner in each group"]
    if unknown:
        return [
            f"groups: {unknown[0]!r} is no owner of this study; name its owners, which are "
            f"{', '.join(names)}"
        ]
    if twice:
        return [f"groups: {twice[0]!r} stands in two groups; name each owner once"]
    for group in settings.groups:
        rates = {names[name].clock_rate for name in group}
        if len(rates) > 1:
            return [
                f"groups: {', '.join(group)} are asked by one clock but have different "
                "owners.clock_rate; give all of a group the same"
            ]
    return []


def _asynchronous_problems(settings: StudySettings) -> Sequence[str]:
    given = settings.algorithm
    uses = {
        "groups": bool(settings.groups),
        "algorithm.initiative": given.initiative != "learner",
        "algorithm.correction": given.correction != "none",
        "algorithm.clocks": given.clocks != "given",
    }
    problems = []
    if given.name != "asynchronous":
        problems += [
            f'{key} belongs to algorithm.name = "asynchronous", not to "{given.name}"; remove it'
            for key, used in uses.items()
            if used
        ]
    if settings.groups and given.initiative != "learner":
        problems.append(
            "groups: fixed groups are asked at the same time by the learner; use them with "
            'algorithm.initiative = "learner"'
        )
    if given.clocks == "records" and given.initiative != "learner":
        problems.append(
            'algorithm.clocks = "records" is for the learner\'s clocks; use it with '
            'algorithm.initiative = "learner"'
        )
    own_rates = with_own_rate(settings)
    if given.clocks == "records" and own_rates:
        problems.append(
            f'owners: {own_rates[0]} has a clock_rate, but algorithm.clocks = "records" sets all '
            "rates; remove one of the two"
        )
    if given.interval is not None and given.initiative != "broadcast":
        problems.append(
            'algorithm.interval is the time between offers of algorithm.initiative = "broadcast"; '
            "remove it"
        )
    return problems


def _own_problems(settings: StudySettings) -> Sequence[str]:
    own = settings.learner.own
    if own is None:
        if settings.learner.shows_model:
            return ["learner.shows_model goes with learner.own; remove it"]
        return []
    if own not in {entry.name for entry in settings.owners}:
        return [f"learner.own: {own!r} is no owner of this study; name one of its owners"]
    if settings.algorithm.initiative != "learner":
        return [
            'learner.own needs algorithm.initiative = "learner": the own shard has no clock or '
            "port of its own"
        ]
    if not settings.learner.shows_model:
        return [
            f"learner.own: {own}'s records are asked without noise, and the queries show the other "
            "owners models made from them; set learner.shows_model = true if they may see that"
        ]
    return []
