r"""Algorithm 1: asynchronous learning from noisy gradients, one owner at a time.

N owners with n_i of all n records, horizon T, step constant rho; sigma is the strong convexity
of the regulariser g, alpha = N rho/(T^2 sigma), and clip projects onto |theta_j| <= theta_max.
All models are 0 at k = 0. At tick k, with i = i_k:

    theta_bar = (theta_L + theta_i) / 2                                                 (6)
    Q_bar     = Q_i(theta_bar) + w, asked of owner i                                    (3)(4)
    theta_i  <- clip[ theta_bar - alpha ( grad g(theta_bar)/(2N) + (n_i/n) Q_bar ) ]    (5)
    theta_L  <- clip[ theta_bar - (N-1) rho/(N T^2 sigma) grad g(theta_bar) ]           (7)

All other copies stay. Nothing in (7) waits for Q_bar, so the question of the next tick is known
before this one's answer unless it goes to the same owner. Equation numbers are those of Farokhi et
al. (2021). With one owner and without noise the query points go half of the way of a projected
gradient step, theta_bar <- (theta_bar + clip[theta_bar - alpha (grad g/2 + Q)])/2 (printed rule).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from common.arrays import Matrix, Vector
from common.losses import Regulariser
from learner.algorithms.clocks import Tick
from learner.algorithms.protocol import weighted_gradient
from learner.algorithms.variants import Variants
from learner.algorithms.versions import Versioned

Rule = Literal["printed", "corrected"]


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnerState:
    """The N + 1 models after k ticks, as a value.

    Args:
      theta_L: The central model, shape (p,).
      copies: The local copies, one per owner or group, shape (N, p).
      k: The number of ticks applied.
      tail_sum: Sum of theta_L over the ticks after the first half, shape (p,).
      counts: Ticks of each copy so far, shape (N,); None where nobody counts them.
    """

    theta_L: Vector  # noqa: N815
    copies: Versioned
    k: int
    tail_sum: Vector
    counts: Versioned | None = None

    @property
    def theta_i(self) -> Matrix:
        """All local copies, shape (N, p)."""
        return self.copies.whole()


@dataclass(frozen=True, kw_only=True, eq=False)
class Asynchronous(Variants):
    """Algorithm 1 of the 2021 paper; its variants are those of :class:`Variants`.

    Args:
      num_features: The number p of coordinates of a model.
      theta_max: Half the side of the box of admissible models, L-infinity norm.
      regulariser: The term g, its coefficient above 0.
      rho: The step constant of (5) and (7).
      rule: The factor in (7): "printed" is (N-1)/N; "corrected" is 1/2, the one that belongs
        to the 1/(2N) of (5). They agree at N = 2 and otherwise differ by the order of g.

    >>> one = Asynchronous(weights=np.ones(1), num_features=1, theta_max=1.0,
    ...     regulariser=Regulariser(coefficient=0.5), rho=0.5, horizon=1)
    >>> state = one.apply_responses(one.initial_state(), Tick(0.3, (0,)), {0: np.array([-1.0])})
    >>> state.theta_i, one.query_point(state, Tick(0.9, (0,)))
    (array([[0.5]]), array([0.25]))
    """

    num_features: int
    theta_max: float
    regulariser: Regulariser
    rho: float
    rule: Rule = "printed"

    def initial_state(self) -> LearnerState:
        """All N + 1 models are 0, or where the study starts."""
        zero = np.zeros(self.num_features)
        start = zero if self.start is None else self.start
        copies = np.tile(start, (self.num_copies, 1))
        return LearnerState(
            theta_L=start, copies=Versioned(copies), k=0, tail_sum=zero, counts=self.no_counts()
        )

    def query_point(self, state: LearnerState, tick: Tick) -> Vector:
        """Half-way between the central model and the copy of the tick's owner, shape (p,)."""
        return _middle(state.theta_L, state.copies.row(self.slot(tick)))

    def query_points(self, state: LearnerState, ticks: Iterable[Tick]) -> Iterator[Vector]:
        """The query points of these ticks, until one needs a copy that an answer is to move."""
        theta_L, asked = state.theta_L, set[int]()
        for tick in ticks:
            i = self.slot(tick)
            if i in asked:
                return
            asked.add(i)
            theta_bar = _middle(theta_L, state.copies.row(i))
            yield theta_bar
            theta_L = self._central(theta_bar, self.regulariser.gradient(theta_bar))

    def apply_responses(
        self, state: LearnerState, tick: Tick, responses: Mapping[int, Vector]
    ) -> LearnerState:
        """Move the copy of the tick's owner and the central model; all others stay."""
        i, k, N = self.slot(tick), state.k + 1, self.num_copies
        theta_bar = self.query_point(state, tick)
        grad_g = self.regulariser.gradient(theta_bar)
        # (n_i/n) Q_bar, in a group (n_G/n) times the mean over its records; Remark 4's factor.
        factor = self.factor(i, k=state.k, counts=state.counts)
        response = factor * weighted_gradient(self.weights, tick, responses)
        # (5)
        theta_i = self._clip(theta_bar - self.alpha * (grad_g / (2 * N) + response))
        theta_L = self._central(theta_bar, grad_g)
        tail_sum = state.tail_sum + theta_L if k > self.tail_start else state.tail_sum
        return LearnerState(
            theta_L=theta_L,
            copies=state.copies.replaced(i, theta_i),
            k=k,
            tail_sum=tail_sum,
            counts=self.one_more(state.counts, i),
        )

    def central_model(self, state: LearnerState) -> Vector:
        """The central model, or its mean over the last half of the ticks, shape (p,)."""
        if self.tail_average and state.k > self.tail_start:
            # A rounding may carry a mean of models on the boundary just across it.
            return self._clip(state.tail_sum / (state.k - self.tail_start))
        return state.theta_L

    @property
    def alpha(self) -> float:
        """The step of (5), N rho/(T^2 sigma)."""
        return self.num_copies * self._unit_step

    @property
    def central_factor(self) -> float:
        """The factor in (7), (N-1)/N or 1/2."""
        N = self.num_copies
        return 0.5 if self.rule == "corrected" else (N - 1) / N

    @property
    def central_step(self) -> float:
        """The step of (7), its factor times rho/(T^2 sigma)."""
        return self.central_factor * self._unit_step

    @cached_property
    def _unit_step(self) -> float:
        """rho/(T^2 sigma)."""
        return self.rho / (self.horizon**2 * self.regulariser.strong_convexity)

    def _central(self, theta_bar: Vector, grad_g: Vector) -> Vector:
        """The central model after a tick at theta_bar, whatever its owner answers, shape (p,)."""
        # (7)
        return self._clip(theta_bar - self.central_step * grad_g)

    def _clip(self, theta: Vector) -> Vector:
        """Projection onto the box, where the owners' privacy bound holds."""
        # As np.clip, without what it calls before it clips.
        return np.minimum(np.maximum(theta, -self.theta_max), self.theta_max)

    def __post_init__(self) -> None:
        """Refuse what the equations are not defined for."""
        c, p = self.regulariser.coefficient, self.num_features
        self.check(num_features=p, theta_max=self.theta_max, regularisation=c, rho=self.rho)


def _middle(theta_L: Vector, theta_i: Vector) -> Vector:
    """Half-way between the central model and a copy, shape (p,)."""
    # (6)
    return 0.5 * (theta_L + theta_i)
