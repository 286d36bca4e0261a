r"""The papers' bounds on the cost of privacy, as printed and as corrected.

[A] is Farokhi et al. (2021), [S] is Wu et al. (2020). With :math:`S = \sum_i 1/\epsilon_i^2`,
the number n of all records and the noise :math:`b_i = 2\Xi T/(n_i\epsilon_i)`:

=====================  =============================================================
:func:`distance_bound`  [A] appendix B: E||theta_L - theta*||^2, explicit constants
:func:`fitness_bound`   [A] (9) by the Lipschitz constant of f, explicit constants
:func:`smooth_bound`    [S] Theorem 2
:func:`convex_bound`    [S] Theorem 3, explicit constants
=====================  =============================================================

Their shapes with constants to be fitted are in :mod:`learner.reproduction.shapes`.

``form="printed"`` is the papers' print, ``form="corrected"`` what the proofs support:

* lambda: the print takes one W_k, for which it is 1 and the bound infinite; the proof needs the
  second largest eigenvalue of E[W_k], 1 - 1/(2N) for N >= 2 and 0 for N = 1;
* nu_i: p independent Laplace coordinates have E||w||^2 = 2 p b^2; the print has p = 1;
* the print drops what is left of the start after T ticks; with alpha = rho/T^2 that is most of it;
* [S] Theorem 2: the print has 2 where the proof gives the Lipschitz constant of the gradient.

A bound that is not below what any model of the box keeps anyway is *vacuous*: it says nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from learner.reproduction.shapes import privacy_sum

__all__ = [
    "Bound",
    "Facts",
    "Form",
    "convex_bound",
    "distance_bound",
    "expected_mixing",
    "fitness_bound",
    "mixing_rate",
    "noise_norms",
    "smooth_bound",
]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Form = Literal["printed", "corrected"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """The public facts that the bounds are made of.

    Args:
      num_records: Each owner's n_i, shape (N,).
      epsilon: Each owner's budget for the study, shape (N,).
      gradient_bound: Xi, on one record's gradient, L1 norm.
      regulariser_bound: Xi_g, on the gradient of g over the box, L1 norm.
      strong_convexity: sigma of g.
      num_features: p.
      horizon: T.
      rho: The step constant of (5) and (7).
      theta_max: Half the side of the box, L-infinity norm.
    """

    num_records: Vector
    epsilon: Vector
    gradient_bound: float
    regulariser_bound: float
    strong_convexity: float
    num_features: int
    horizon: int
    rho: float
    theta_max: float

    def __post_init__(self) -> None:
        """Refuse what the bounds are not defined for."""
        for name in ("num_records", "epsilon"):
            value = getattr(self, name)
            if not (value.size and np.all(value > 0)):
                raise ValueError(f"{name}: got {value.tolist()}, expected numbers above 0")
        if self.num_records.shape != self.epsilon.shape:
            raise ValueError("epsilon: expected one number for each owner")
        for name in ("gradient_bound", "strong_convexity", "horizon", "rho", "theta_max"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected a number above 0")

    @property
    def num_owners(self) -> int:
        """N."""
        return int(self.num_records.size)

    @property
    def lipschitz(self) -> float:
        """C = Xi_g + Xi, the Lipschitz constant of f and of every part of it, L2 norm."""
        return self.regulariser_bound + self.gradient_bound

    @property
    def alpha(self) -> float:
        """The alpha = rho/T^2 of appendix B, not the step N rho/(T^2 sigma) of (5)."""
        return self.rho / self.horizon**2

    @property
    def square_diameter(self) -> float:
        """The largest squared distance of two models of the box, L2 norm."""
        return self.num_features * (2.0 * self.theta_max) ** 2


@dataclass(frozen=True, kw_only=True)
class Bound:
    """An upper bound, and what holds without it.

    Args:
      value: The bound.
      trivial: What every model of the box keeps anyway.
      what: What is bounded.
    """

    value: float
    trivial: float
    what: str

    @property
    def vacuous(self) -> bool:
        """Whether it says nothing; a bound that is not a number says nothing."""
        return not self.value < self.trivial

    @property
    def sentence(self) -> str:
        """The bound in words.

        >>> Bound(value=9.0, trivial=4.0, what="cost of privacy").sentence
        'cost of privacy: the bound 9 is vacuous: any model of the box keeps 4'
        """
        if self.vacuous:
            return (
                f"{self.what}: the bound {self.value:.3g} is vacuous: "
                f"any model of the box keeps {self.trivial:.3g}"
            )
        return f"{self.what}: at most {self.value:.3g}"


def expected_mixing(num_owners: int) -> Matrix:
    r"""E[W_k], with which a tick mixes the N + 1 models, shape (N + 1, N + 1), the learner last.

    :math:`W_k = I - \tfrac12 (e_i - e_L)(e_i - e_L)^\top` for a uniform owner i. The print has
    +1/(2N) in one place of the last column where -1/(2N) belongs.

    >>> expected_mixing(2)
    array([[0.75, 0.  , 0.25],
           [0.  , 0.75, 0.25],
           [0.25, 0.25, 0.5 ]])

    References: [A] appendix B.
    """
    N = num_owners
    mean = np.eye(N + 1)
    for i in range(N):
        e = np.zeros(N + 1)
        e[i], e[N] = 1.0, -1.0
        mean -= np.outer(e, e) / (2 * N)
    return mean


def mixing_rate(num_owners: int, *, form: Form = "corrected") -> float:
    r"""lambda: how much of the differences between the models is left after a tick.

    Corrected: the second largest eigenvalue of E[W_k], :math:`1 - 1/(2N)`, and 0 for one owner.
    Printed: :math:`\|W_k - \tfrac1{N+1} 1 1^\top W_k\|_2^2`, which is 1 for every N >= 2.

    >>> mixing_rate(3), mixing_rate(3, form="printed"), mixing_rate(1)
    (0.8333333333333334, 1.0, 0.0)

    References: [A] appendix B.
    """
    if num_owners == 1:
        return 0.0
    return 1.0 if form == "printed" else 1.0 - 1.0 / (2 * num_owners)


def noise_norms(facts: Facts, *, form: Form = "corrected") -> Vector:
    r"""nu_i: root mean square L2 norm of the noise of (n_i/n) Q_bar_i, shape (N,).

    .. math:: \nu_i = 2\sqrt{2p}\,\Xi T/(n\,\epsilon_i)

    The print has p = 1.

    References: [A] appendix B.
    """
    p = 1 if form == "printed" else facts.num_features
    n = float(np.sum(facts.num_records))
    nu: Vector = (
        2.0 * math.sqrt(2.0 * p) * facts.gradient_bound * facts.horizon / (n * facts.epsilon)
    )
    return nu


def distance_bound(facts: Facts, *, form: Form = "corrected") -> Bound:
    r"""Bound on :math:`E\|\theta_{L,T} - \theta^*\|_2^2`.

    With :math:`B = 1 + N\sum_i (1 + \nu_i/C)^2`, :math:`c_1 = NC^2/\sigma^2` and
    :math:`c_2 = 2N^2C^2\sqrt{N+1}/(\sigma^2(1-\sqrt\lambda))`,

    .. math:: c_1\,\alpha B + c_2\,\alpha\sqrt{B}
              + (1 - \alpha/N)^T (N+1)\,p\,\theta_{max}^2

    The last term, what is left of the start, is not in the print, which lets k go to infinity at
    a fixed alpha. Here :math:`\alpha T = \rho/T`, so the start is forgotten only where rho is
    several times N T.

    Args:
      facts: The study's public facts.
      form: "printed" or "corrected".

    References: [A] (8) and appendix B, (12) to (17).
    """
    N, C, sigma = facts.num_owners, facts.lipschitz, facts.strong_convexity
    B = 1.0 + N * float(np.sum((1.0 + noise_norms(facts, form=form) / C) ** 2))
    gap = 1.0 - math.sqrt(mixing_rate(N, form=form))
    c1 = N * C**2 / sigma**2
    c2 = 2.0 * N**2 * C**2 * math.sqrt(N + 1) / (sigma**2 * gap) if gap > 0 else math.inf
    value = c1 * facts.alpha * B + c2 * facts.alpha * math.sqrt(B)
    if form == "corrected":
        contraction = max(0.0, 1.0 - facts.alpha / N) ** facts.horizon
        value += contraction * (N + 1) * facts.num_features * facts.theta_max**2
    return Bound(value=value, trivial=facts.square_diameter, what="squared distance to the optimum")


def fitness_bound(facts: Facts, *, form: Form = "corrected") -> Bound:
    r"""Bound on the cost of privacy, :math:`C \sqrt{E\|\theta_{L,T} - \theta^*\|_2^2}`.

    C is the Lipschitz constant of f on the box. The paper refers to another proof for its own
    constants; this one is valid and explicit.

    References: [A] (9).
    """
    distance = distance_bound(facts, form=form)
    C = facts.lipschitz
    return Bound(
        value=C * math.sqrt(distance.value),
        trivial=C * math.sqrt(distance.trivial),
        what="cost of privacy",
    )


def smooth_bound(
    facts: Facts, *, convexity: float, smoothness: float, form: Form = "corrected"
) -> Bound:
    r"""[S] Theorem 2: :math:`\min_k E f(\theta[k]) - f(\theta^*)` of synchronous descent.

    .. math:: \frac{8\,\Xi^2\rho}{L n^2} S \;\text{(printed)}, \qquad
              \frac{4\,p\,\lambda\,\Xi^2\rho}{L n^2} S \;\text{(corrected)}

    It holds up to a remainder that is small only where the steps reach the neighbourhood of the
    optimum within T rounds; with steps rho/(T^2 k) that needs a rho of the order of
    :math:`T^2/\log T`. The steps must be at most 1/lambda.

    Args:
      facts: The study's public facts; ``rho`` is that of the synchronous steps.
      convexity: L, the strong convexity of f.
      smoothness: lambda, the Lipschitz constant of the gradient of f.
      form: "printed" or "corrected".

    References: [S] (9) and appendix B.
    """
    n = float(np.sum(facts.num_records))
    factor = 8.0 if form == "printed" else 4.0 * facts.num_features * smoothness
    value = (
        factor * facts.gradient_bound**2 * facts.rho * privacy_sum(facts.epsilon)
        / (convexity * n**2)
    )  # fmt: skip
    trivial = facts.lipschitz * math.sqrt(facts.square_diameter)
    return Bound(value=value, trivial=trivial, what="best cost of privacy over the rounds")


def convex_bound(facts: Facts, *, initial_step: float | None = None) -> Bound:
    r"""[S] Theorem 3: :math:`E f(\bar\theta[T]) - f(\theta^*)` of the synchronous average.

    The paper says :math:`(c_2\Xi/n)\sqrt S` for some constants. Explicitly: the average (8) puts
    weights :math:`\omega_k` on :math:`\theta[k]`; with :math:`\omega_k\sqrt k` not decreasing,
    squared distances at most D^2, and :math:`G^2 = C^2 + 8p\,\Xi^2T^2S/n^2`,

    .. math:: \frac{D^2\,\omega_T\sqrt T}{2 c} + \frac{c\,G^2}{2}\sum_k \frac{\omega_k}{\sqrt k}

    for steps :math:`c/\sqrt k`. At the best c it is proportional to G, which is the paper's
    :math:`\sqrt S/n` where the noise dominates.

    Args:
      facts: The study's public facts; ``rho`` does not matter.
      initial_step: The paper's c1; None for the one with the smallest bound.

    References: [S] (11) and appendix C; Shamir and Zhang (2013) for the averages.
    """
    T, p, n = facts.horizon, facts.num_features, float(np.sum(facts.num_records))
    noise = 8.0 * p * (facts.gradient_bound * T / n) ** 2 * privacy_sum(facts.epsilon)
    G2 = facts.lipschitz**2 + noise
    k = np.arange(1.0, T + 1)
    weights = average_weights(T)
    start = facts.square_diameter * weights[-1] * math.sqrt(T) / 2.0
    spread = G2 * float(np.sum(weights / np.sqrt(k))) / 2.0
    c = math.sqrt(start / spread) if initial_step is None else initial_step
    trivial = facts.lipschitz * math.sqrt(facts.square_diameter)
    return Bound(value=start / c + c * spread, trivial=trivial, what="cost of privacy")


def average_weights(horizon: int) -> Vector:
    r"""The weights of theta[1..T] in the average (8) of [S] after T rounds, shape (T,).

    >>> float(average_weights(3).sum().round(12))
    1.0

    References: [S] (8).
    """
    d = 1.0 / math.sqrt(horizon)
    k = np.arange(1.0, horizon + 1)
    keep = (k - 1.0) / (d + k)
    later = np.append(np.cumprod(keep[:0:-1])[::-1], 1.0)
    weights: Vector = (d + 1.0) / (d + k) * later
    return weights
