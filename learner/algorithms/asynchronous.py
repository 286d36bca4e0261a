r"""Algorithm 1: asynchronous learning from noisy gradients, one owner at a time.

N owners with n_i of all n records, horizon T, step constant rho; sigma is the strong convexity
of the regulariser g, alpha = N rho/(T^2 sigma), and clip projects onto |theta_j| <= theta_max.
All models are 0 at k = 0. At tick k, with i = i_k:

    theta_bar = (theta_L + theta_i) / 2                                                 (6)
    Q_bar     = Q_i(theta_bar) + w, asked of owner i                                    (3)(4)
    theta_i  <- clip[ theta_bar - alpha ( grad g(theta_bar)/(2N) + (n_i/n) Q_bar ) ]    (5)
    theta_L  <- clip[ theta_bar - (N-1) rho/(N T^2 sigma) grad g(theta_bar) ]           (7)

All other copies stay. Equation numbers are those of Farokhi et al. (2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from common.arrays import Matrix, Vector
from common.errors import InputError
from common.losses import Regulariser
from learner.algorithms.clocks import Groups, Tick, each_alone

__all__ = [
    "Algorithm",
    "Asynchronous",
    "LearnerState",
    "Rule",
    "check_numbers",
    "inverse_frequency",
    "weighted_gradient",
]

State = TypeVar("State")
Rule = Literal["printed", "corrected"]

# An owner that is back after a long absence must not throw the model into a corner of the box.
LARGEST_COUNTED_FACTOR = 10.0


class Algorithm(Protocol[State]):
    """What the driver loop needs: it asks at ``query_point`` and applies what comes back."""

    def initial_state(self) -> State:
        """The state before the first tick."""

    def query_point(self, state: State, tick: Tick) -> Vector:
        """The model at which the tick's owners are asked for a gradient, shape (p,)."""

    def apply_responses(self, state: State, tick: Tick, responses: Mapping[int, Vector]) -> State:
        """The state after the noisy mean gradients, shape (p,) each, by owner index."""

    def central_model(self, state: State) -> Vector:
        """The result so far, shape (p,)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnerState:
    """The N + 1 models after k ticks; never changed in place.

    Args:
      theta_L: The central model, shape (p,).
      theta_i: The local copies, one per owner or group, shape (N, p).
      k: The number of ticks applied.
      tail_sum: Sum of theta_L over the ticks after the first half, shape (p,).
      counts: Ticks of each copy so far, shape (N,); None where nobody counts them.
    """

    theta_L: Vector  # noqa: N815
    theta_i: Matrix
    k: int
    tail_sum: Vector
    counts: Vector | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Asynchronous:
    """Algorithm 1 of the 2021 paper, with its Remarks 2 and 4.

    One owner without noise: the query points go half of the way of a projected gradient step,
    ``theta_bar <- (theta_bar + clip[theta_bar - alpha (grad g/2 + Q)])/2`` (printed rule).

    Args:
      weights: Shares n_i/n of the records, one per owner, summing to 1.
      num_features: The number p of coordinates of a model.
      theta_max: Half the side of the box of admissible models, L-infinity norm.
      regulariser: The term g, its coefficient above 0.
      rho: The step constant of (5) and (7).
      horizon: The number T of ticks of the study.
      rule: The factor in (7): "printed" is (N-1)/N; "corrected" is 1/2, the one that belongs
        to the 1/(2N) of (5). They agree at N = 2 and otherwise differ by the order of g.
      groups: Fixed sets of owners asked at the same time, each counting as one larger owner
        (Remark 2); N is then their number. Empty: every owner by itself.
      frequency: Relative frequency of the ticks of each owner or group, shape (N,), in any
        unit; gradients are scaled inversely to it (Remark 4). None: equal frequencies.
      counted: Whether the frequencies of Remark 4 are counted as the run goes instead: an owner
        that had c of the k ticks so far is scaled by (k + N)/(N (c + 1)), at most by 10. It is 1
        at first, and depends on nothing but the ticks applied, so a resumed run repeats it.
      tail_average: Whether the result is the mean of theta_L over the last half of the ticks,
        free post-processing, instead of the last theta_L.

    Raises:
      InputError: A value is outside what is said above (NaN is).

    >>> one = Asynchronous(weights=np.ones(1), num_features=1, theta_max=1.0,
    ...     regulariser=Regulariser(coefficient=0.5), rho=0.5, horizon=1)
    >>> state = one.apply_responses(one.initial_state(), Tick(0.3, (0,)), {0: np.array([-1.0])})
    >>> state.theta_i, one.query_point(state, Tick(0.9, (0,)))
    (array([[0.5]]), array([0.25]))
    """

    weights: Vector
    num_features: int
    theta_max: float
    regulariser: Regulariser
    rho: float
    horizon: int
    rule: Rule = "printed"
    groups: Groups = ()
    frequency: Vector | None = None
    counted: bool = False
    tail_average: bool = False

    def initial_state(self) -> LearnerState:
        """All N + 1 models are 0."""
        zero = np.zeros(self.num_features)
        copies = np.zeros((self.num_copies, self.num_features))
        counts = np.zeros(self.num_copies) if self.counted else None
        return LearnerState(theta_L=zero, theta_i=copies, k=0, tail_sum=zero, counts=counts)

    def query_point(self, state: LearnerState, tick: Tick) -> Vector:
        """Half-way between the central model and the copy of the tick's owner, shape (p,)."""
        # (6)
        middle: Vector = 0.5 * (state.theta_L + state.theta_i[self._slot(tick)])
        return middle

    def apply_responses(
        self, state: LearnerState, tick: Tick, responses: Mapping[int, Vector]
    ) -> LearnerState:
        """Move the copy of the tick's owner and the central model; all others stay."""
        i, k = self._slot(tick), state.k + 1
        theta_bar = self.query_point(state, tick)
        grad_g = self.regulariser.gradient(theta_bar)
        # (n_i/n) Q_bar, in a group (n_G/n) times the mean over its records; Remark 4's factor.
        response = self._factor(state, i) * weighted_gradient(self.weights, tick, responses)
        theta_i = state.theta_i.copy()
        # (5)
        theta_i[i] = self._clip(
            theta_bar - self.alpha * (grad_g / (2 * self.num_copies) + response)
        )
        # (7)
        theta_L = self._clip(theta_bar - self.central_step * grad_g)
        tail_sum = state.tail_sum + theta_L if k > self.tail_start else state.tail_sum
        counts = None if state.counts is None else state.counts + (np.arange(self.num_copies) == i)
        return LearnerState(theta_L=theta_L, theta_i=theta_i, k=k, tail_sum=tail_sum, counts=counts)

    def central_model(self, state: LearnerState) -> Vector:
        """The central model, or its mean over the last half of the ticks, shape (p,)."""
        if self.tail_average and state.k > self.tail_start:
            # A rounding may carry a mean of models on the boundary just across it.
            return self._clip(state.tail_sum / (state.k - self.tail_start))
        return state.theta_L

    @property
    def num_copies(self) -> int:
        """N: the number of owners, or of groups."""
        return len(self._groups)

    @property
    def alpha(self) -> float:
        """The step of (5), N rho/(T^2 sigma)."""
        return self.num_copies * self._unit_step

    @property
    def central_step(self) -> float:
        """The step of (7), (N-1)/N or 1/2 times rho/(T^2 sigma)."""
        N = self.num_copies
        return (0.5 if self.rule == "corrected" else (N - 1) / N) * self._unit_step

    @property
    def tail_start(self) -> int:
        """The number of ticks before those that the tail average is taken over."""
        return self.horizon // 2

    @cached_property
    def inverse_frequency(self) -> Vector:
        """Remark 4: mean frequency over own frequency, shape (N,); exactly 1 for equal ones."""
        rates = np.ones(self.num_copies) if self.frequency is None else self.frequency
        return inverse_frequency(rates)

    def _factor(self, state: LearnerState, slot: int) -> float:
        """Remark 4's factor at this tick: from known frequencies, or from the ticks before it."""
        if state.counts is None:
            return float(self.inverse_frequency[slot])
        N = self.num_copies
        factor = (state.k + N) / (N * (state.counts[slot] + 1))
        return float(min(factor, LARGEST_COUNTED_FACTOR))

    @cached_property
    def _unit_step(self) -> float:
        """rho/(T^2 sigma)."""
        return self.rho / (self.horizon**2 * self.regulariser.strong_convexity)

    @cached_property
    def _groups(self) -> Groups:
        return self.groups or each_alone(len(self.weights))

    @cached_property
    def _slots(self) -> dict[tuple[int, ...], int]:
        return {group: slot for slot, group in enumerate(self._groups)}

    def _slot(self, tick: Tick) -> int:
        """The index of the copy that belongs to the tick's owners."""
        if tick.owners not in self._slots:
            raise InputError(
                f"tick: got owners {tick.owners}, expected one of {self._groups}; "
                "give the clocks the algorithm's groups"
            )
        return self._slots[tick.owners]

    def _clip(self, theta: Vector) -> Vector:
        """Projection onto the box, where the owners' privacy bound holds."""
        return np.clip(theta, -self.theta_max, self.theta_max)

    def __post_init__(self) -> None:
        """Refuse what the equations are not defined for."""
        check_numbers(
            self.weights,
            num_features=self.num_features,
            theta_max=self.theta_max,
            regularisation=self.regulariser.coefficient,
            rho=self.rho,
            horizon=self.horizon,
        )
        owners, rates = [i for group in self._groups for i in group], self.frequency
        if sorted(owners) != list(range(len(self.weights))):
            raise InputError(
                f"groups: got {self.groups}, expected each of the {len(self.weights)} owners once"
            )
        if rates is not None and not (
            rates.shape == (self.num_copies,) and np.all(rates > 0) and np.all(np.isfinite(rates))
        ):
            raise InputError(
                f"frequency: got {rates}, expected {self.num_copies} finite numbers above 0"
            )
        if rates is not None and self.counted:
            raise InputError("frequency: expected none where frequencies are counted; leave it out")


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


def inverse_frequency(frequency: NDArray[np.float64]) -> NDArray[np.float64]:
    """Remark 4's factors: mean over own frequency, along the first axis; exactly 1 for equal ones.

    >>> inverse_frequency(np.array([[1.0, 3.0], [3.0, 3.0]]))
    array([[2.        , 1.        ],
           [0.66666667, 1.        ]])
    """
    # Ratios first: equal frequencies then give exactly N/N.
    factors: NDArray[np.float64] = (frequency[:, None] / frequency[None, :]).sum(axis=0)
    return factors / len(frequency)


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
