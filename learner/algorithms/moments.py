r"""Least squares from moments: every owner is asked once, and the learner solves as they arrive.

With weights w_i = n_i/n and the noisy moments :math:`\bar A_i = X_i'X_i/n_i + W_i`,
:math:`\bar b_i = X_i'y_i/n_i + v_i` of those that have answered,

.. math:: \theta = \arg\min_{\|\theta\|_\infty \le \theta_{max}}
          \theta^\top (\bar A_+ + c I)\,\theta - 2\,\bar b^\top\theta, \qquad
          \bar A = \frac{\sum w_i \bar A_i}{\sum w_i},\quad
          \bar b = \frac{\sum w_i \bar b_i}{\sum w_i}

where :math:`\bar A_+` is the nearest positive semidefinite matrix: noise may have made small
directions negative, where the problem would have no minimum, and c is the coefficient of g.
All of it is post-processing, so it costs no privacy. It keeps the
:class:`~learner.algorithms.protocol.Algorithm` protocol, with ticks of one owner each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from common.arrays import Vector
from common.losses import Regulariser
from common.moments import packed_length, unpack_moments
from learner.algorithms.box_least_squares import box_least_squares
from learner.algorithms.clocks import Tick
from learner.algorithms.protocol import check_numbers

__all__ = ["MomentsState", "SecondMoments"]


@dataclass(frozen=True, kw_only=True, eq=False)
class MomentsState:
    """What has arrived: weighted sum of packed moments, the sum of the weights, and the model."""

    total: Vector
    weight: float
    theta: Vector


@dataclass(frozen=True, kw_only=True, eq=False)
class SecondMoments:
    """One noisy release of second moments from each owner, solved as they arrive.

    Args:
      weights: Shares n_i/n of the records, one per owner, summing to 1.
      num_features: The number p of coordinates of a model.
      theta_max: Half the side of the box of admissible models, L-infinity norm.
      regulariser: The term g.

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

    def __post_init__(self) -> None:
        """Refuse what the solution is not defined for."""
        check_numbers(self.weights, theta_max=self.theta_max)

    def initial_state(self) -> MomentsState:
        """Nothing has arrived, and the model is 0."""
        return MomentsState(
            total=np.zeros(packed_length(self.num_features)),
            weight=0.0,
            theta=np.zeros(self.num_features),
        )

    def query_point(self, state: MomentsState, tick: Tick) -> Vector:
        """Moments depend on no model, so the query carries 0, shape (p,)."""
        del state, tick
        return np.zeros(self.num_features)

    def apply_responses(
        self, state: MomentsState, tick: Tick, responses: Mapping[int, Vector]
    ) -> MomentsState:
        """Add the tick's moments by their owners' shares, and solve again."""
        total, weight = state.total, state.weight
        for owner in tick.owners:
            if owner in responses:
                total = total + self.weights[owner] * responses[owner]
                weight += float(self.weights[owner])
        return MomentsState(total=total, weight=weight, theta=self.solve(total / weight))

    def central_model(self, state: MomentsState) -> Vector:
        """The solution so far, shape (p,)."""
        return state.theta

    def solve(self, packed: Vector) -> Vector:
        """The model of mean packed moments, shape (p,)."""
        gram, cross = unpack_moments(packed, self.num_features)
        values, vectors = np.linalg.eigh(gram)
        positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
        ridge = self.regulariser.coefficient * np.eye(self.num_features)
        return box_least_squares(positive + ridge, cross, theta_max=self.theta_max)
