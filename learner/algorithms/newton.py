r"""Newton's steps from the public model, in one round or a few.

In every round each owner is asked once, at the model of the rounds before
(:class:`common.releases.Newton`), for an equal part of its epsilon; the first round asks at the
public model, shrunk by a ridge, :math:`\theta_0`
(:attr:`learner.simulated.groups.PublicGroups.start`). With a weight w_i for each
owner, of those that have answered in round r,

.. math:: \hat H_r = \frac{\sum w_i \bar H_i}{\sum w_i}, \qquad
          \hat g_r = \frac{\sum w_i \bar g_i}{\sum w_i}

The rounds' curvatures are averaged, their gradients are taken back to :math:`\theta_0`
(:meth:`learner.algorithms.shrinkage.Blend.at_public`), and the model is one shrunken step from
there. One round leaves all of epsilon to one answer, and is best near :math:`\theta_0`; where the
owners are far from it, the noise of the curvature counts times the step, and a second round, whose
step is short, mends what the first one missed.

For squared loss these are *residual moments*, X'X and X'r with :math:`r = y - X\theta_r`: residuals
are smaller than targets and may be cut off, so they need less noise than X'y. It keeps the
:class:`~learner.algorithms.protocol.Algorithm` protocol, with ticks of one owner each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from common.arrays import Array, Vector
from common.losses import Regulariser
from common.moments import packed_length, unpack_moments
from learner.algorithms.clocks import Tick
from learner.algorithms.protocol import check_numbers
from learner.algorithms.shrinkage import Around, Blend

# How much the curvature of a loss that is not squared is taken to vary from one model to the next.
BEND = 0.02


@dataclass(frozen=True, kw_only=True, eq=False)
class Round:
    """What the owners answered in one round.

    Args:
      theta: The model that they were asked at, shape (p,), or one for each of many studies.
      total: Weighted sum of their packed answers, shape (length,), or (..., length).
      weight: Sum of their weights.
      variance: Sum of their noise's variances times their squared weights.
    """

    theta: Array
    total: Array
    weight: float = 1.0
    variance: float


@dataclass(frozen=True, kw_only=True, eq=False)
class NewtonState:
    """What has arrived, and the model that it makes.

    Args:
      rounds: The rounds so far, one at least.
      last: The round in which each owner answered last, -1 before it has.
      theta: The model, shape (p,).
    """

    rounds: tuple[Round, ...]
    last: tuple[int, ...]
    theta: Vector


@dataclass(frozen=True, kw_only=True, eq=False)
class NewtonStep:
    """Noisy curvatures and gradients from each owner, solved as they arrive.

    A round is over when an owner that answered in it is asked again. An owner that was away
    answers what it was asked first, so its answer counts for that round.

    Args:
      weights: How much each owner's answer counts, the n_i/n or shares in which less noise adds up
        (:mod:`learner.planning.shares`), summing to 1.
      around: The public model, and what is known around it.
      curvature_scale: The public factor of the curvature in a response.
      scales: Scale b of each owner's noise, shape (N,); 0 for an owner that adds none.
      theta_max: Half the side of the box of admissible models, L-infinity norm.
      regulariser: The term g.
      rounds: How often each owner is asked.
      is_quadratic: Whether the loss has the same curvature everywhere.

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
    rounds: int = 1
    is_quadratic: bool = True

    def __post_init__(self) -> None:
        """Refuse what the solution is not defined for."""
        check_numbers(
            self.weights,
            theta_max=self.theta_max,
            curvature_scale=self.curvature_scale,
            rounds=self.rounds,
        )

    @property
    def num_features(self) -> int:
        """The number p of coordinates of a model."""
        return self.around.theta.size

    def initial_state(self) -> NewtonState:
        """Nothing has arrived, and the model is the public one."""
        return NewtonState(
            rounds=(self._asked_at(self.around.theta),),
            last=(-1,) * len(self.weights),
            theta=self.around.theta,
        )

    def query_point(self, state: NewtonState, tick: Tick) -> Vector:
        """The model of the rounds before, shape (p,), whatever has arrived in this one."""
        return state.theta if _is_over(state, tick) else state.rounds[-1].theta

    def query_points(self, state: NewtonState, ticks: Iterable[Tick]) -> Iterator[Vector]:
        """The query points of these ticks, as long as they belong to the round of the first."""
        asked, begins = set[int](), False
        for tick in ticks:
            begins = begins or (not asked and _is_over(state, tick))
            if asked.intersection(tick.owners) or (not begins and _is_over(state, tick)):
                return
            asked.update(tick.owners)
            yield state.theta if begins else state.rounds[-1].theta

    def apply_responses(
        self, state: NewtonState, tick: Tick, responses: Mapping[int, Vector]
    ) -> NewtonState:
        """Add the tick's responses by their owners' shares, and solve again."""
        rounds, last = list(state.rounds), list(state.last)
        if _is_over(state, tick):
            rounds.append(self._asked_at(state.theta))
        for owner in tick.owners:
            if owner in responses:
                share, asked = float(self.weights[owner]), last[owner] + 1
                rounds[asked] = replace(
                    rounds[asked],
                    total=rounds[asked].total + share * responses[owner],
                    weight=rounds[asked].weight + share,
                    variance=rounds[asked].variance + 2.0 * (share * self.scales[owner]) ** 2,
                )
                last[owner] = len(rounds) - 1
        theta = self.solve([each for each in rounds if each.weight])
        return NewtonState(rounds=tuple(rounds), last=tuple(last), theta=theta)

    def central_model(self, state: NewtonState) -> Vector:
        """The model so far, shape (p,)."""
        return state.theta

    def solve(self, rounds: Sequence[Round]) -> Array:
        """The model of these rounds, of one study or of many, shape (..., p)."""
        scale, gradients, curvatures, parts = self.curvature_scale, [], [], []
        for each in rounds:
            scaled, gradient = unpack_moments(each.total / each.weight, self.num_features)
            variance = each.variance / each.weight**2
            gradients.append((each.theta, gradient, variance))
            curvatures.append(scaled / scale)
            # Those of fewer owners, or of more noise, count less; without noise all alike.
            parts.append(1.0 / variance if variance else 1.0)
        shares = np.array(parts) / sum(parts)
        curvature = sum(share * one for share, one in zip(shares, curvatures, strict=True))
        variance = sum(
            share**2 * one for share, (_, _, one) in zip(shares.tolist(), gradients, strict=True)
        )
        blend = Blend.of(
            self.around,
            curvature,
            variance / scale**2,
            regulariser=self.regulariser,
            is_everywhere=self.is_quadratic,
        )
        blend = blend.taught(gradients)
        bend = 0.0 if self.is_quadratic else BEND
        gradient, noise = blend.at_public(gradients, bend=bend)
        return blend.model(gradient, noise, theta_max=self.theta_max)

    def _asked_at(self, theta: Vector) -> Round:
        """A round in which nobody has answered."""
        length = packed_length(self.num_features)
        return Round(theta=theta, total=np.zeros(length), weight=0.0, variance=0.0)


def _is_over(state: NewtonState, tick: Tick) -> bool:
    """Whether this tick begins another round."""
    return any(state.last[owner] == len(state.rounds) - 1 for owner in tick.owners)
