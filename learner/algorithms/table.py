"""Every algorithm with what may be asked about it before it is made.

An algorithm is added here; planning, deciding, checking settings and reporting ask its entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar

from common.arrays import Vector
from common.errors import InputError
from common.losses import Regulariser
from common.release import Release
from common.releases import GRADIENT, MOMENTS, NEWTON
from learner.algorithms.asynchronous import Asynchronous, Rule
from learner.algorithms.clocks import Groups, Tick, first_ticks, synchronous_rounds
from learner.algorithms.moments import SecondMoments
from learner.algorithms.newton import NewtonStep
from learner.algorithms.protocol import Algorithm
from learner.algorithms.shrinkage import Around
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent

Clocks = Callable[[], Iterable[Tick]]
Simulated = Asynchronous | SynchronousDescent | SynchronousAverage | SecondMoments | NewtonStep
"""The algorithms that :mod:`learner.simulated` runs many studies of at once."""
A = TypeVar("A", bound=Simulated)


@dataclass(frozen=True, kw_only=True, eq=False)
class Setup:
    """What a study says to any algorithm: each takes, and explains, its own fields of these names.

    Args:
      constant: The step's constant, by whatever key.
      rule: "printed", "corrected" or None for the algorithm's own.
    """

    weights: Vector
    num_features: int
    theta_max: float
    regulariser: Regulariser
    horizon: int
    constant: float
    rule: Rule | None = None
    groups: Groups = ()
    frequency: Vector | None = None
    counted: bool = False
    tail_average: bool = False
    start: Vector | None = None
    around: Around | None = None
    curvature_scale: float = 0.0
    scales: Vector | None = None
    is_quadratic: bool = True


@dataclass(frozen=True, kw_only=True, eq=False)
class Kind:
    """What an algorithm says about itself.

    Args:
      make: The algorithm of a study.
      ticks: (what starts the owners' clocks, number of owners) -> its ticks.
      constant: The key of its step's constant in ``[algorithm]``; None where it has no step, and
        asks owners in turn, all as often.
      uses: The other keys of ``[algorithm]``, and "groups", that not every algorithm has.
      is_schedulable: Whether owners take turns, so that each may promise its own count of ticks.
      release: What it asks of owners.
    """

    make: Callable[[Setup], Algorithm[Any]]
    ticks: Callable[[Clocks, int], Iterable[Tick]]
    constant: str | None
    uses: frozenset[str] = frozenset()
    is_schedulable: bool = False
    release: Release = GRADIENT

    @property
    def keys(self) -> frozenset[str]:
        """All keys that it has and others have not."""
        steps = set() if self.constant is None else {"horizon", "step", self.constant}
        return self.uses | steps

    def responses(self, horizon: int, num_owners: int) -> int:
        """How many responses are asked of each owner, where no schedule counts them.

        >>> [ALGORITHMS[name].responses(40, 4) for name in ("asynchronous", "newton")]
        [40, 10]
        """
        return horizon if self.constant is not None else horizon // num_owners


def _made(kind: type[A], setup: Setup, **own: Any) -> A:
    """An algorithm of this kind: its fields as the study says them, and what it calls otherwise."""
    taken = {field.name for field in fields(kind)} & {field.name for field in fields(Setup)}
    return kind(**{name: getattr(setup, name) for name in taken} | own)


def _asynchronous(setup: Setup) -> Asynchronous:
    return _made(Asynchronous, setup, rho=setup.constant, rule=setup.rule or "printed")


def _descent(setup: Setup) -> SynchronousDescent:
    projection = setup.rule != "printed"
    return _made(SynchronousDescent, setup, rho=setup.constant, projection=projection)


def _average(setup: Setup) -> SynchronousAverage:
    return _made(SynchronousAverage, setup, initial_step=setup.constant)


def _newton(setup: Setup) -> NewtonStep:
    return _made(NewtonStep, setup, rounds=setup.horizon // len(setup.weights))


def _in_rounds(clocks: Clocks, num_owners: int) -> Iterable[Tick]:
    del clocks
    return synchronous_rounds(num_owners)


def _each_in_turn(clocks: Clocks, num_owners: int) -> Iterable[Tick]:
    ticking = clocks()
    while True:
        yield from first_ticks(ticking, num_owners)


ALGORITHMS: dict[str, Kind] = {
    "asynchronous": Kind(
        make=_asynchronous,
        ticks=lambda clocks, _: clocks(),
        constant="rho",
        uses=frozenset(
            {
                "rule",
                "average",
                "start",
                "initiative",
                "interval",
                "clocks",
                "clock_rate",
                "correction",
                "groups",
            }
        ),
        is_schedulable=True,
    ),
    "synchronous-1": Kind(
        make=_descent, ticks=_in_rounds, constant="rho", uses=frozenset({"rule"})
    ),
    "synchronous-2": Kind(make=_average, ticks=_in_rounds, constant="initial_step"),
    # The release's name alone says to an owner what an algorithm asks (copriv-owner check).
    MOMENTS.name: Kind(
        make=partial(_made, SecondMoments),
        ticks=_each_in_turn,
        constant=None,
        uses=frozenset({"start"}),
        release=MOMENTS,
    ),
    NEWTON.name: Kind(
        make=_newton,
        ticks=_each_in_turn,
        constant=None,
        uses=frozenset({"curvature_share", "rounds"}),
        release=NEWTON,
    ),
}
"""Every algorithm, by its name."""

NO_KEYS = Kind(make=partial(_made, SecondMoments), ticks=_each_in_turn, constant=None)
"""What is known before an algorithm is chosen."""

OPTIONAL_KEYS = frozenset[str]().union(*(kind.keys for kind in ALGORITHMS.values()))
"""The keys that not every algorithm has."""


def simulated(algorithm: Algorithm[Any]) -> Simulated:
    """The same algorithm, where studies of it can be simulated.

    Raises:
      InputError: They cannot, so nothing is forecast or chosen for it.
    """
    if not isinstance(algorithm, Simulated):
        raise InputError(
            f"algorithm: studies of {type(algorithm).__name__} are not simulated, so nothing is "
            'forecast or chosen for it; give numbers instead of "auto"'
        )
    return algorithm
