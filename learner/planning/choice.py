r"""Horizon, clip and step together, from public records and public facts only.

With the schedule's split owner i adds noise of the scale :math:`2CT_i/(n_i\epsilon_i)`. A long
horizon therefore buys small steps with loud answers, a small clip C buys quiet answers with a
bias, and a large step follows the signal and the noise alike: none of the three can be chosen
without the others. Here studies of many (T, C, step) are simulated on the public records, which
play the owners, under the noise that each would have and on the ticks that will really come. The
smallest mean relative fitness wins; then the grid is drawn closer around it.

Nothing private is looked at: the n_i, the budgets and the clocks are public. How much the owners
differ from each other is not, and parts of one public table differ by chance only. So each
simulated owner's mean gradient is given a constant difference of its own: a tenth of what single
records' gradients differ by, weighted to cancel over all owners. (Counties of one state and years
of one lender differ by 0.02 to 0.26 in that unit.) Without it, horizons come out too short and
steps too long for owners that differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from common.arrays import Matrix, Slots, Vector
from common.errors import InputError
from common.losses import Loss
from common.terms import Records
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import scheduled_frequency
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.planning.step import largest_stable_step, public_parts
from learner.simulated.evaluation import Evaluation
from learner.simulated.replicates import (
    GradientFunction,
    Moments,
    NoiseFunction,
    moment_gradients,
    record_gradients,
    run_replicates,
)
from learner.simulated.rounds import run_rounds

__all__ = ["Choice", "Conditions", "choose"]

Simulated = Asynchronous | SynchronousAverage | SynchronousDescent

# Ticks of the horizons that are tried; a longer one is simulated by fewer and longer steps.
HORIZONS = (30, 100, 300, 1000, 3000)
STEPS: Vector = 8.0 * 3.0 ** -np.arange(8.0)
CLIPS = 6
# Each round draws the grid closer around the best: (factors of T, of C and the step, runs).
ROUNDS: tuple[tuple[Vector, Vector, int], ...] = (
    (1.8 ** np.arange(-1.0, 2.0), 1.8 ** np.arange(-1.0, 2.0), 8),
    (np.ones(1), 1.35 ** np.arange(-1.0, 2.0), 16),
)
COARSE_RUNS = 3
# So many slopes of records are computed in one round, a second or two of work.
WORK = 2e8
FEWEST_RECORDS, MOST_RECORDS = 500, 6000
# What owners differ by, in deviations of a single record's gradient.
DIFFERENCE = 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class Conditions:
    """The public facts that a choice rests on.

    Args:
      public: Public records, after the feature map.
      loss: The loss.
      bound: The domain's bound Xi on one record's gradient.
      epsilons: Each owner's epsilon_i/kappa, shape (N,).
      num_records: Each owner's n_i, shape (N,).
      slots: The clocks' ticks as indices of copies, at least as many as the longest horizon has
        simulated ticks; not used by synchronous algorithms.
      promise: The number m_i of responses that each owner promises for a horizon, shape (N,).
      counted: Whether Remark 4 is applied to what the schedule of a horizon counts.
    """

    public: Records
    loss: Loss
    bound: float
    epsilons: Vector
    num_records: Vector
    slots: Slots
    promise: Callable[[int], Vector]
    counted: bool = False

    def corrected(self, algorithm: Asynchronous) -> Asynchronous:
        """The algorithm with the frequencies that its horizon's schedule counts, if they count."""
        if not self.counted:
            return algorithm
        return replace(algorithm, frequency=scheduled_frequency(self.promise(algorithm.horizon)))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was chosen, and how good it is forecast to be.

    Args:
      horizon: The number T of ticks or rounds.
      clip: The clip C, in gradient units; None for the domain's bound.
      step: The step alpha of a local copy, rho/T^2 of synchronous-1, or c1 of synchronous-2.
      forecast_relative_fitness: Mean relative fitness after T, simulated on the public records.
    """

    horizon: int
    clip: float | None
    step: float
    forecast_relative_fitness: float


def choose(
    algorithm: Simulated,
    conditions: Conditions,
    *,
    horizon: int | None,
    clip: float | None,
    choose_clip: bool,
    step: float | None,
    longest: int = HORIZONS[-1],
    rng: np.random.Generator,
) -> Choice:
    """The best (T, C, step) of a grid drawn closer twice, where the settings leave them open.

    Args:
      algorithm: What will run; its horizon and step are not looked at.
      conditions: The public facts.
      horizon: The horizon where it is given, else None.
      clip: The clip where it is given; None for the domain's bound, or when it is chosen.
      choose_clip: Whether the clip is chosen.
      step: The step where it is given, else None.
      longest: The longest horizon to choose.
      rng: Where the simulations' noise comes from; seed it with nothing private.

    Raises:
      InputError: There are no public records.
    """
    if len(conditions.public) == 0:
        raise InputError('"auto": there are no public records to choose from; give numbers instead')
    simulation = _Simulation(algorithm=algorithm, conditions=conditions)
    together = isinstance(algorithm, Asynchronous)
    rounds = 1 if together else len(conditions.num_records)
    horizons = [horizon] if horizon else sorted({max(2, T // rounds) for T in HORIZONS})
    horizons = [T for T in horizons if horizon or longest >= T] or [longest]
    grid = [
        _Point(T, C, a)
        for T in horizons
        for C in (simulation.clips if choose_clip else [clip])
        for a in ([step] if step else simulation.limit * STEPS / _ticks_in_one(T))
    ]
    best, psi = simulation.best(grid, runs=COARSE_RUNS, rng=rng)
    for longer, factors, runs in ROUNDS:
        grid = [
            _Point(T, C, a)
            for T in ([horizon] if horizon else _around(best.horizon, longer, longest))
            for C in (_closer(best.clip, factors, conditions.bound) if choose_clip else [clip])
            for a in ([step] if step else best.step * factors)
        ]
        best, psi = simulation.best(grid, runs=runs, rng=rng)
    return Choice(
        horizon=best.horizon, clip=best.clip, step=best.step, forecast_relative_fitness=psi
    )


@dataclass(frozen=True)
class _Point:
    """One candidate."""

    horizon: int
    clip: float | None
    step: float


def _ticks_in_one(horizon: int) -> float:
    """How many ticks one simulated tick stands for."""
    return horizon / min(horizon, HORIZONS[-1])


def _around(horizon: int, factors: Vector, longest: int) -> list[int]:
    """Horizons around one."""
    return sorted({int(np.clip(round(horizon * f), 2, longest)) for f in factors})


def _closer(clip: float | None, factors: Vector, bound: float) -> list[float]:
    """Clips around one, none beyond the domain's bound."""
    return sorted({min(float((clip or bound) * f), bound) for f in factors})


@dataclass(frozen=True, kw_only=True, eq=False)
class _Simulation:
    """Studies of many candidates on the public records."""

    algorithm: Simulated
    conditions: Conditions

    @property
    def _takes_turns(self) -> bool:
        return isinstance(self.algorithm, Asynchronous)

    @cached_property
    def _everyone(self) -> Evaluation:
        """All public records together."""
        return Evaluation(
            shards=[self.conditions.public],
            loss=self.conditions.loss,
            regulariser=self.algorithm.regulariser,
            theta_max=self.algorithm.theta_max,
        )

    @cached_property
    def clips(self) -> list[float]:
        """Clips from the typical gradient of the public records up to the domain's bound."""
        facts = self.conditions
        x, y = facts.public.features, facts.public.targets
        norms = np.abs(facts.loss.slopes(np.zeros(len(y)), y)) * np.abs(x).sum(axis=1)
        low = max(float(np.quantile(norms, 0.25)), 1e-3 * facts.bound)
        return list(np.geomspace(min(low, facts.bound), facts.bound, CLIPS))

    @cached_property
    def limit(self) -> float:
        """The unit of the candidates' steps: the largest stable one."""
        algorithm = self.algorithm
        if isinstance(algorithm, Asynchronous):
            return largest_stable_step(algorithm, self.conditions.public, loss=self.conditions.loss)
        # A round's weights sum to 1: it is a step of one owner that has all records.
        one = Asynchronous(
            weights=np.ones(1),
            num_features=algorithm.num_features,
            theta_max=algorithm.theta_max,
            regulariser=replace(
                algorithm.regulariser,
                coefficient=max(algorithm.regulariser.coefficient, 1e-12),
            ),
            rho=1.0,
            horizon=1,
        )
        return largest_stable_step(one, self.conditions.public, loss=self.conditions.loss)

    def best(
        self, grid: Sequence[_Point], *, runs: int, rng: np.random.Generator
    ) -> tuple[_Point, float]:
        """The candidate with the smallest mean relative fitness, and that."""
        asked = runs * sum(min(point.horizon, HORIZONS[-1]) for point in grid)
        # A tick asks one part of the records, a round all of them.
        share = float(np.max(self.algorithm.weights)) if self._takes_turns else 1.0
        records = int(np.clip(WORK / (asked * share), FEWEST_RECORDS, MOST_RECORDS))
        world = _World(
            self.algorithm,
            self.conditions,
            records,
            everyone=self._everyone,
            runs=runs,
            rng=rng,
        )
        means: list[tuple[float, _Point]] = []
        for horizon, points in itertools.groupby(grid, key=lambda point: point.horizon):
            same = list(points)
            psi = world.relative_fitness(horizon, same, rng=rng)
            means += zip(psi.tolist(), same, strict=True)
        psi_best, best = min(means, key=lambda pair: pair[0])
        return best, psi_best


class _World:
    """Public records that play the owners."""

    def __init__(
        self,
        algorithm: Simulated,
        conditions: Conditions,
        records: int,
        *,
        everyone: Evaluation,
        runs: int,
        rng: np.random.Generator,
    ) -> None:
        public = conditions.public
        rows = np.arange(min(records, len(public))) * len(public) // min(records, len(public))
        thinned = Records(features=public.features[rows], targets=public.targets[rows])
        self._algorithm, self._facts = algorithm, conditions
        self._parts = public_parts(thinned, algorithm.weights)
        self._evaluation = Evaluation(
            shards=self._parts,
            loss=conditions.loss,
            regulariser=algorithm.regulariser,
            theta_max=algorithm.theta_max,
        )
        self._runs, self._everyone = runs, everyone
        self._differences = self._draw_differences(rng)

    def _draw_differences(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """What each simulated owner's mean gradient is off by in each run, shape (N, runs, p)."""
        records, weights = self._evaluation.records, self._algorithm.weights
        margins = records.features @ self._evaluation.theta_optimal
        slopes = self._facts.loss.slopes(margins, records.targets)
        gradients = slopes[:, None] * records.features / np.sqrt(len(records))
        drawn = rng.standard_normal((len(weights), self._runs, len(records))) @ gradients
        centred: NDArray[np.float64] = drawn - np.tensordot(weights, drawn, axes=1)
        return DIFFERENCE * centred

    def _missing_bias(self, clip: float) -> Vector:
        """What clipping pulls all public records' optimum by, beyond what the few here show.

        Few records have few of the long gradients that a clip shortens.
        """
        if self._facts.loss.curvature is None or clip >= self._facts.bound:
            return np.zeros(self._algorithm.num_features)
        here = _pull(self._evaluation, self._facts.loss, clip)
        return _pull(self._everyone, self._facts.loss, clip) - here

    def relative_fitness(
        self, horizon: int, points: Sequence[_Point], *, rng: np.random.Generator
    ) -> Vector:
        """Mean relative fitness of candidates of one horizon, all on the same noise, shape (K,)."""
        ticks, runs = min(horizon, HORIZONS[-1]), self._runs
        # m ticks of a step are like one of m times the step with 1/sqrt(m) of the noise.
        longer = _ticks_in_one(horizon)
        clips = np.array([self._facts.bound if p.clip is None else p.clip for p in points])
        clips = np.minimum(clips, self._facts.bound)
        steps = np.repeat([p.step * longer for p in points], runs)
        noise = self._noise(horizon, clips, quieter=1 / np.sqrt(longer), rng=rng)
        clipped = any(p.clip is not None for p in points)
        gradients = self._gradients(np.repeat(clips, runs) if clipped else None)
        models = self._models(ticks, steps, gradients, noise)
        psi = self._evaluation.relative_fitness(models)
        means: Vector = psi.reshape(len(points), runs).mean(axis=1)
        return means

    def _models(
        self, ticks: int, steps: Vector, gradients: GradientFunction, noise: NoiseFunction
    ) -> Matrix:
        """The result of each run."""
        algorithm = replace(self._algorithm, horizon=ticks)
        if isinstance(algorithm, Asynchronous):
            algorithm = self._facts.corrected(algorithm)
            slots = np.broadcast_to(self._facts.slots[:ticks, None], (ticks, len(steps)))
            rho = steps / algorithm.alpha * algorithm.rho
            return run_replicates(
                algorithm, slots, gradients=gradients, noise=noise, rho=rho
            ).central
        if isinstance(algorithm, SynchronousDescent):
            steps = steps * ticks**2
        return run_rounds(
            algorithm, replicates=len(steps), gradients=gradients, noise=noise, step=steps
        )

    def _gradients(self, clips: Vector | None) -> GradientFunction:
        if clips is None and self._facts.loss.is_quadratic:
            return moment_gradients(Moments.of(self._parts))
        return record_gradients(self._parts, loss=self._facts.loss, clip=clips)

    def _noise(
        self, horizon: int, clips: Vector, *, quieter: float, rng: np.random.Generator
    ) -> NoiseFunction:
        """b_i = 2 C m_i/(n_i epsilon_i), one draw for all candidates, and what owners differ by."""
        facts, p, runs = self._facts, self._algorithm.num_features, self._runs
        unit = 2.0 * quieter * facts.promise(horizon) / (facts.num_records * facts.epsilons)
        biases = np.stack([self._missing_bias(clip) for clip in clips.tolist()])[:, None, :]

        def draw(slots: Slots) -> Matrix:
            pair = rng.standard_exponential((2, runs, p))
            common = (pair[0] - pair[1]) * unit[slots[:runs], None]
            off = np.multiply.outer(clips, common) + self._differences[slots[0]] + biases
            page: Matrix = off.reshape(-1, p)
            return page

        return draw


def _pull(evaluation: Evaluation, loss: Loss, clip: float) -> Vector:
    """What a clip adds to the mean gradient at the optimum, shape (p,)."""
    x, y = evaluation.records.features, evaluation.records.targets
    slopes = loss.slopes(x @ evaluation.theta_optimal, y)
    with np.errstate(divide="ignore"):
        bound = clip / np.abs(x).sum(axis=1)
    added: Vector = (np.clip(slopes, -bound, bound) - slopes) @ x / len(y)
    return added
