r"""How Newton's step clips, splits epsilon between curvature and gradient, and how far it goes.

As for the ticks (:mod:`learner.planning.tuning`), studies of many clips C and shares q are run in
the worlds of :mod:`learner.simulated.surrogates`, where public records play the owners and differ
as they will, under the noise that each would add; the smallest mean relative fitness wins. A small
clip needs little noise and shows a little of each record; a small share leaves most of epsilon to
the gradient, and takes the curvature from the public records. How many rounds it takes to come near
is decided less by the worlds, which curve as the few public records do, than by what they may have
missed (:meth:`_Search.left`).

After that, how hard it is to believe that owners are farther away than chance makes them
(:attr:`learner.algorithms.shrinkage.Around.odds`) is compared world by world, for moments around
the public model too: what is best where owners differ is not what is best where they do not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from common.arrays import Array, Matrix, Vector
from common.domain import Domain
from common.moments import packed_length
from common.releases import curvature_scale
from learner.algorithms.newton import NewtonStep
from learner.algorithms.shrinkage import Around
from learner.algorithms.wiener import ODDS
from learner.planning.around import around_drifting, largest_gradient
from learner.planning.tail import Tail
from learner.simulated.groups import PublicGroups
from learner.simulated.studies import OneShot, Proposal, run_study, summed_noise
from learner.simulated.united import United, newton_steps
from learner.simulated.world import World, middle, runs_worth

# Quantiles of the public gradients that clips are tried at, beside the one that clips nothing.
QUANTILES = (0.5, 0.7, 0.85, 0.95, 0.99, 1.0)
SHARES = (0.7, 0.5, 0.3, 0.15, 0.05, 0.02)
ROUNDS = (1, 2, 3, 4)
# Runs in each world for all candidates, and for this many of the best; fewer of many coordinates.
COARSE, FINE, BEST = 2, 12, 4
# Candidates within this of the best one are level.
LEVEL = 1.1
SPLIT_SEED = 0
# Fitness that is no different from 0.
TINY = 1e-300
# Odds that are tried, level within this of the best one. Relative fitness below the least is all
# alike: no odds are worth having for it.
TRIED_ODDS, LEVEL_ODDS, LEAST = (0.5, ODDS, 3.0, 5.0), 1.02, 1e-6

_Place = tuple[int, int]
_Answers = Callable[[int, float | None, Matrix], Array]


@dataclass(frozen=True, kw_only=True)
class Split:
    """One candidate.

    Args:
      clip: The clip C, in gradient units; None for the domain's bound.
      share: The share q of epsilon that the curvature has.
      rounds: How often each owner is asked, for an equal part of epsilon.
    """

    clip: float | None
    share: float
    rounds: int

    def bound(self, largest: float) -> float:
        """The bound on one record's gradient, where the domain's is this."""
        return largest if self.clip is None else min(largest, self.clip)

    def sensitivity(self, bound: float) -> float:
        """The scale of a gradient's noise for n_i epsilon_i of 1: 2 C R/(1 - q)."""
        return 2.0 * bound / (1.0 - self.share) * self.rounds


def choose_split(
    public: PublicGroups,
    worlds: Sequence[World],
    *,
    domain: Domain,
    units: Vector,
    clips: Sequence[float | None] | None = None,
    shares: Sequence[float] = SHARES,
    rounds: Sequence[int] = ROUNDS,
    counted: Vector | None = None,
) -> Split:
    """The best clip, share and number of rounds; equal arguments choose equally.

    Args:
      public: The public records in groups.
      worlds: Where candidates are compared.
      domain: The public bounds that every record keeps.
      units: Scale of each owner's noise for a response that one record moves by 1/n_i, shape (N,).
      clips: Clips to try; None for some from the typical public gradient to the largest.
      shares: Shares to try.
      rounds: Numbers of rounds to try.
      counted: How much each owner's answer counts, shape (N,), summing to 1; None for as much as
        it has of the records.
    """
    counted = worlds[0].weights if counted is None else counted
    search = _Search(public, worlds, domain, units, max(rounds), counted)
    grid = _Grid(search.clips if clips is None else clips, shares)
    found: list[tuple[float, Split]] = []
    ranked = grid.every_other
    for count in rounds:
        coarse = grid.descend(ranked, lambda split: search.expected(split, search.coarse), count)
        ranked = sorted(coarse, key=coarse.__getitem__)[:BEST]
        splits = [grid.split(each, count) for each in ranked]
        found += [
            (search.expected(split, search.fine) + search.left(split), split) for split in splits
        ]
    best = min(mean for mean, _ in found)
    # More rounds are more answers of every owner: they must be worth it.
    fewest = min(split.rounds for mean, split in found if mean <= LEVEL * best)
    return min((pair for pair in found if pair[1].rounds == fewest), key=lambda pair: pair[0])[1]


def choose_odds(proposal: Proposal, worlds: Sequence[World]) -> float:
    """The best odds of owners that are farther away than chance makes them.

    Best is the smallest geometric mean over worlds, where each counts as much as any other. Of odds
    that are level the smallest are taken, which go farthest where owners are farther still.

    Args:
      proposal: A study that leans on the public model (``around``).
      worlds: Where odds are compared.
    """
    algorithm = proposal.algorithm
    assert isinstance(algorithm, OneShot)  # noqa: S101 (nobody else leans on it)
    around = algorithm.around
    assert around is not None  # noqa: S101 (as above)

    def geometric_mean(odds: float) -> float:
        own = replace(proposal, algorithm=replace(algorithm, around=replace(around, odds=odds)))
        rng, logarithms = np.random.default_rng(SPLIT_SEED), []
        runs = runs_worth(FINE, algorithm.num_features)
        for world in worlds:
            models = run_study(own, world, runs=runs, rng=rng)
            psi = float(world.evaluation.relative_fitness(models).mean())
            logarithms.append(np.log(max(psi, LEAST)))
        return float(np.exp(np.mean(logarithms)))

    means = [geometric_mean(odds) for odds in TRIED_ODDS]
    best = min(means) * LEVEL_ODDS
    return next(odds for odds, mean in zip(TRIED_ODDS, means, strict=True) if mean <= best)


@dataclass(frozen=True, eq=False)
class _Grid:
    """Clips and shares, each in order, and the candidates that lie beside each other."""

    clips: Sequence[float | None]
    shares: Sequence[float]

    @property
    def every_other(self) -> list[_Place]:
        """Where the search begins: there may be more than one valley."""
        sides = (range(0, len(side), 2) for side in (self.clips, self.shares))
        return [(clip, share) for clip, share in itertools.product(*sides)]

    def split(self, place: _Place, rounds: int) -> Split:
        """The candidate at a place."""
        return Split(clip=self.clips[place[0]], share=self.shares[place[1]], rounds=rounds)

    def descend(
        self, first: Sequence[_Place], mean: Callable[[Split], float], rounds: int
    ) -> dict[_Place, float]:
        """The means of some candidates, and of those on a way down from the best of them.

        It ends at a candidate that none beside it betters.
        """
        tried = {each: mean(self.split(each, rounds)) for each in first}
        place = None
        while place != (best := min(tried, key=tried.__getitem__)):
            place = best
            tried |= {
                each: mean(self.split(each, rounds))
                for each in self._beside(place)
                if each not in tried
            }
        return tried

    def _beside(self, place: _Place) -> Iterator[_Place]:
        """Those next to a place, and itself."""
        for clip, share in itertools.product(*((at - 1, at, at + 1) for at in place)):
            if 0 <= clip < len(self.clips) and 0 <= share < len(self.shares):
                yield clip, share


@dataclass(frozen=True, eq=False)
class _Search:
    public: PublicGroups
    worlds: Sequence[World]
    domain: Domain
    units: Vector
    most: int
    counted: Vector
    # What was computed: means of candidates, and what depends on a clip alone, or on a world, too.
    _means: dict[tuple[Split, int], float] = field(default_factory=dict, init=False)
    _known: dict[float | None, Around] = field(default_factory=dict, init=False)
    _first: dict[tuple[int, float | None], Vector] = field(default_factory=dict, init=False)
    _curved: dict[tuple[int, float | None], Matrix] = field(default_factory=dict, init=False)

    @property
    def coarse(self) -> int:
        """Runs in each world for all candidates."""
        return runs_worth(COARSE, self.domain.num_features)

    @property
    def fine(self) -> int:
        """Runs in each world for the best candidates."""
        return runs_worth(FINE, self.domain.num_features)

    @cached_property
    def clips(self) -> list[float]:
        """Clips from the typical gradient of the public records to one that clips nothing."""
        largest = largest_gradient(self.public, self.domain)
        tried = {float(value) for value in np.quantile(self.tail.norms, QUANTILES)}
        if self.public.problem.loss.is_quadratic:
            tried.add(self.tail.farthest)
        return sorted({min(clip, largest) for clip in tried if clip > 0} | {largest})

    @cached_property
    def tail(self) -> Tail:
        """How long gradients may be of records that are not public."""
        public, gradients = self.public, self.public.gradients
        # A model of classes that is too sure of its records has next to no gradients.
        if public.problem.loss.has_classes():
            gradients = public.problem.gradients(public.start, public.records, None)
        return Tail(gradients, largest_gradient(public, self.domain))

    def expected(self, split: Split, runs: int) -> float:
        r"""The mean relative fitness of a candidate, with what its clip takes of unseen records.

        In so many runs of each world: of many coordinates the best have no more than all others.

        A mean gradient that is off by :math:`\delta` leads to a model whose relative fitness is
        :math:`\delta^\top H^{-1}\delta/(2f^*)`. Of any loss but the squared one slopes are bounded,
        so that gradients end where the features' radius does, which public records reach.
        """
        if (split, runs) not in self._means:
            self._means[split, runs] = self.mean(split, runs) + self._unseen(split.clip)
        return self._means[split, runs]

    def _unseen(self, clip: float | None) -> float:
        """What a clip takes of records that are longer than any public one."""
        if clip is None or not self.public.problem.loss.is_quadratic:
            return 0.0
        lost = self.tail.lost(clip) @ self.public.whitening
        return float(lost @ lost) / (2.0 * self._best_fitness)

    @cached_property
    def _best_fitness(self) -> float:
        """The fitness of the public model, above 0."""
        return max(
            self.public.problem.fitness(self.public.theta_optimal, self.public.records), TINY
        )

    def mean(self, split: Split, runs: int) -> float:
        """The mean relative fitness of a candidate over all worlds."""
        models = np.split(self._models(split, runs), len(self.worlds))
        found = [
            world.evaluation.relative_fitness(its)
            for world, its in zip(self.worlds, models, strict=True)
        ]
        return middle(np.stack(found))

    def left(self, split: Split) -> float:
        r"""What may be left of the way where few records show how the loss curves.

        .. math:: \psi_0 \min(1, d v)^R

        after R rounds, with :math:`\psi_0` the relative fitness of the start and v the variance by
        chance of the entries of the public curvature where it is I, shape (d, d): a step by it
        leaves dv of the squared way in the mean. Squared loss curves alike at every model, so its
        owners tell what noise does not hide, as worlds show. Any other curves anew at each model,
        and a round mends its share of that.
        """
        if self.public.problem.loss.is_quadratic:
            return 0.0
        around = self._around(split.clip)
        unknown = self.public.whitening.shape[1] * around.curvature_spread
        return self._whole_way * float(min(unknown, 1.0)) ** split.rounds

    @cached_property
    def _whole_way(self) -> float:
        """The relative fitness of the model that steps begin at."""
        start = self.public.start[None]
        return middle(np.stack([w.evaluation.relative_fitness(start) for w in self.worlds]))

    def _models(self, split: Split, runs: int) -> Matrix:
        """What runs come to, those of one world after those of the other, shape (W R, p)."""
        problem = self.public.problem
        bound = split.bound(problem.gradient_bound(self.domain))
        scale = split.sensitivity(bound)
        newton = NewtonStep(
            weights=self.counted,
            around=self._around(split.clip),
            curvature_scale=curvature_scale(
                problem.loss, self.domain, bound=bound, share=split.share
            ),
            scales=self.units * scale,
            theta_max=problem.theta_max,
            regulariser=problem.regulariser,
            rounds=split.rounds,
            is_quadratic=problem.loss.is_quadratic,
        )
        scales = newton.weights * newton.scales
        variance = 2.0 * float(scales @ scales)
        draws = [scale * draw[:, :runs] for draw in self._noise[: split.rounds]]
        return newton_steps(
            newton,
            lambda thetas: self._in_all(self._gradients, split.clip, thetas, runs),
            lambda thetas: self._in_all(self._curvatures, split.clip, thetas, runs),
            (draw.reshape(-1, draw.shape[-1]) for draw in draws),
            variance,
        )

    def _in_all(self, answers: _Answers, clip: float | None, thetas: Matrix, runs: int) -> Array:
        """The answers of all worlds' owners in this many runs of each, world after world."""
        if thetas.ndim == 1:
            same = np.stack([answers(place, clip, thetas) for place in range(len(self.worlds))])
            return np.repeat(same, runs, axis=0)
        by_world = enumerate(np.split(thetas, len(self.worlds)))
        return np.concatenate([answers(place, clip, its) for place, its in by_world])

    def _around(self, clip: float | None) -> Around:
        if clip not in self._known:
            self._known[clip] = around_drifting(self.public, clip, doubts=True)
        return self._known[clip]

    def _gradients(self, place: int, clip: float | None, thetas: Matrix) -> Array:
        """The mean gradient of the owners of a world."""
        if thetas.ndim > 1:
            return self._united[place].gradients(thetas, clip)
        if (place, clip) not in self._first:
            self._first[place, clip] = self._united[place].gradients(thetas, clip)
        return self._first[place, clip]

    def _curvatures(self, place: int, clip: float | None, thetas: Matrix) -> Array:
        """Their curvature; of squared loss that of the first round, whatever the clip then cuts."""
        world, theta = self._united[place], self.public.start
        if thetas.ndim > 1 and not self.public.problem.loss.is_quadratic:
            found = world.curvatures(thetas, clip)
        else:
            if (place, clip) not in self._curved:
                self._curved[place, clip] = world.curvatures(theta, clip)
            found = self._curved[place, clip]
        alike = thetas.ndim > 1 and found.ndim == thetas.ndim
        return np.broadcast_to(found, (len(thetas), *found.shape)) if alike else found

    @cached_property
    def _noise(self) -> list[Array]:
        """Noise of each round's mean response, the same for all candidates, (W, R, length)."""
        rng = np.random.default_rng(SPLIT_SEED)
        scales = self.counted * self.units
        size = packed_length(self.domain.num_features)
        draw = summed_noise(scales, size, rng=rng)
        now = np.zeros(self.fine, dtype=np.intp)
        first = [draw(now) for _ in self.worlds]
        by_world = [[one, *(draw(now) for _ in range(self.most - 1))] for one in first]
        return [np.stack(draws) for draws in zip(*by_world, strict=True)]

    @cached_property
    def _united(self) -> list[United]:
        return [United(world.weighed(self.counted)) for world in self.worlds]
