r"""What one owner computes: (shard, query) -> charged, noised response.

    Q_i(theta)     = (1/n_i) sum over the shard of grad loss             (3)
    Q_bar_i(theta) = Q_i(theta) + w,   w ~ Laplace(b) per coordinate     (4)

No file, clock, network or randomness here: noise comes in as integers on the plan's grid.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from common.arrays import Units, Vector
from common.errors import BudgetSpentError, MalformedError, OrderError
from common.losses import Loss, loss_of
from common.moments import pack_moments
from common.privacy import LARGEST_VALUE_UNITS, NoisePlan
from common.releases import GRADIENT, MOMENTS
from common.terms import Records, StudyTerms

__all__ = [
    "EXACT",
    "Account",
    "Shard",
    "Step",
    "check_theta",
    "exact_answer",
    "mean_gradient",
    "next_step",
    "release",
    "seeded_noise",
    "theta_digest",
]


@dataclass(frozen=True)
class Shard:
    """An owner's records with what makes queries cheap.

    ``einsum`` instead of ``@`` keeps one summation order whatever the number of BLAS threads,
    so that equal seeds give equal bits in every process.
    """

    records: Records

    @property
    def num_bytes(self) -> int:
        """About what it takes of memory: features, targets, norms."""
        return self.records.features.nbytes + 2 * self.records.targets.nbytes

    @property
    def num_features(self) -> int:
        """The number p of features."""
        return int(self.records.features.shape[1])

    @cached_property
    def gram(self) -> NDArray[np.float64]:
        """Second moments X'X/n, shape (p, p)."""
        x = self.records.features
        gram: NDArray[np.float64] = np.einsum("ni,nj->ij", x, x) / len(self.records)
        return gram

    @cached_property
    def cross(self) -> Vector:
        """Moments X'y/n, shape (p,)."""
        x, y = self.records.features, self.records.targets
        cross: Vector = np.einsum("ni,n->i", x, y) / len(self.records)
        return cross

    @cached_property
    def feature_norms(self) -> Vector:
        """L1 norm of each record's features, shape (n,)."""
        norms: Vector = np.abs(self.records.features).sum(axis=1)
        return norms


def mean_gradient(shard: Shard, theta: Vector, *, loss: Loss, clip: float | None) -> Vector:
    r"""Query (3): the mean of the records' gradients, each scaled down to L1 norm ``clip``.

    A record's gradient is :math:`s\,x` with slope s, so clipping it clips the slope to
    :math:`\pm C/\|x\|_1`. Unclipped squared loss needs only the moments:
    :math:`Q_i(\theta) = 2(X'X\theta - X'y)/n_i`.

    Args:
      shard: The owner's records.
      theta: Where the gradient is asked for, shape (p,).
      loss: The loss.
      clip: The L1 norm C, in gradient units; None for no clipping.

    Returns:
      The exact mean gradient, shape (p,); it must not leave the owner.

    >>> shard = Shard(Records(features=np.array([[1.0], [2.0]]), targets=np.zeros(2)))
    >>> from common.losses import Squared
    >>> mean_gradient(shard, np.array([1.0]), loss=Squared(), clip=None)
    array([5.])
    >>> mean_gradient(shard, np.array([1.0]), loss=Squared(), clip=2.0)
    array([2.])

    References: equation (3) of Farokhi et al. (2021).
    """
    if loss.is_quadratic and clip is None:
        exact: Vector = 2.0 * (np.einsum("ij,j->i", shard.gram, theta) - shard.cross)
        return exact
    x, y = shard.records.features, shard.records.targets
    slopes = loss.slopes(np.einsum("ni,i->n", x, theta), y)
    if clip is not None:
        # A record of (nearly) zeros has a gradient of (nearly) zero: its slope may be anything.
        with np.errstate(divide="ignore", over="ignore"):
            largest = clip / shard.feature_norms
        slopes = np.clip(slopes, -largest, largest)
    mean: Vector = np.einsum("n,ni->i", slopes, x) / len(shard.records)
    return mean


def exact_answer(shard: Shard, theta: Vector, terms: StudyTerms) -> Vector:
    """What the study's response is before its noise: the mean gradient, or the moments.

    Moments depend on no model; their only query carries any theta of the box.

    Returns:
      Shape (p,) or (p(p+1)/2 + p,); it must not leave the owner.
    """
    return EXACT[terms.release](shard, theta, terms)


def _gradient(shard: Shard, theta: Vector, terms: StudyTerms) -> Vector:
    """Query (3) at the query's model."""
    return mean_gradient(shard, theta, loss=loss_of(terms), clip=terms.clip)


def _moments(shard: Shard, theta: Vector, terms: StudyTerms) -> Vector:
    """The packed second moments, whatever the model."""
    del theta, terms
    return pack_moments(shard.gram, shard.cross)


EXACT: dict[str, Callable[[Shard, Vector, StudyTerms], Vector]] = {
    GRADIENT.name: _gradient,
    MOMENTS.name: _moments,
}
"""The exact answer of each of ``common.releases.RELEASES``."""


def release(gradient: Vector, noise: Units, plan: NoisePlan) -> Vector:
    """Response (4): the gradient on the plan's grid plus integer noise, in gradient units.

    Args:
      gradient: The exact mean gradient, shape (p,).
      noise: Integer Laplace noise in grid units, shape (p,), used for no other response.
      plan: The study's noise.

    Raises:
      MalformedError: A shape is wrong, or the gradient is not finite.
    """
    if gradient.shape != (plan.dimension,) or noise.shape != (plan.dimension,):
        raise MalformedError(f"the query has not the {plan.dimension} coordinates agreed on")
    units = np.rint(np.ldexp(gradient, -plan.grid_exponent))
    # Neither can happen to records within their bounds; NaN would be cast to some number.
    if not np.max(np.abs(units)) <= LARGEST_VALUE_UNITS:
        raise MalformedError("the query has no finite answer within the study's bounds")
    # Exact in 64 bits (NoisePlan bounds both); the rounding to a float comes after the noise.
    return np.ldexp((units.astype(np.int64) + noise).astype(np.float64), plan.grid_exponent)


def seeded_noise(plan: NoisePlan, *, rng: np.random.Generator) -> Units:
    """Laplace noise from a seed, on the plan's grid: for experiments, it protects nobody."""
    draws = rng.laplace(scale=plan.scale_units, size=plan.dimension)
    return np.rint(np.clip(draws, -(2.0**61), 2.0**61)).astype(np.int64)


def check_theta(theta: Vector, *, dimension: int, theta_max: float) -> None:
    """Refuse a query whose answer the sensitivity does not cover.

    Raises:
      MalformedError: A wrong length, a coordinate that is not finite, or outside the box.
    """
    if theta.shape != (dimension,):
        raise MalformedError(
            f"theta has {theta.size} coordinates, the study agreed on {dimension}; "
            "ask with a model of the study's length"
        )
    if not np.all(np.isfinite(theta)):
        raise MalformedError("theta has a coordinate that is not a finite number")
    if not np.max(np.abs(theta)) <= theta_max:
        raise MalformedError(
            f"theta leaves the box of half side {theta_max} that the study agreed on; "
            "project it before asking"
        )


def theta_digest(theta: Vector) -> str:
    """SHA-256 of a query's bytes: tells a retry from a new question."""
    return hashlib.sha256(theta.astype("<f8").tobytes()).hexdigest()


class Step(enum.Enum):
    """What an owner does with a query."""

    ANSWER = enum.auto()
    REPLAY = enum.auto()


@dataclass(frozen=True, kw_only=True)
class Account:
    """One study's account: what was promised, what was given, and the last response for retries."""

    promised: int
    answered: int = 0
    last_digest: str = ""
    last_response: bytes = b""
    closed: bool = False

    def charged(self, *, digest: str, response: bytes) -> Account:
        """The account after one more response."""
        return replace(self, answered=self.answered + 1, last_digest=digest, last_response=response)


def next_step(account: Account, *, sequence: int, digest: str) -> Step:
    """Answer, replay, or refuse: the order of queries that keeps every charge single.

    The next number is answered and charged; the last number again, with the same theta, is
    replayed without a charge; everything else is refused without a charge.

    Raises:
      OrderError: The study is closed, or the number is not the next one.
      BudgetSpentError: All promised responses were given.

    >>> account = Account(promised=1)
    >>> next_step(account, sequence=1, digest="a")
    <Step.ANSWER: 1>
    >>> next_step(account.charged(digest="a", response=b""), sequence=1, digest="a")
    <Step.REPLAY: 2>
    """
    if account.closed:
        raise OrderError("the study is closed; enrol for a new study")
    if sequence == account.answered and sequence > 0:
        if digest == account.last_digest:
            return Step.REPLAY
        raise OrderError(
            f"response {sequence} was given for another theta; it is not given for a second one"
        )
    if account.answered >= account.promised:
        raise BudgetSpentError(
            f"all {account.promised} promised responses were given; 0 are left in this study"
        )
    if sequence != account.answered + 1:
        raise OrderError(
            f"sequence number {sequence} is out of order; the next one is {account.answered + 1}"
        )
    return Step.ANSWER
