r"""Algorithms 1 and 2 of the synchronous paper: every round asks every owner.

With weights n_i/n and the noisy mean gradients Q_bar_i of the round,

    G_k = subgrad g(theta[k]) + sum_i (n_i/n) Q_bar_i

Both keep the :class:`~learner.algorithms.protocol.Algorithm` protocol, so that the loop that
drives the asynchronous algorithm drives them too, on the ticks of
:func:`~learner.algorithms.clocks.synchronous_rounds`. The print counts k up to T - 1; here all T
rounds that the owners' budgets pay for are used. An owner that is the learner itself may be asked
without noise; nothing here depends on it.

Reference: section II-B of Wu et al. (2020).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from common.arrays import Vector
from common.losses import Regulariser
from learner.algorithms.clocks import Tick
from learner.algorithms.protocol import check_numbers, weighted_gradient


@dataclass(frozen=True, kw_only=True, eq=False)
class SynchronousState:
    """The models after k rounds; never changed in place.

    Args:
      theta: The model theta[k + 1], shape (p,).
      average: Its running average, shape (p,); Algorithm 1 leaves it 0.
      k: The number of rounds applied.
    """

    theta: Vector
    average: Vector
    k: int


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rounds:
    """What both algorithms share: where they begin, at what owners are asked, and G_k.

    Args:
      weights: Shares n_i/n of the records, one per owner, summing to 1.
      num_features: The number p of coordinates of a model.
      theta_max: Half the side of the box of admissible models, L-infinity norm.
      regulariser: The term g; its coefficient may be 0.
      horizon: The number T of rounds.

    Raises:
      InputError: A number is not positive and finite, or the weights do not sum to 1.
    """

    weights: Vector
    num_features: int
    theta_max: float
    regulariser: Regulariser
    horizon: int

    def initial_state(self) -> SynchronousState:
        """The model and its average are 0."""
        zero = np.zeros(self.num_features)
        return SynchronousState(theta=zero, average=zero, k=0)

    def query_point(self, state: SynchronousState, tick: Tick) -> Vector:
        """The current model, not the average, shape (p,), whoever is asked."""
        del tick
        return state.theta

    def query_points(self, state: SynchronousState, ticks: Iterable[Tick]) -> Iterator[Vector]:
        """That of the first tick alone: every round needs the answers of the one before."""
        return (state.theta for _ in islice(ticks, 1))

    def _gradient(
        self, state: SynchronousState, tick: Tick, responses: Mapping[int, Vector]
    ) -> Vector:
        """The noisy gradient of the fitness at the current model, shape (p,)."""
        loss = weighted_gradient(self.weights, tick, responses)
        return self.regulariser.gradient(state.theta) + loss


@dataclass(frozen=True, kw_only=True, eq=False)
class SynchronousDescent(_Rounds):
    r"""Algorithm 1 of the 2020 paper, for smooth and strongly convex fitness.

    .. math:: \theta[k+1] = \mathrm{clip}[\theta[k] - \tfrac{\rho}{T^2 k} G_k], \quad \theta[1] = 0

    The paper prints it without the projection. But the owners' privacy bound holds only inside
    the box, so owners refuse a query from outside it; ``projection=False`` is the printed form,
    for studies whose models stay inside.

    Args:
      rho: The step constant.
      projection: Whether each model is projected onto the box.

    >>> descent = SynchronousDescent(weights=np.array([0.5, 0.5]), num_features=1, theta_max=1.0,
    ...     regulariser=Regulariser(coefficient=0.0), rho=4.0, horizon=2)
    >>> responses = {0: np.array([-0.5]), 1: np.array([-1.0])}
    >>> descent.apply_responses(descent.initial_state(), Tick(1.0, (0, 1)), responses).theta
    array([0.75])
    """

    rho: float
    projection: bool = True

    def __post_init__(self) -> None:
        """Refuse what the update is not defined for."""
        check_numbers(self.weights, theta_max=self.theta_max, rho=self.rho, horizon=self.horizon)

    def apply_responses(
        self, state: SynchronousState, tick: Tick, responses: Mapping[int, Vector]
    ) -> SynchronousState:
        """One step against the gradient of the fitness."""
        k = state.k + 1
        G = self._gradient(state, tick, responses)
        theta = state.theta - self.rho / (self.horizon**2 * k) * G
        if self.projection:
            theta = np.clip(theta, -self.theta_max, self.theta_max)
        return SynchronousState(theta=theta, average=state.average, k=k)

    def central_model(self, state: SynchronousState) -> Vector:
        """The current model, shape (p,)."""
        return state.theta


@dataclass(frozen=True, kw_only=True, eq=False)
class SynchronousAverage(_Rounds):
    r"""Algorithm 2 of the 2020 paper, for any convex fitness.

    .. math::
       \theta[k+1] &= \mathrm{clip}[\theta[k] - \tfrac{c_1}{\sqrt k} G_k], \quad \theta[1] = 0 \\
       \bar\theta[k+1] &= \frac{k-1}{1/\sqrt T+k}\bar\theta[k]
                        + \frac{1/\sqrt T+1}{1/\sqrt T+k}\theta[k] \tag{8}

    The result is the average, which therefore is one model behind.

    Args:
      initial_step: The paper's c_1, the step of the first round.

    >>> average = SynchronousAverage(weights=np.ones(1), num_features=1, theta_max=1.0,
    ...     regulariser=Regulariser(coefficient=0.0), initial_step=0.5, horizon=2)
    >>> state = average.apply_responses(
    ...     average.initial_state(), Tick(1.0, (0,)), {0: np.array([-1.0])})
    >>> state.theta, average.central_model(state)
    (array([0.5]), array([0.]))
    """

    initial_step: float

    def __post_init__(self) -> None:
        """Refuse what the update is not defined for."""
        check_numbers(
            self.weights,
            theta_max=self.theta_max,
            initial_step=self.initial_step,
            horizon=self.horizon,
        )

    def apply_responses(
        self, state: SynchronousState, tick: Tick, responses: Mapping[int, Vector]
    ) -> SynchronousState:
        """One projected step, and one more model in the average."""
        k = state.k + 1
        G = self._gradient(state, tick, responses)
        theta = np.clip(
            state.theta - self.initial_step / math.sqrt(k) * G, -self.theta_max, self.theta_max
        )
        # (8); with k = 1 it starts at theta[1].
        d = 1.0 / math.sqrt(self.horizon)
        average = (k - 1) / (d + k) * state.average + (d + 1) / (d + k) * state.theta
        return SynchronousState(theta=theta, average=average, k=k)

    def central_model(self, state: SynchronousState) -> Vector:
        """The running average, shape (p,)."""
        return state.average
