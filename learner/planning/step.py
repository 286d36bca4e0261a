r"""``step = "auto"``: the step of Algorithm 1 from public records and public facts only.

**The largest stable step.** Let an error of (6) lie along an eigenvector of the mean loss's
Hessian with eigenvalue h, and let w_i be n_i/n with Remark 4's factor. A tick of owner i turns
theta_bar into the copy :math:`(1-u_i)\,\bar\theta` by (5) and the central model
:math:`(1-v)\,\bar\theta` by (7), with

.. math:: u_i = \alpha\,(c/N + w_i h), \qquad v \le 2c\,\alpha/N.

theta_bar is the mean of two models, so its error is at most the larger of theirs. With
:math:`0 \le u_i \le 2` and :math:`0 \le v \le 2` neither factor is beyond 1 in size: no sequence
of ticks can make the largest error of the N + 1 models grow, and the projection only shortens it.
Hence :math:`\alpha_{max} = 2/(\max_i w_i h_{max} + c/N)`. With one owner oscillations begin to
grow at twice that step; with several, the random order of owners decides in between.

Hinge loss has kinks instead of a curvature. There the largest step is the one whose strongest
answer moves a copy across half of the box.

**The choice.** Below it, noise asks for small steps and a short horizon for large ones. Candidates
on a logarithmic grid are simulated on the public records, cut into N consecutive parts that play
the owners, with the owners' weights and noise scales; the smallest mean relative fitness wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from common.arrays import Slots, Vector
from common.errors import InputError
from common.losses import Loss
from common.terms import Records
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import draw_slots, each_alone
from learner.simulated.evaluation import Evaluation
from learner.simulated.replicates import (
    GradientFunction,
    Moments,
    NoiseFunction,
    laplace_noise,
    moment_gradients,
    record_gradients,
    run_replicates,
)

__all__ = ["StepChoice", "choose_rho", "largest_stable_step", "public_parts"]


COARSE: Vector = 4.0 ** -np.arange(13.0)
FINE: Vector = 2.0 ** np.arange(-1.5, 2.0, 0.5)


@dataclass(frozen=True)
class _Effort:
    """How much is simulated: runs of each coarse and fine step, the most ticks and records."""

    coarse_runs: int
    fine_runs: int
    ticks: int
    records: float


# Moments answer in constant time; a second of asking records one by one buys less.
WITH_MOMENTS = _Effort(coarse_runs=12, fine_runs=32, ticks=10_000, records=np.inf)
WITH_RECORDS = _Effort(coarse_runs=6, fine_runs=10, ticks=4_000, records=1_000)


@dataclass(frozen=True, kw_only=True)
class StepChoice:
    """What was chosen, and why.

    Args:
      rho: The step constant of (5) and (7).
      step: The step alpha = N rho/(T^2 sigma) of a local copy.
      largest_stable_rho: The rho of the largest step that no tick sequence makes unstable.
      forecast_relative_fitness: Mean relative fitness after T ticks, simulated on the public
        records with the owners' noise.
    """

    rho: float
    step: float
    largest_stable_rho: float
    forecast_relative_fitness: float


def choose_rho(
    algorithm: Asynchronous,
    public: Records,
    *,
    loss: Loss,
    noise_scales: Vector,
    clip: float | None = None,
    rng: np.random.Generator,
) -> StepChoice:
    """The step constant with the best forecast, from public records and public facts.

    Equal arguments and an equal ``rng`` give an equal choice. Horizons beyond 10,000 ticks
    (4,000 where records must be asked one by one) are simulated by fewer and longer steps with
    correspondingly less noise, as far as that keeps clear of the stability limit; the forecast
    is then rather too high than too low.

    Args:
      algorithm: What will run; its ``rho`` is not looked at. Ticks come at its ``frequency``.
      public: Public records, after the feature map.
      loss: The loss.
      noise_scales: The scale b of each owner's noise, in gradient units, shape (N,).
      clip: The L1 norm to which owners scale gradients down; None for no clipping.
      rng: Where the simulations' randomness comes from; seed it with nothing private.

    Raises:
      InputError: There are no public records, the algorithm has groups, or a scale is wrong.

    >>> from common.losses import Regulariser, Squared
    >>> rng = np.random.default_rng(1)
    >>> x = rng.uniform(-1, 1, (90, 2))
    >>> public = Records(features=x, targets=x @ [0.5, -0.2] + rng.normal(0, 0.1, 90))
    >>> algorithm = Asynchronous(weights=np.full(3, 1 / 3), num_features=2, theta_max=1.0,
    ...     regulariser=Regulariser(coefficient=1e-5), rho=1.0, horizon=300)
    >>> quiet, loud = (choose_rho(algorithm, public, loss=Squared(),
    ...     noise_scales=np.full(3, b), rng=rng) for b in (0.0, 1.0))
    >>> loud.step < quiet.step, quiet.forecast_relative_fitness < 0.1
    (True, True)

    References: equations (5) to (7) of Farokhi et al. (2021).
    """
    _check(algorithm, public, noise_scales)
    forecast = _Forecast(
        algorithm=algorithm, public=public, loss=loss, noise_scales=noise_scales, clip=clip
    )
    limit = largest_stable_step(algorithm, public, loss=loss)
    coarse = limit * COARSE
    best = float(coarse[np.argmin(forecast(coarse, limit, forecast.effort.coarse_runs, rng=rng))])
    fine = np.minimum(best * FINE, limit)
    psi = forecast(fine, limit, forecast.effort.fine_runs, rng=rng)
    step = float(fine[np.argmin(psi)])
    return StepChoice(
        rho=_rho(algorithm, step),
        step=step,
        largest_stable_rho=_rho(algorithm, limit),
        forecast_relative_fitness=float(np.min(psi)),
    )


def largest_stable_step(algorithm: Asynchronous, public: Records, *, loss: Loss) -> float:
    r"""The largest step alpha at which no tick sequence makes errors grow, on public records.

    For a loss whose second derivative is at most :math:`L`, with :math:`h_{max}` the largest
    eigenvalue of :math:`L X'X/n` and w Remark 4's weights:

    .. math:: \alpha_{max} = 2 / (\max_i w_i\,h_{max} + c/N)

    For a loss with kinks, with the largest mean absolute feature for :math:`h_{max}` and half of
    the box for what it may move: :math:`\alpha_{max} = \theta_{max}/(\max_i w_i \max_j E|x_j|)`.

    >>> from common.losses import Regulariser, Squared
    >>> one = Asynchronous(weights=np.ones(1), num_features=1, theta_max=1.0,
    ...     regulariser=Regulariser(coefficient=1e-9), rho=1.0, horizon=9)
    >>> public = Records(features=np.array([[1.0], [1.0]]), targets=np.ones(2))
    >>> round(largest_stable_step(one, public, loss=Squared()), 6)
    1.0
    """
    weight = float(np.max(algorithm.weights * algorithm.inverse_frequency))
    x = public.features
    if loss.curvature is None:
        reach = float(np.max(np.mean(np.abs(x), axis=0)))
        return algorithm.theta_max / (weight * max(reach, np.finfo(float).tiny))
    h_max = loss.curvature * float(np.linalg.eigvalsh(x.T @ x / len(public))[-1])
    return 2.0 / (weight * h_max + algorithm.regulariser.coefficient / algorithm.num_copies)


def public_parts(public: Records, weights: Vector) -> list[Records]:
    """Consecutive parts of the public records, sized like the owners, one owner each.

    With few records for many owners the parts grow, keep their proportions and overlap, so that
    a part's chance differences do not pass for differences between owners.

    Args:
      public: The public records.
      weights: Shares n_i/n, shape (N,).

    >>> public = Records(features=np.arange(8.0)[:, None], targets=np.zeros(8))
    >>> [part.features[:, 0].tolist() for part in public_parts(public, np.array([0.75, 0.25]))]
    [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0]]
    """
    n, p = public.features.shape
    starts = np.round(n * np.concatenate([[0.0], np.cumsum(weights)[:-1]])).astype(np.intp)
    # A part of fewer than 2 p records says little about p features; none exceeds all records.
    grown = max(1.0, min(2 * p / (n * float(np.min(weights))), 1 / float(np.max(weights))))
    sizes = np.maximum(1, np.round(grown * n * weights)).astype(np.intp)
    return [
        _take(public, (start + np.arange(size)) % n)
        for start, size in zip(starts, sizes, strict=True)
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Forecast:
    """Simulations of the study on public records: steps -> mean relative fitness."""

    algorithm: Asynchronous
    public: Records
    loss: Loss
    noise_scales: Vector
    clip: float | None

    def __call__(
        self, steps: Vector, limit: float, runs: int, *, rng: np.random.Generator
    ) -> Vector:
        """Mean relative fitness of each step, all on the same ticks and noise, shape (K,)."""
        ticks = min(self.algorithm.horizon, self.effort.ticks)
        # m ticks of a small step are like one tick of m times the step and 1/sqrt(m) the noise.
        longer = np.clip(limit / (8 * steps), 1.0, self.algorithm.horizon / ticks)
        shorter = replace(self.algorithm, horizon=ticks)
        rho = np.array([_rho(shorter, step) for step in steps * longer])
        slots = draw_slots(self._rates, horizon=ticks, replicates=runs, rng=rng)
        result = run_replicates(
            shorter,
            np.tile(slots, (1, len(steps))),
            gradients=self._gradients,
            noise=self._noise(runs, 1 / np.sqrt(longer), rng=rng),
            rho=np.repeat(rho, runs),
        )
        psi = self._evaluation.relative_fitness(result.central)
        means: Vector = psi.reshape(len(steps), runs).mean(axis=1)
        return means

    def _noise(self, runs: int, factors: Vector, *, rng: np.random.Generator) -> NoiseFunction:
        """One draw for the runs of all steps, so that steps differ by nothing else."""
        p = self.algorithm.num_features
        draw = laplace_noise(self.noise_scales, num_features=p, rng=rng)
        return lambda slots: np.multiply.outer(factors, draw(slots[:runs])).reshape(-1, p)

    @property
    def _rates(self) -> Vector:
        frequency = self.algorithm.frequency
        return np.ones(self.algorithm.num_copies) if frequency is None else frequency

    @property
    def effort(self) -> _Effort:
        """What a second or two can simulate."""
        return WITH_MOMENTS if self._moments else WITH_RECORDS

    @property
    def _moments(self) -> bool:
        """Whether moments answer for the records."""
        return self.loss.is_quadratic and self.clip is None

    @cached_property
    def _parts(self) -> Sequence[Records]:
        """The parts that play the owners; evenly thinned out where records are asked."""
        kept = int(min(len(self.public), self.effort.records))
        rows = np.arange(kept) * len(self.public) // kept
        return public_parts(_take(self.public, rows), self.algorithm.weights)

    @cached_property
    def _gradients(self) -> GradientFunction:
        if self._moments:
            return moment_gradients(Moments.of(self._parts))
        return record_gradients(self._parts, loss=self.loss, clip=self.clip)

    @cached_property
    def _evaluation(self) -> Evaluation:
        return Evaluation(
            shards=self._parts,
            loss=self.loss,
            regulariser=self.algorithm.regulariser,
            theta_max=self.algorithm.theta_max,
        )


def _rho(algorithm: Asynchronous, step: float) -> float:
    """The rho whose step alpha = N rho/(T^2 sigma) is this one."""
    sigma = algorithm.regulariser.strong_convexity
    return step * algorithm.horizon**2 * sigma / algorithm.num_copies


def _take(records: Records, rows: Slots) -> Records:
    """These rows of the records."""
    return Records(features=records.features[rows], targets=records.targets[rows])


def _check(algorithm: Asynchronous, public: Records, noise_scales: Vector) -> None:
    """Refuse what cannot be simulated."""
    if len(public) == 0:
        raise InputError("step: there are no public records to choose it from; give rho instead")
    if algorithm.groups not in {(), each_alone(len(algorithm.weights))}:
        raise InputError("step: it cannot be chosen for groups of owners; give rho instead")
    good = np.all(noise_scales >= 0) and np.all(np.isfinite(noise_scales))
    if noise_scales.shape != algorithm.weights.shape or not good:
        raise InputError(
            f"noise scales: got {noise_scales.tolist()}, expected a finite number of at least 0 "
            f"for each of the {len(algorithm.weights)} owners"
        )
