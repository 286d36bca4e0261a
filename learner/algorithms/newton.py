r"""One Newton step from the public model: every owner tells curvature and gradient once.

Owner i is asked at the public model :math:`\theta_0` (:class:`common.releases.Newton`), with the
whole of its epsilon. With weights w_i = n_i/n, of those that have answered,

.. math:: \hat H = \frac{\sum w_i \bar H_i}{\sum w_i}, \qquad
          \hat g = \frac{\sum w_i \bar g_i}{\sum w_i}

and the model is that of :func:`learner.algorithms.shrinkage.shrunken_model`. For squared loss these
are *residual moments*, X'X and X'r with :math:`r = y - X\theta_0`: residuals are smaller than
targets and may be cut off, so they need less noise than X'y. It keeps the
:class:`~learner.algorithms.protocol.Algorithm` protocol, with ticks of one owner each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.arrays import Vector
from common.losses import Regulariser
from common.moments import packed_length, unpack_moments
from learner.algorithms.clocks import Tick
from learner.algorithms.moments import MomentsState, received
from learner.algorithms.protocol import check_numbers
from learner.algorithms.shrinkage import Around, StepNoise, shrunken_model

__all__ = ["NewtonStep"]


@dataclass(frozen=True, kw_only=True, eq=False)
class NewtonStep:
    """One noisy curvature and gradient from each owner, solved as they arrive.

    Args:
      weights: Shares n_i/n of the records, one per owner, summing to 1.
      around: The public model, and what is known around it.
      curvature_scale: The public factor of the curvature in a response.
      scales: Scale b of each owner's noise, shape (N,); 0 for an owner that adds none.
      theta_max: Half the side of the box of admissible models, L-infinity norm.
      regulariser: The term g.

    Raises:
      InputError: A number is not positive and finite, or the weights do not sum to 1.

    >>> around = Around(theta=np.array([1.0]), curvature=2 * np.eye(1), offset=np.zeros(1),
    ...     spread=1.0, curvature_spread=0.1)
    >>> newton = NewtonStep(weights=np.ones(1), around=around, curvature_scale=0.5,
    ...     scales=np.zeros(1), theta_max=9.0, regulariser=Regulariser(coefficient=0.0))
    >>> state = newton.apply_responses(newton.initial_state(), Tick(0.1, (0,)),
    ...     {0: np.array([1.0, -4.0])})
    >>> newton.central_model(state)
    array([3.])
    """

    weights: Vector
    around: Around
    curvature_scale: float
    scales: Vector
    theta_max: float
    regulariser: Regulariser

    def __post_init__(self) -> None:
        """Refuse what the solution is not defined for."""
        check_numbers(self.weights, theta_max=self.theta_max, curvature_scale=self.curvature_scale)

    @property
    def num_features(self) -> int:
        """The number p of coordinates of a model."""
        return self.around.theta.size

    def initial_state(self) -> MomentsState:
        """Nothing has arrived, and the model is the public one."""
        return MomentsState(
            total=np.zeros(packed_length(self.num_features)),
            weight=0.0,
            variance=0.0,
            theta=self.around.theta,
        )

    def query_point(self, state: MomentsState, tick: Tick) -> Vector:
        """The public model, shape (p,), whatever has arrived."""
        del state, tick
        return self.around.theta

    def apply_responses(
        self, state: MomentsState, tick: Tick, responses: Mapping[int, Vector]
    ) -> MomentsState:
        """Add the tick's responses by their owners' shares, and solve again."""
        return received(
            state, tick, responses, weights=self.weights, scales=self.scales, solve=self.solve
        )

    def central_model(self, state: MomentsState) -> Vector:
        """The model so far, shape (p,)."""
        return state.theta

    def solve(self, packed: NDArray[np.float64], variance: float) -> NDArray[np.float64]:
        """The model of mean packed responses whose coordinates have this noise variance.

        Args:
          packed: Of one study, shape (length,), or of many, shape (..., length).
          variance: The noise's variance.
        """
        scaled, gradient = unpack_moments(packed, self.num_features)
        noise = StepNoise(
            entry=variance / self.curvature_scale**2,
            gradient=variance * np.eye(self.num_features),
        )
        return shrunken_model(
            self.around,
            scaled / self.curvature_scale,
            gradient,
            noise,
            regulariser=self.regulariser,
            theta_max=self.theta_max,
        )
