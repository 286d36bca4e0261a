"""Ways of training on a case, each as relative fitness over seeds, shape (seeds,) or (1,)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from record_cases import Case

from common.arrays import Vector
from common.config import check_settings
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import draw_slots
from learner.algorithms.synchronous import SynchronousAverage, SynchronousDescent
from learner.planning.deciding import decide_quietly
from learner.planning.proposal import propose
from learner.planning.settings import StudySettings
from learner.simulated.replicates import (
    ShardMoments,
    laplace_noise,
    moment_gradients,
    run_replicates,
)
from learner.simulated.rounds import run_rounds
from learner.simulated.stability import largest_stable_step
from learner.simulated.studies import run_study

Changes = Mapping[str, Mapping[str, Any]]
"""What a study types, by section, beside the model and epsilon."""
GridKind = Literal["published", "synchronous-1", "synchronous-2"]

# What the settings leave open depends on public facts; clocks are drawn anew for each run.
CLOCK_SEED = 0
# The grid that published and synchronous training take their best of.
HORIZONS = (10, 30, 100, 300, 1000, 3000)
ROUNDS = (3, 10, 30, 100, 300)
STEPS = 8.0 * 4.0 ** -np.arange(10.0)


@dataclass(frozen=True, eq=False)
class Reached:
    """What a way of training reached.

    Args:
      psi: Relative fitness on the union, one for each seed; a single one where nothing is random.
      note: What it is of, where there is more to say.
    """

    psi: Vector
    note: str = ""

    @property
    def mean(self) -> float:
        """Mean relative fitness."""
        return float(self.psi.mean())


# Asynchronous from 0, whatever the profile's own algorithm and start are.
ASYNCHRONOUS: Mapping[str, Any] = {"name": "asynchronous", "start": "zero"}

Way = Callable[[Case, float, int], Reached]
"""(case, epsilon, number of seeds) -> what it reached.

Raises:
  InputError: The case has no such way; the sentence says why.
"""


def study(changes: Changes) -> Way:
    """A study whose open settings are decided as copriv does, run once for each seed."""

    def way(case: Case, epsilon: float, seeds: int) -> Reached:
        settings = settings_of(case, epsilon, changes)
        counts = [len(shard) for shard in case.shards]
        decision = decide_quietly(settings, case.public_side, num_records=counts, seed=CLOCK_SEED)
        proposal = propose(settings, case.feature_map, decision, seed=CLOCK_SEED)
        rng = np.random.default_rng(zlib.crc32(f"{case.title} {epsilon} {changes}".encode()))
        models = run_study(proposal, case.world, runs=seeds, rng=rng)
        psi = case.world.evaluation.relative_fitness(models)
        return Reached(psi, decision.way or "")

    return way


def settings_of(case: Case, epsilon: float, changes: Changes) -> StudySettings:
    """The study that a user would type.

    Raises:
      InputError: The settings do not go together.
    """
    model = {
        "loss": case.loss,
        "theta_max": case.theta_max,
        "regularisation": case.coefficient,
    }
    return check_settings(
        StudySettings,
        {
            "name": "results",
            "features": {"map": "unused.json", "public": {"path": "unused.csv"}},
            "model": model,
            "algorithm": dict(changes.get("algorithm", {})),
            # All of epsilon is for the training, whose result is compared.
            "privacy": {"epsilon": epsilon, "validation": 0} | dict(changes.get("privacy", {})),
            "owners": [{"name": name} for name in case.owners],
        },
        where="results",
    )


def public_model(case: Case, epsilon: float, seeds: int) -> Reached:
    """The model of the public records, which costs nobody anything."""
    del epsilon, seeds
    return Reached(np.array([case.relative_fitness_public]))


def alone(case: Case, epsilon: float, seeds: int) -> Reached:
    """The owners' own models: the middle one."""
    del epsilon, seeds
    return Reached(np.array([np.median(case.world.relative_fitness_alone)]))


def best_of_grid(kind: GridKind) -> Way:
    """The best (T, step) of the grid under the domain's bound and m = T, chosen in hindsight."""

    def way(case: Case, epsilon: float, seeds: int) -> Reached:
        grid = _Grid.of(case, kind)
        best = Reached(np.array([np.inf]))
        for horizon in HORIZONS if kind == "published" else ROUNDS:
            psi = grid.relative_fitness(kind, horizon, epsilon, seeds)
            row = int(np.argmin(psi.mean(axis=1)))
            if psi[row].mean() < best.mean:
                best = Reached(psi[row], f"T = {horizon}")
        return best

    return way


@dataclass(frozen=True, eq=False)
class _Grid:
    """The papers' algorithms on a case: what is the same at every T.

    Args:
      case: The case.
      common: What all algorithms are given.
      steps: The steps of the grid.
    """

    case: Case
    common: dict[str, Any]
    steps: Vector

    @classmethod
    def of(cls, case: Case, kind: GridKind) -> _Grid:
        """Steps down from the largest stable one, for rounds that of one owner with all records."""
        common = {
            "weights": case.world.weights,
            "num_features": case.feature_map.num_features,
            "theta_max": case.theta_max,
            "regulariser": case.problem.regulariser,
        }
        one: dict[str, Any] = common if kind == "published" else {**common, "weights": np.ones(1)}
        unit = Asynchronous(rho=1.0, horizon=1, **one)
        limit = largest_stable_step(unit, case.public, loss=case.problem.loss)
        return cls(case, common, limit * STEPS)

    def relative_fitness(
        self, kind: GridKind, horizon: int, epsilon: float, seeds: int
    ) -> np.ndarray:
        """Of every step and seed, shape (steps, seeds)."""
        case, rng = self.case, np.random.default_rng(horizon)
        steps = np.repeat(self.steps, seeds)
        noise = laplace_noise(
            2 * case.bound * horizon / (case.counts * epsilon),
            num_features=case.feature_map.num_features,
            rng=rng,
        )
        gradients = moment_gradients(ShardMoments.of(case.shards))
        if kind == "published":
            algorithm = Asynchronous(rho=1.0, horizon=horizon, **self.common)
            rates = np.ones(len(case.shards))
            slots = draw_slots(rates, horizon=horizon, replicates=seeds, rng=rng)
            models = run_replicates(
                algorithm,
                np.tile(slots, (1, len(self.steps))),
                gradients=gradients,
                noise=noise,
                rho=steps / algorithm.alpha,
            ).central
        else:
            rounds: SynchronousDescent | SynchronousAverage = SynchronousAverage(
                initial_step=1.0, horizon=horizon, **self.common
            )
            if kind == "synchronous-1":
                rounds = SynchronousDescent(rho=1.0, horizon=horizon, **self.common)
                steps = steps * horizon**2
            models = run_rounds(
                rounds, replicates=len(steps), gradients=gradients, noise=noise, step=steps
            )
        psi = case.world.evaluation.relative_fitness(models)
        return psi.reshape(len(self.steps), seeds)


def as_one_owner(case: Case) -> Case:
    """The same records in one hand: the trusted centre's case."""
    union = case.world.evaluation.records
    return replace(case, title=f"{case.title}, in one hand", shards=[union], known={})
