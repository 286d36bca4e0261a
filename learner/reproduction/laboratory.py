"""One data set under one paper's algorithm, ready for the experiments of its figures.

Sizes of owners follow the tables: with the full public files those of the papers, with smaller
files as much as they allow. Noise is that of n_i epsilon_i, so epsilons are the papers' times
``Lab.scale``, which is how many times smaller the owners are. Where the papers leave a number out
(step, box, bound), it is chosen from public records, once for a whole figure: slopes are those of
the noise, not of the tuning.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from common.arrays import Matrix, Vector
from common.config import check_settings
from common.errors import InputError
from common.features import FeatureMap
from common.terms import Records
from learner.planning.deciding import decide_quietly
from learner.planning.decision import Decision
from learner.planning.proposal import propose
from learner.planning.public_side import PublicSide
from learner.planning.settings import StudySettings
from learner.reproduction.papers import Data, Figure
from learner.reproduction.public_data import (
    BRING,
    FEWEST_RECORDS,
    Family,
    Files,
    hospital_family,
    loan_family,
    read_cards,
)
from learner.simulated.studies import run_study
from learner.simulated.world import World

MEAN_RUNS = 60
# The papers' n_i; of hospitals the papers say only that they have at least this many.
PAPER_RECORDS: dict[Data, int] = {"loans": 250_000, "hospitals": 10_000, "cards": 30_000}
# The papers' epsilons.
SMALLEST_EPSILON, LARGEST_EPSILON, GRID = 1.0, 100.0, 5
WITHOUT_NOISE = 1e9
SEED = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Lab:
    """One data set under one paper's algorithm, ready for experiments.

    Args:
      figure: Which paper, horizon and data.
      feature_map: Fitted on the public records.
      public: The public records.
      table: All private records in one table, for owners of equal size.
      shards: The owners' own shards by name; empty where owners are cut from the table.
    """

    figure: Figure
    feature_map: FeatureMap
    public: Records
    table: Records
    shards: dict[str, Records]

    @property
    def regularisation(self) -> float:
        """The coefficient of g in this paper; for [S]'s regression almost 0."""
        if self.figure.data == "cards":
            return 0.5 if self.figure.synchronous else 5e-6
        return 1e-12 if self.figure.synchronous else 1e-5

    @property
    def side(self) -> PublicSide:
        """What is public."""
        return PublicSide(feature_map=self.feature_map, records=self.public)

    def settings(self, epsilon: Sequence[float]) -> StudySettings:
        """The paper's study of this many owners."""
        name = "synchronous-2" if self.figure.synchronous else "asynchronous"
        return check_settings(
            StudySettings,
            {
                "name": "paper",
                "profile": "published",
                "features": {"map": "features.json"},
                "model": {
                    "loss": "hinge" if self.figure.data == "cards" else "squared",
                    "regularisation": self.regularisation,
                    "theta_max": 1.0 if self.figure.data == "cards" else 0.5,
                },
                "algorithm": {"name": name, "horizon": self.figure.horizon, "step": "auto"},
                "privacy": {"epsilon": 1},
                "owners": [
                    {"name": f"owner-{i}", "epsilon": f"{e:.9g}"} for i, e in enumerate(epsilon)
                ],
            },
            where="figure",
        )

    @property
    def sizes(self) -> list[int]:
        """Their n_i: the hospitals', or three equal parts of the table, at most the papers'."""
        if self.shards:
            return [len(shard) for shard in self.shards.values()]
        return [min(PAPER_RECORDS[self.figure.data], len(self.table) // 3)] * 3

    @property
    def scale(self) -> float:
        """How many times larger epsilon is than in the paper, in one digit: at least 1."""
        smaller = PAPER_RECORDS[self.figure.data] / float(np.median(self.sizes))
        return max(1.0, float(f"{smaller:.0e}"))

    @property
    def owners(self) -> list[Records]:
        """Their records."""
        return list(self.shards.values()) if self.shards else self.blocks(self.sizes)

    def blocks(self, sizes: Sequence[int]) -> list[Records]:
        """The first n_1 records, the next n_2, and so on."""
        x, y, edges = self.table.features, self.table.targets, np.cumsum((0, *sizes))
        return [Records(features=x[a:b], targets=y[a:b]) for a, b in itertools.pairwise(edges)]

    def world(self, shards: Sequence[Records]) -> World:
        """The world of these shards."""
        return World.of(shards, self.side.problem(self.settings([1.0])))

    def step(self, sizes: Sequence[int], epsilon: float) -> float:
        """The step constant for the middle of a figure, from public records."""
        made = decide_quietly(
            self.settings([epsilon] * len(sizes)), self.side, num_records=sizes, seed=SEED
        )
        return made.constant

    def run(
        self,
        world: World,
        sizes: Sequence[int],
        epsilon: Sequence[float],
        *,
        constant: float,
        runs: int = MEAN_RUNS,
        checkpoints: Sequence[int] = (),
    ) -> tuple[Vector, list[Vector]]:
        """Relative fitness of each run at the end and at the checkpoints."""
        decision = Decision(
            num_records=tuple(sizes), horizon=self.figure.horizon, clip=None, constant=constant
        )
        proposal = propose(self.settings(epsilon), self.feature_map, decision, seed=SEED)
        trace: list[Matrix] = []
        models = run_study(
            proposal,
            world,
            runs=runs,
            checkpoints=checkpoints,
            trace=trace,
            rng=np.random.default_rng(SEED),
        )
        fitness = world.evaluation.relative_fitness
        psi = [np.maximum(fitness(models), 1e-16) for models in (models, *trace)]
        return psi[0], psi[1:]

    def mean_fitness(
        self, world: World, sizes: Sequence[int], budgets: Sequence[float], *, constant: float
    ) -> list[dict[str, float]]:
        """Mean relative fitness at each epsilon of all, and what is left of it without noise."""
        rest, _ = self.run(world, sizes, [WITHOUT_NOISE] * len(sizes), constant=constant)
        rows = []
        for epsilon in budgets:
            psi, _ = self.run(world, sizes, [epsilon] * len(sizes), constant=constant)
            rows.append(
                {
                    "records": int(np.mean(sizes)),
                    "epsilon": epsilon,
                    "relative_fitness": float(psi.mean()),
                    "without_noise": float(rest.mean()),
                    "untrained": self.untrained(world),
                    "owners": len(sizes),
                }
            )
        return rows

    def untrained(self, world: World) -> float:
        """Relative fitness of theta = 0."""
        start = np.zeros((1, self.feature_map.num_features))
        return float(world.evaluation.relative_fitness(start)[0])

    def budgets(self, number: int) -> list[float]:
        """This many epsilons over the papers' range, times the scale."""
        low, high = self.scale * SMALLEST_EPSILON, self.scale * LARGEST_EPSILON
        return [float(epsilon) for epsilon in np.geomspace(low, high, number)]

    def grid(self) -> pd.DataFrame:
        """Mean relative fitness of three equal owners over n and epsilon, with one step."""
        sizes = [int(self.sizes[0] * share) for share in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)]
        budgets = self.budgets(GRID)
        constant = self.step([sizes[2]] * 3, budgets[GRID // 2])
        rows = []
        for size in sizes:
            world = self.world(self.blocks([size] * 3))
            rows += self.mean_fitness(world, [size] * 3, budgets, constant=constant)
        return pd.DataFrame(rows)


class Laboratory:
    """Reads each data set once, and makes the lab of each figure."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._loans = cache(lambda: loan_family(files.path("loans")))
        self._hospitals = cache(lambda: hospital_family(files.path("facilities"), largest=1000))
        self._cards = cache(lambda: read_cards(files.path("cards")))

    def lab(self, figure: Figure) -> Lab:
        """The lab of a figure."""
        if figure.data == "cards":
            public, private, feature_map = self._cards()
            return Lab(
                figure=figure, feature_map=feature_map, public=public, table=private, shards={}
            )
        family: Family = self._loans() if figure.data == "loans" else self._hospitals()
        shards = {n: s for n, s in family.shards.items() if len(s) >= FEWEST_RECORDS}
        if not shards:
            raise InputError(
                f"{self._files.path('facilities')}: no hospital has {FEWEST_RECORDS} stays or more "
                f"for its owner; give all of {BRING['facilities']}"
            )
        table = family.shards["bank"] if figure.data == "loans" else next(iter(shards.values()))
        return Lab(
            figure=figure,
            feature_map=family.feature_map,
            public=family.public,
            table=table,
            shards=shards if figure.data == "hospitals" else {},
        )
