r"""Least squares from moments: every owner is asked once, and the learner solves as they arrive.

With a weight w_i for each owner and the noisy moments :math:`\bar A_i = X_i'X_i/n_i + W_i`,
:math:`\bar b_i = X_i'y_i/n_i + v_i` of those that have answered,

.. math:: \theta = \arg\min_{\|\theta\|_\infty \le \theta_{max}}
          \theta^\top (\bar A_+ + c I)\,\theta - 2\,\bar b^\top\theta, \qquad
          \bar A = \frac{\sum w_i \bar A_i}{\sum w_i},\quad
          \bar b = \frac{\sum w_i \bar b_i}{\sum w_i}

where :math:`\bar A_+` is the nearest positive semidefinite matrix: noise may have made small
directions negative, where the problem would have no minimum, and c is the coefficient of g.
With a public model to begin from, the noise is also taken back as far as its variance lets one
(:mod:`learner.algorithms.shrinkage`). All of it is post-processing, so it costs no privacy. It
keeps the :class:`~learner.algorithms.protocol.Algorithm` protocol, with ticks of one owner each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from common.arrays import Array, Vector
from common.losses import Regulariser
from common.moments import packed_length, unpack_moments
from learner.algorithms.box_least_squares import box_least_squares
from learner.algorithms.clocks import Tick
from learner.algorithms.protocol import check_numbers
from learner.algorithms.shrinkage import Around, StepNoise, shrunken_model


@dataclass(frozen=True, kw_only=True, eq=False)
class MomentsState:
    """What has arrived: weighted sums, and the model that they make.

    Args:
      total: Weighted sum of the owners' responses, packed.
      weight: Sum of their weights.
      variance: Sum of their noise's variances times their squared weights.
      theta: The model, shape (p,).
    """

    total: Vector
    weight: float
    variance: float
    theta: Vector


@dataclass(frozen=True, kw_only=True, eq=False)
class SecondMoments:
    """One noisy release of second moments from each owner, solved as they arrive.

    Args:
      weights: How much each owner's answer counts, the n_i/n or shares in which less noise adds up
        (:mod:`learner.planning.shares`), summing to 1.
      num_features: The number p of coordinates of a model.
      theta_max: Half the side of the box of admissible models, L-infinity norm.
      regulariser: The term g.
      around: The public model that the noise is taken back to; None to solve as it comes.
      scales: Scale b of each owner's noise, shape (N,); needed with a public model.

    Raises:
      InputError: A number is not positive and finite, or the weights do not sum to 1.

    >>> solver = SecondMoments(weights=np.ones(1), num_features=1, theta_max=9.0,
    ...     regulariser=Regulariser(coefficient=1e-9))
    >>> state = solver.apply_responses(solver.initial_state(), Tick(0.1, (0,)),
    ...     {0: np.array([2.0, 3.0])})
    >>> solver.central_model(state).round(6)
    array([1.5])
    """

    weights: Vector
    num_features: int
    theta_max: float
    regulariser: Regulariser
    around: Around | None = None
    scales: Vector | None = None

    def __post_init__(self) -> None:
        """Refuse what the solution is not defined for."""
        check_numbers(self.weights, theta_max=self.theta_max)

    def initial_state(self) -> MomentsState:
        """Nothing has arrived, and the model is the public one, or 0."""
        return MomentsState(
            total=np.zeros(packed_length(self.num_features)),
            weight=0.0,
            variance=0.0,
            theta=np.zeros(self.num_features) if self.around is None else self.around.theta,
        )

    def query_point(self, state: MomentsState, tick: Tick) -> Vector:
        """Moments depend on no model, so the query carries 0, shape (p,)."""
        del state, tick
        return np.zeros(self.num_features)

    def query_points(self, state: MomentsState, ticks: Iterable[Tick]) -> Iterator[Vector]:
        """No question waits for an answer."""
        return (self.query_point(state, tick) for tick in ticks)

    def apply_responses(
        self, state: MomentsState, tick: Tick, responses: Mapping[int, Vector]
    ) -> MomentsState:
        """Add the tick's moments by their owners' shares, and solve again."""
        scales = np.zeros(len(self.weights)) if self.scales is None else self.scales
        total, weight, variance = state.total, state.weight, state.variance
        for owner in tick.owners:
            if owner in responses:
                share = float(self.weights[owner])
                total = total + share * responses[owner]
                weight += share
                # Laplace noise of the scale b has the variance 2 b^2.
                variance += 2.0 * (share * float(scales[owner])) ** 2
        theta = self.solve(total / weight, variance / weight**2)
        return MomentsState(total=total, weight=weight, variance=variance, theta=theta)

    def central_model(self, state: MomentsState) -> Vector:
        """The solution so far, shape (p,)."""
        return state.theta

    def solve(self, packed: Array, variance: float = 0.0) -> Array:
        """The model of mean packed moments whose coordinates have this noise variance.

        Args:
          packed: Of one study, shape (length,), or of many, shape (R, length).
          variance: The noise's variance.
        """
        gram, cross = unpack_moments(packed, self.num_features)
        if self.around is not None:
            return self._shrunken(self.around, gram, cross, variance)
        if packed.ndim > 1:
            return np.stack([self.solve(one, variance) for one in packed])
        values, vectors = np.linalg.eigh(gram)
        positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
        ridge = self.regulariser.coefficient * np.eye(self.num_features)
        return box_least_squares(positive + ridge, cross, theta_max=self.theta_max)

    def _shrunken(self, around: Around, gram: Array, cross: Array, variance: float) -> Array:
        r"""The same around the public model, whose gradient is :math:`2(A\theta_0 - b)`.

        Its noise :math:`2(W\theta_0 - v)` has the covariance
        :math:`4\nu\,((1+\|\theta_0\|^2) I + \theta_0\theta_0' - \mathrm{diag}\,\theta_0^2)`,
        because W is symmetric.
        """
        theta, p = around.theta, self.num_features
        covariance = (1.0 + theta @ theta) * np.eye(p) + np.outer(theta, theta)
        covariance -= np.diag(theta**2)
        noise = StepNoise(entry=4.0 * variance, gradient=4.0 * variance * covariance)
        return shrunken_model(
            around,
            2.0 * gram,
            2.0 * (gram @ theta - cross),
            noise,
            regulariser=self.regulariser,
            theta_max=self.theta_max,
        )
