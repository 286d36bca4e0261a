r"""Horizon, clip and step, from public records and public facts only.

With the schedule's split owner i adds noise of the scale :math:`2CT_i/(n_i\epsilon_i)`. A long
horizon therefore buys small steps with loud answers, a small clip C buys quiet answers with a
bias, and a large step follows the signal and the noise alike: none of the three can be chosen
without the others. Here studies of many (T, C, step) are simulated in the worlds of
:mod:`learner.simulated.surrogates`, where public records play the owners and differ as they will,
under the noise that each would have. The smallest mean relative fitness over worlds, sequences of
ticks and noise wins: the ticks that will really come are one sequence of many, and what is best
for them alone is so by chance.

First the horizon is chosen, with clip and step; then clip and step for that horizon; then the step
for both. Each choice depends on what was chosen before it and on nothing else, so a study that
types the horizon and clip that it was given gets the same step.

Nothing silly is chosen: a horizon has ticks enough for everyone to be asked, no step is beyond
the largest stable one, and from 0 no step is so small that T of them leave the model where it
began.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from common.arrays import Vector
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import LEAST_TICKS
from learner.simulated import stability
from learner.simulated.candidates import Designs, relative_fitness_of
from learner.simulated.groups import PublicGroups
from learner.simulated.studies import Proposal
from learner.simulated.world import World, middle, runs_worth

# Ticks of the horizons that are tried.
HORIZONS = (10, 30, 100, 300, 1000, 3000)
CLIPS = 6
# Steps in units of the largest stable one; those of a round fall from the first, and may be larger.
STEPS: Vector = 3.0 ** -np.arange(8.0)
LARGEST_ROUND = 8.0
# A step alpha with less than that many alpha/alpha_max in all hardly moves the model.
SHORTEST_WAY = 0.1
WIDE, CLOSE = 1.8 ** np.arange(-1.0, 2.0), 1.35 ** np.arange(-1.0, 2.0)
CLOSE_STEPS: Vector = 3.0 ** np.linspace(-0.75, 0.75, 7)
# All comparisons together take a second or two: more ticks are simulated by fewer and longer steps.
TICKS = 1000
# Runs in each world for many, fewer and the last candidates. Short horizons are quick: up to
# this many times the runs, down from this many ticks.
COARSE, MIDDLE, FINE = 1, 2, 4
MORE_RUNS, FEW_TICKS = 8, 300
CHOICE_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the settings leave open, and what they give.

    Args:
      horizon: The horizon, or None to choose it.
      clip: The clip; None for the domain's bound, or when it is chosen.
      chooses_clip: Whether the clip is chosen.
      step: The step, or None to choose it.
      shortest: The shortest horizon to choose.
    """

    horizon: int | None = None
    clip: float | None = None
    chooses_clip: bool = False
    step: float | None = None
    shortest: int = 2


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """What was chosen.

    Args:
      horizon: The number T of ticks or rounds.
      clip: The clip C, in gradient units; None for the domain's bound.
      step: The step alpha of a local copy, rho/T^2 of synchronous-1, or c1 of synchronous-2.
    """

    horizon: int
    clip: float | None
    step: float


def choose(
    proposal: Proposal, public: PublicGroups, given: Given, *, bound: float, worlds: Sequence[World]
) -> Hyperparameters:
    """The best (T, C, step) where the settings leave them open; equal arguments choose equally.

    Args:
      proposal: The study; its horizon, clip, step and ticks are not looked at, and its
        ``unit_scales`` are those of a bound of 1.
      public: The public records in groups.
      given: What is open.
      bound: The domain's bound Xi on one record's gradient.
      worlds: Where candidates are compared.
    """
    search = _Search(proposal, public, worlds, bound)
    horizon, clips = given.horizon, search.clips if given.chooses_clip else [given.clip]
    if horizon is None:
        grid = search.grid(search.horizons(given.shortest), clips, given.step)
        # The best of many is good by chance too: those of the horizons meet on other noise.
        best = search.best(search.best_of_each_horizon(grid), FINE)
        near = search.near(best.horizon, given.shortest)
        horizon = search.best(search.around(best, given, horizons=near), MIDDLE).horizon
    clip = given.clip
    if given.chooses_clip:
        best = search.best(search.grid([horizon], clips, given.step), MIDDLE)
        clip = search.best(search.around(best, given, horizons=[horizon]), MIDDLE).clip
    if given.step is not None:
        return Hyperparameters(horizon=horizon, clip=clip, step=given.step)
    best = search.best(search.grid([horizon], [clip], None), FINE)
    limit = search.largest_step(horizon, clip)
    closer = sorted({min(best.step * f, limit) for f in CLOSE_STEPS.tolist()})
    return search.best([replace(best, step=step) for step in closer], FINE)


class _Search:
    """Comparisons of candidates on the public records."""

    def __init__(
        self, proposal: Proposal, public: PublicGroups, worlds: Sequence[World], bound: float
    ) -> None:
        self._proposal, self._public = proposal, public
        self._worlds, self._bound = worlds, bound
        self._is_asynchronous = isinstance(proposal.algorithm, Asynchronous)
        self._start = getattr(proposal.algorithm, "start", None)
        self._reaches: dict[float | None, float] = {}

    def _reach(self, clip: float | None) -> float:
        if clip not in self._reaches:
            public = self._public
            self._reaches[clip] = stability.reach(
                public.records, public.problem.loss, counts=public.unclipped(clip)
            )
        return self._reaches[clip]

    def _unit_step(self, clip: float | None) -> float:
        """The largest stable step, for a round that of one owner with all records."""
        algorithm, loss = self._proposal.algorithm, self._public.problem.loss
        if isinstance(algorithm, Asynchronous):
            expected = self._proposal.clock_rates[:, None] if algorithm.counted else None
            reach = self._reach(clip)
            return float(stability.stable_steps(algorithm, reach, loss=loss, frequency=expected)[0])
        full = algorithm.theta_max if loss.curvature is None else 2.0
        return LARGEST_ROUND * full / self._reach(None)

    @cached_property
    def clips(self) -> list[float | None]:
        """Clips from the typical gradient of the public records up to the domain's bound."""
        x, y = self._public.records.features, self._public.records.targets
        start = np.zeros(len(y)) if self._start is None else x @ self._start
        norms = np.abs(self._public.problem.loss.slopes(start, y))
        norms = norms * np.abs(x).sum(axis=1)
        low = max(float(np.quantile(norms, 0.25)), 1e-3 * self._bound)
        return list(np.geomspace(min(low, self._bound), self._bound, CLIPS))

    def horizons(self, shortest: int) -> list[int]:
        """Horizons to try, none too short."""
        rounds = 1 if self._is_asynchronous else self._proposal.num_owners
        return sorted({max(shortest, 2, T // rounds) for T in HORIZONS})

    def near(self, horizon: int, shortest: int) -> list[int]:
        """Horizons around one."""
        return sorted({max(shortest, 2, round(horizon * f)) for f in WIDE})

    def grid(
        self, horizons: Sequence[int], clips: Sequence[float | None], given: float | None
    ) -> list[Hyperparameters]:
        """All of these with the steps to try for each, or the step that is given."""
        return [
            Hyperparameters(horizon=T, clip=C, step=step)
            for T in horizons
            for C in clips
            for step in self.steps(T, C, given)
        ]

    def steps(self, horizon: int, clip: float | None, given: float | None) -> list[float]:
        """Steps to try for a horizon, or the one that is given."""
        if given is not None:
            return [given]
        ticks = self._ticks(horizon)
        # From a model that is good already, hardly moving is a choice too.
        shortest = SHORTEST_WAY if self._start is None else 0.0
        kept = STEPS if not self._is_asynchronous else STEPS[STEPS * ticks >= shortest]
        return list(self.largest_step(horizon, clip) * (kept if kept.size else np.ones(1)))

    def largest_step(self, horizon: int, clip: float | None) -> float:
        """The largest step to try."""
        shorter = self._ticks(horizon) / horizon if self._is_asynchronous else 1.0
        return self._unit_step(clip) * shorter

    def around(
        self, best: Hyperparameters, given: Given, *, horizons: Sequence[int]
    ) -> list[Hyperparameters]:
        """The grid drawn closer around a candidate."""
        factors = WIDE if len(horizons) > 1 else CLOSE
        clips: list[float | None] = [given.clip]
        if given.chooses_clip:
            around = (best.clip or self._bound) * factors
            clips = sorted(set(np.minimum(around, self._bound).tolist()))
        steps = [given.step] if given.step is not None else list(best.step * factors)
        return [
            Hyperparameters(horizon=T, clip=C, step=a)
            for T in horizons
            for C in clips
            for a in steps
        ]

    def best(self, grid: Sequence[Hyperparameters], runs: int) -> Hyperparameters:
        """The candidate with the smallest mean relative fitness."""
        return min(self._means(grid, runs), key=lambda pair: pair[0])[1]

    def best_of_each_horizon(self, grid: Sequence[Hyperparameters]) -> list[Hyperparameters]:
        """The best candidate of each horizon, after few runs."""
        means = itertools.groupby(self._means(grid, COARSE), key=lambda pair: pair[1].horizon)
        return [min(same, key=lambda pair: pair[0])[1] for _, same in means]

    def _means(
        self, grid: Sequence[Hyperparameters], runs: int
    ) -> list[tuple[float, Hyperparameters]]:
        """Mean relative fitness of each candidate."""
        rng = np.random.default_rng(CHOICE_SEED)
        more = runs_worth(MORE_RUNS, self._proposal.algorithm.num_features)
        means: list[tuple[float, Hyperparameters]] = []
        for horizon, points in itertools.groupby(grid, key=lambda point: point.horizon):
            same = list(points)
            psi = relative_fitness_of(
                self._proposal,
                self._designs(horizon, same),
                self._worlds,
                runs=runs * int(np.clip(FEW_TICKS // horizon, 1, more)),
                rng=rng,
            )
            means += [(middle(own), point) for own, point in zip(psi, same, strict=True)]
        return means

    def _ticks(self, horizon: int) -> int:
        """Simulated ticks: enough for everyone to be asked."""
        return min(horizon, max(TICKS, LEAST_TICKS * self._proposal.num_owners))

    def _designs(self, horizon: int, points: Sequence[Hyperparameters]) -> Designs:
        """The candidates of one horizon."""
        clips = [self._bound if p.clip is None else min(p.clip, self._bound) for p in points]
        return Designs(
            horizon=horizon,
            bounds=np.array(clips),
            clips=any(point.clip is not None for point in points),
            steps=np.array([point.step for point in points]),
            reaches=np.array([self._reach(point.clip) for point in points]),
            ticks=self._ticks(horizon),
        )
