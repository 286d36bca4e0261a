r"""The same study at many seeds: what ``simulate`` trains, many runs side by side in memory.

The run of seed s has the clocks of ``seed = s`` and, for owner i, the noise of seed
:math:`10^6 s + i`: what ``copriv simulate --set seed=s --insecure-noise-seed s000000`` trains over
sockets. Ticks, promises, noise and its grid are the same numbers; sums are added in another order,
so that models agree up to rounding, and bit for bit where each owner is asked once.

Nothing is protected, because the records are on this machine anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.arrays import Indices, Matrix, Units, Vector
from common.errors import InputError
from common.features import FeatureMap
from common.privacy import LARGEST_VALUE_UNITS, NoisePlan, plan_noise
from common.terms import Query, Records, StudyTerms
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import Groups, first_slots, scheduled_frequency, with_everyone
from learner.algorithms.protocol import Algorithm
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.algorithms.variants import LARGEST_COUNTED_FACTOR
from learner.planning.decision import Decision
from learner.planning.plan import Plan, is_scheduled
from learner.planning.proposal import NoiseError
from learner.planning.roles import clock_rates, groups_of, own_index
from learner.planning.settings import StudySettings
from learner.planning.ways import resolved
from learner.simulated.larger_owners import group_shares
from learner.simulated.replicates import GradientFunction, run_replicates
from learner.simulated.rounds import run_rounds
from learner.simulated.world import World
from learner.training.memory_owner import LocalShard

# Noise seeds of a run, one for each owner: no two runs share one, nor one with a clock.
NOISE_SEEDS = 1_000_000
# A run's ticks are held in memory.
LONGEST_HORIZON = 1_000_000
# Numbers of noise that are drawn ahead, over all owners and runs, and responses of one of them.
DRAWN_AHEAD, MOST_AHEAD = 4_000_000, 256


@dataclass(frozen=True, kw_only=True, eq=False)
class Repeated:
    """A study on records that are here.

    Args:
      settings: The study.
      feature_map: Its feature map.
      decision: What it leaves to "auto", decided.
      shards: Each owner's records.
    """

    settings: StudySettings
    feature_map: FeatureMap
    decision: Decision
    shards: Sequence[Records]

    def models(self, seeds: Sequence[int], *, at_most: int | None = None) -> Matrix:
        """The model of each seed's run, shape (R, p).

        Args:
          seeds: The seeds.
          at_most: Ticks, or rounds, after which the runs are broken off, to see what one costs.

        Raises:
          InputError: The horizon is too long, or there are too many owners.
        """
        plan = self.plan(seeds[0])
        T, algorithm = plan.horizon, plan.algorithm
        if T > LONGEST_HORIZON or len(self.shards) > NOISE_SEEDS:
            raise InputError(
                f"algorithm.horizon: {T:,} communications of {len(self.shards):,} owners; a sweep "
                f"repeats at most {LONGEST_HORIZON:,} of {NOISE_SEEDS:,}; give a shorter horizon"
            )
        if isinstance(algorithm, Asynchronous):
            return self._take_turns(plan, algorithm, seeds, at_most or T)
        promised = np.tile(np.array(plan.responses)[:, None], (1, len(seeds)))
        if isinstance(algorithm, SynchronousAverage | SynchronousDescent):
            answers = self._answers(plan, self._gradients(plan), promised, seeds)
            rounds = replace(algorithm, horizon=min(at_most or T, T))
            return run_rounds(rounds, replicates=len(seeds), gradients=answers)
        return self._in_turn(promised, seeds)

    def plan(self, seed: int) -> Plan:
        """What runs at a seed."""
        return Plan(
            settings=resolved(self.settings, self.decision),
            num_features=self.feature_map.num_features,
            decision=self.decision,
            seed=seed,
        )

    def _take_turns(
        self, plan: Plan, algorithm: Asynchronous, seeds: Sequence[int], ticks: int
    ) -> Matrix:
        """Algorithm 1: each run on its own ticks."""
        settings, groups = plan.settings, groups_of(plan.settings)
        rates = clock_rates(settings, self.decision.num_records)
        slots = np.column_stack([self._slots(rates, plan.horizon, seed) for seed in seeds])
        promised = np.full((len(self.shards), len(seeds)), plan.horizon)
        frequency, scheduled = None, is_scheduled(settings)
        if scheduled:
            each = np.column_stack([np.bincount(run, minlength=len(groups)) for run in slots.T])
            for group, counts in zip(groups, each, strict=True):
                promised[list(group)] = counts
            if settings.algorithm.correction == "counted":
                frequency = scheduled_frequency(each)
        answers = self._answers(plan, self._gradients(plan), promised, seeds)
        gradients = _together(answers, groups, algorithm.weights) if algorithm.groups else answers
        if algorithm.counted:
            gradients = _counted(gradients, len(groups), len(seeds))
            algorithm = replace(algorithm, counted=False)
        return run_replicates(
            algorithm, slots[:ticks], gradients=gradients, frequency=frequency
        ).central

    def _slots(self, rates: Vector, horizon: int, seed: int) -> Indices:
        """Whose the ticks of a run are, shape (T,)."""
        slots = first_slots(rates, horizon=horizon, rng=np.random.default_rng(seed))
        return with_everyone(slots, len(rates)) if self.decision.asks_everyone else slots

    def _in_turn(self, promised: NDArray[np.int64], seeds: Sequence[int]) -> Matrix:
        """Algorithms that ask for more than gradients, of one owner after the other."""
        plan = self.plan(seeds[0])
        shards = [LocalShard("here", shard) for shard in self.shards]
        for shard, terms in zip(shards, self._terms(plan), strict=True):
            shard.enroll(terms)

        @cache
        def answer(owner: int, theta: bytes) -> Vector:
            # Runs ask the same until their noise has led them apart.
            model = np.frombuffer(theta)
            query = Query(study_id=self.settings.name, sequence=1, theta=model)
            return shards[owner].answer(query).gradient

        def exact(owners: Indices, thetas: Matrix) -> Matrix:
            asked = zip(owners.tolist(), thetas, strict=True)
            return np.stack([answer(owner, theta.tobytes()) for owner, theta in asked])

        answers = self._answers(plan, exact, promised, seeds)
        models = []
        for run, seed in enumerate(seeds):
            plan = self.plan(seed)
            algorithm: Algorithm[Any] = plan.algorithm
            state = algorithm.initial_state()
            for tick in plan.ticks():
                theta, owners = algorithm.query_point(state, tick)[None], np.array(tick.owners)
                each = np.repeat(theta, owners.size, axis=0)
                received = answers.of_runs(np.full(owners.size, run), owners, each)
                responses = dict(zip(tick.owners, received, strict=True))
                state = algorithm.apply_responses(state, tick, responses)
            models.append(algorithm.central_model(state))
        return np.stack(models)

    def _gradients(self, plan: Plan) -> GradientFunction:
        """The exact mean gradients."""
        world = World.of(self.shards, plan.problem)
        return world.gradients(self.decision.clip)

    def _terms(self, plan: Plan) -> list[StudyTerms]:
        """What each owner is asked to agree to."""
        return plan.terms(self.feature_map, study_id=self.settings.name)

    def _answers(
        self, plan: Plan, exact: GradientFunction, promised: NDArray[np.int64], seeds: Sequence[int]
    ) -> Answers:
        """What the owners answer in these runs, of promised responses of shape (N, R)."""
        terms, domain = self._terms(plan), self.feature_map.domain

        @cache
        def noise(owner: int, responses: int) -> NoisePlan | None:
            if responses == 0 or owner == own_index(plan.settings):
                return None
            agreed, n_i = replace(terms[owner], responses=responses), len(self.shards[owner])
            try:
                return plan_noise(agreed, domain, num_records=n_i)
            except ValueError as error:
                raise NoiseError.of(plan.settings.owners[owner].name, n_i, error) from None

        plans = [[noise(owner, m) for m in row] for owner, row in enumerate(promised.tolist())]
        return Answers(exact, plans, seeds=seeds)


class Answers:
    """What owners release in many runs: exact answers on each plan's grid, with its noise.

    Owner i of the run with seed s draws the noise of :func:`owner.core.seeded_noise` from the seed
    10^6 s + i, as the owner that ``copriv simulate`` starts with it.

    Args:
      exact: The owners' exact answers.
      plans: The noise of each owner in each run, N rows of R; None where it adds none, or is not
        asked.
      seeds: The seed of each run.
    """

    def __init__(
        self,
        exact: GradientFunction,
        plans: Sequence[Sequence[NoisePlan | None]],
        *,
        seeds: Sequence[int],
    ) -> None:
        self._exact, self._plans, self._seeds = exact, plans, seeds
        shape = (len(plans), len(seeds))
        known = [plan for row in plans for plan in row if plan is not None]
        self._grids = np.array([[plan.grid if plan else 1.0 for plan in row] for row in plans])
        self._is_exact = np.array([[plan is None for plan in row] for row in plans])
        dimension = max((plan.dimension for plan in known), default=1)
        most = max((plan.responses for plan in known), default=1)
        ahead = DRAWN_AHEAD // (shape[0] * shape[1] * dimension)
        self._ahead = max(1, min(ahead, most, MOST_AHEAD))
        self._drawn = np.zeros((*shape, self._ahead, dimension), dtype=np.int64)
        self._used = np.zeros(shape, dtype=np.int64)
        self._rngs: dict[tuple[int, int], np.random.Generator] = {}
        self._runs = np.arange(shape[1])

    def __call__(self, owners: Indices, thetas: Matrix) -> Matrix:
        """One answer in each run, shape (R, p)."""
        return self.of_runs(self._runs, owners, thetas)

    def of_runs(self, runs: Indices, owners: Indices, thetas: Matrix) -> Matrix:
        """One answer in each of some runs."""
        exact = self._exact(owners, thetas)
        grids = self._grids[owners, runs][:, None]
        units = np.rint(exact * (1.0 / grids)).astype(np.int64)
        units += self._noise(runs, owners)
        answers: Matrix = units.astype(np.float64) * grids
        is_exact = self._is_exact[owners, runs]
        if is_exact.any():
            answers[is_exact] = exact[is_exact]
        return answers

    def _noise(self, runs: Indices, owners: Indices) -> Units:
        """The next noise of these owners in grid units."""
        places = self._used[owners, runs] % self._ahead
        for index in np.flatnonzero(places == 0):
            self._draw(int(owners[index]), int(runs[index]))
        self._used[owners, runs] += 1
        return self._drawn[owners, runs, places]

    def _draw(self, owner: int, run: int) -> None:
        """Draw the noise of an owner's next responses in a run."""
        plan = self._plans[owner][run]
        if plan is None:
            return
        if (owner, run) not in self._rngs:
            seed = self._seeds[run] * NOISE_SEEDS + owner
            self._rngs[owner, run] = np.random.default_rng(seed)
        drawn = self._rngs[owner, run].laplace(scale=plan.scale_units, size=self._drawn.shape[2:])
        self._drawn[owner, run] = np.rint(np.clip(drawn, -LARGEST_VALUE_UNITS, LARGEST_VALUE_UNITS))


def _together(answers: Answers, groups: Groups, weights: Vector) -> GradientFunction:
    """The answers of groups, each one larger owner (Remark 2 of Farokhi et al., 2021)."""
    size, of_groups = max(map(len, groups)), group_shares(groups, weights)

    def answer(slots: Indices, thetas: Matrix) -> Matrix:
        total = np.zeros_like(thetas)
        for place in range(size):
            has_one = np.array([len(groups[slot]) > place for slot in slots])
            runs = np.flatnonzero(has_one)
            owners = np.array([groups[slot][place] for slot in slots[runs]], dtype=np.intp)
            shares = np.array([of_groups[slot][place] for slot in slots[runs]])
            if runs.size:
                asked = answers.of_runs(runs, owners, thetas[runs])
                total[runs] += shares[:, None] * asked
        return total

    return answer


def _counted(gradients: GradientFunction, num_copies: int, runs: int) -> GradientFunction:
    """Answers times Remark 4's factor, counted as the run goes; see ``Variants.factor``."""
    counts, k = np.zeros((num_copies, runs)), 0

    def scaled(slots: Indices, thetas: Matrix) -> Matrix:
        nonlocal k
        at = (slots, np.arange(runs))
        factors = np.minimum(
            (k + num_copies) / (num_copies * (counts[at] + 1)), LARGEST_COUNTED_FACTOR
        )
        counts[at] += 1
        k += 1
        answers: Matrix = factors[:, None] * gradients(slots, thetas)
        return answers

    return scaled
