"""What every algorithm shares: the protocol that the driver loop needs, checks, and one sum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

import numpy as np

from common.arrays import Vector
from common.errors import InputError
from learner.algorithms.clocks import Tick

State = TypeVar("State")


class Algorithm(Protocol[State]):
    """What the driver loop needs: it asks at ``query_point`` and applies what comes back."""

    def initial_state(self) -> State:
        """The state before the first tick."""

    def query_point(self, state: State, tick: Tick) -> Vector:
        """The model at which the tick's owners are asked for a gradient, shape (p,)."""

    def query_points(self, state: State, ticks: Iterable[Tick]) -> Iterator[Vector]:
        """The same for these ticks, one after the other, as far as no answer of theirs decides it.

        It ends before the first whose model depends on the answer to one before it. What it
        gives is, bit for bit, what :meth:`query_point` gives once those before are applied.
        """

    def apply_responses(self, state: State, tick: Tick, responses: Mapping[int, Vector]) -> State:
        """The state after the noisy mean gradients, shape (p,) each, by owner index."""

    def central_model(self, state: State) -> Vector:
        """The result so far, shape (p,)."""


class OutsideBoxError(InputError):
    """A model at which no owner answers: its privacy bound holds only inside the box.

    Args:
      theta_max: Half the side of the box that the study agreed on, L-infinity norm.
    """

    def __init__(self, theta_max: float) -> None:
        super().__init__(
            f"the model has left the box of half side {theta_max:g} (model.theta_max), and owners "
            'answer only inside it; begin a new run with algorithm.rule = "corrected", or with a '
            "smaller algorithm.rho"
        )


def check_inside(theta: Vector, theta_max: float) -> None:
    """Refuse to ask at a model that owners would refuse; only unprojected steps come to one.

    Args:
      theta: The model, shape (p,).
      theta_max: Half the side of the box, L-infinity norm.

    Raises:
      OutsideBoxError: The model is outside.

    >>> check_inside(np.array([0.5, -0.5]), theta_max=0.5)
    """
    if np.abs(theta).max() > theta_max:
        raise OutsideBoxError(theta_max)


def check_numbers(weights: Vector, **positive: float) -> None:
    """Refuse weights that are no shares, and numbers that are not positive and finite.

    Raises:
      InputError: It names the number, its value and what was expected.

    >>> check_numbers(np.array([0.25, 0.75]), rho=1e-3)
    """
    if not (np.all(weights > 0) and abs(np.sum(weights) - 1) < 1e-9):
        raise InputError(
            f"weights: got {weights}, expected positive shares of the records that sum to 1"
        )
    for name, value in positive.items():
        if not 0 < value < np.inf:
            raise InputError(f"{name}: got {value}, expected a finite number above 0")


def weighted_gradient(weights: Vector, tick: Tick, responses: Mapping[int, Vector]) -> Vector:
    r"""Sum of (n_i/n) Q_bar_i over the tick's owners, in their order, shape (p,).

    An owner that is away leaves the others to speak for all: of the tick's owners S, those in
    A answered, and

    .. math:: \frac{\sum_{S} n_i}{\sum_{A} n_i} \sum_{i \in A} \frac{n_i}{n} \bar Q_i

    keeps the tick's weight. No response is lost by it: what an absent owner was charged for
    comes with a later tick, when it is back and repeats its answer.

    >>> weights, both = np.array([0.25, 0.75]), Tick(1.0, (0, 1))
    >>> weighted_gradient(weights, both, {0: np.array([4.0]), 1: np.array([8.0])})
    array([7.])
    >>> weighted_gradient(weights, both, {0: np.array([4.0])})
    array([4.])

    References: Remark 2 of Farokhi et al. (2021) for several owners at the same time.
    """
    # One fixed order of additions, so that equal seeds give equal bits over any transport.
    first, *others = (owner for owner in tick.owners if owner in responses)
    total: Vector = weights[first] * responses[first]
    for owner in others:
        total = total + weights[owner] * responses[owner]
    if len(others) + 1 < len(tick.owners):
        total = total * (weights[list(tick.owners)].sum() / weights[[first, *others]].sum())
    return total
