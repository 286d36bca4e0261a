"""The numbers behind every figure of both papers, on the records that are at hand.

A figure is one of seven kinds of experiment on one of three data sets. Sizes of owners follow the
tables: with the full public files those of the papers, with smaller files as much as they allow.
Where the papers leave a number out (step, box, bound), it is chosen from public records, once for
a whole figure, so that slopes are those of the noise and not of the tuning.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from common.config import check_settings
from common.features import FeatureMap
from common.terms import Records
from learner.experiments.accuracy import Family
from learner.experiments.public_data import Files, hospital_family, loan_family, read_cards
from learner.forecast.bounds import Constants, fit_constants
from learner.forecast.proposal import model_of, propose
from learner.forecast.twin import run_study
from learner.forecast.world import World
from learner.plan import Decision, PublicSide, decide
from learner.settings import StudySettings

__all__ = ["FIGURES", "Figure", "Lab", "Laboratory", "figure_numbers"]

Vector = NDArray[np.float64]
Data = Literal["loans", "hospitals", "cards"]
Kind = Literal["percentiles", "timing", "surface", "lines", "value", "hospitals", "scenarios"]

BUDGETS = (1.0, 10.0, 100.0)
PERCENTILE_RUNS = 100
MEAN_RUNS = 60
CHECKPOINTS = 50
FEWEST_STAYS = 300
VALUE_RECORDS = 10_000
SEED = 1


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of a paper.

    Args:
      name: A or S for the paper, and the figure's number.
      kind: What is shown.
      data: On which records.
      horizon: T.
      axis: For lines, what they run along.
      reports: What the paper says of it.
    """

    name: str
    kind: Kind
    data: Data
    horizon: int
    reports: str
    axis: Literal["epsilon", "records", "both"] = "both"

    @property
    def synchronous(self) -> bool:
        """Whether it is of the synchronous paper."""
        return self.name.startswith("S")


FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(name="A2", kind="percentiles", data="loans", horizon=1000,
               reports="the median falls to a neighbourhood of the optimum; larger epsilon is "
               "better and spreads less"),
        Figure(name="A3", kind="timing", data="loans", horizon=1000,
               reports="one bank at a time, in random order, all equally often"),
        Figure(name="A4", kind="surface", data="loans", horizon=1000,
               reports="(11) with c1' = 0, c2' = 2.1e9 is tight over n and epsilon"),
        Figure(name="A5", kind="lines", data="loans", horizon=1000,
               reports="straight lines of slope -2 in epsilon and in n"),
        Figure(name="A6", kind="value", data="loans", horizon=1000,
               reports="with 10,000 records each, the first bank gains from 5 banks at epsilon "
               "10 and from 100 banks at epsilon 2.5"),
        Figure(name="A7", kind="percentiles", data="hospitals", horizon=1000,
               reports="86 hospitals: for large epsilon the median falls to a neighbourhood"),
        Figure(name="A8", kind="timing", data="hospitals", horizon=1000,
               reports="one of 86 hospitals at a time, in random order"),
        Figure(name="A9", kind="lines", data="hospitals", horizon=1000, axis="epsilon",
               reports="fitness falls rapidly with epsilon, along the bound"),
        Figure(name="A10", kind="hospitals", data="hospitals", horizon=1000,
               reports="at epsilon 10 eight of 86 hospitals, not the largest, gain"),
        Figure(name="A11", kind="lines", data="cards", horizon=100,
               reports="slope about -1 in epsilon; in n steeper than the bound, which is loose"),
        Figure(name="S2", kind="percentiles", data="loans", horizon=100,
               reports="from epsilon 1 to 10 fitness improves about 100-fold"),
        Figure(name="S3", kind="surface", data="loans", horizon=100,
               reports="fitness improves with n and epsilon"),
        Figure(name="S4", kind="lines", data="loans", horizon=100, axis="epsilon",
               reports="slope -2, as Theorem 2 says"),
        Figure(name="S5", kind="lines", data="loans", horizon=100, axis="records",
               reports="slope -2, as Theorem 2 says"),
        Figure(name="S6", kind="scenarios", data="loans", horizon=100,
               reports="small conservative partners spoil it whatever the first owner does; "
               "large eager ones make it good"),
        Figure(name="S7", kind="percentiles", data="cards", horizon=100,
               reports="larger epsilon comes closer to the classifier without privacy"),
        Figure(name="S8", kind="surface", data="cards", horizon=100,
               reports="fitness improves with n and epsilon"),
        Figure(name="S9", kind="lines", data="cards", horizon=100, axis="epsilon",
               reports="slope -2"),
        Figure(name="S10", kind="lines", data="cards", horizon=100, axis="records",
               reports="slope -2"),
        Figure(name="S11", kind="scenarios", data="cards", horizon=100,
               reports="as figure 6; with large eager partners nearly as good as without privacy"),
    )
}  # fmt: skip


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
        """The coefficient of g in this paper; for [S]'s regression as good as none."""
        if self.figure.data == "cards":
            return 0.5 if self.figure.synchronous else 5e-6
        return 1e-12 if self.figure.synchronous else 1e-5

    @property
    def side(self) -> PublicSide:
        """What is public."""
        return PublicSide(feature_map=self.feature_map, records=self.public)

    def settings(self, epsilon: Sequence[float]) -> StudySettings:
        """The paper's study of so many owners."""
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

    def blocks(self, sizes: Sequence[int]) -> list[Records]:
        """The first n_1 records, the next n_2, and so on."""
        edges = np.cumsum((0, *sizes))
        return [_rows(self.table, slice(a, b)) for a, b in itertools.pairwise(edges)]

    def world(self, shards: Sequence[Records]) -> World:
        """The world of these shards."""
        return World.of(shards, model_of(self.settings([1.0])))

    def step(self, sizes: Sequence[int], epsilon: float) -> float:
        """The step constant for the middle of a figure, from public records."""
        made = decide(
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
        seed: int = SEED,
    ) -> tuple[Vector, list[Vector]]:
        """Relative fitness of each run at the end and at the checkpoints."""
        decision = Decision(
            num_records=tuple(sizes), horizon=self.figure.horizon, clip=None, constant=constant
        )
        proposal = propose(
            self.settings(epsilon), self.side, num_records=sizes, seed=seed, decision=decision
        )
        trace: list[NDArray[np.float64]] = []
        models = run_study(
            proposal,
            world,
            runs=runs,
            checkpoints=checkpoints,
            trace=trace,
            rng=np.random.default_rng(seed),
        )
        psi = [_fitness(world, models) for models in (models, *trace)]
        return psi[0], psi[1:]


def _fitness(world: World, models: NDArray[np.float64]) -> Vector:
    return np.maximum(world.evaluation.relative_fitness(models), 1e-16)


def _rows(records: Records, rows: slice | NDArray[np.intp]) -> Records:
    return Records(features=records.features[rows], targets=records.targets[rows])


class Laboratory:
    """Reads each data set once, and makes the lab of each figure."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._loans = cache(lambda: loan_family(files.loans))
        self._hospitals = cache(lambda: hospital_family(files.facilities, largest=1000))
        self._cards = cache(lambda: read_cards(files.cards))
        self._grids: dict[tuple[bool, Data], pd.DataFrame] = {}

    def lab(self, figure: Figure) -> Lab:
        """The lab of a figure."""
        if figure.data == "cards":
            public, private, feature_map = self._cards()
            return Lab(
                figure=figure, feature_map=feature_map, public=public, table=private, shards={}
            )
        family: Family = self._loans() if figure.data == "loans" else self._hospitals()
        shards = {n: s for n, s in family.shards.items() if len(s) >= FEWEST_STAYS}
        table = family.shards["bank"] if figure.data == "loans" else next(iter(shards.values()))
        return Lab(
            figure=figure,
            feature_map=family.feature_map,
            public=family.public,
            table=table,
            shards=shards if figure.data == "hospitals" else {},
        )

    def grid(self, figure: Figure) -> pd.DataFrame:
        """Mean relative fitness over n and epsilon, three equal owners; computed once."""
        key = (figure.synchronous, figure.data)
        if key not in self._grids:
            self._grids[key] = _grid(self.lab(figure))
        return self._grids[key]


def figure_numbers(figure: Figure, laboratory: Laboratory) -> pd.DataFrame:
    """The numbers of a figure, as its Parquet file holds them."""
    lab = laboratory.lab(figure)
    kinds: dict[Kind, Callable[[], pd.DataFrame]] = {
        "percentiles": lambda: _percentiles(lab),
        "timing": lambda: _timing(lab),
        "surface": lambda: with_bound(laboratory.grid(figure)),
        "lines": lambda: _lines(lab, laboratory),
        "value": lambda: _value(lab),
        "hospitals": lambda: _hospitals(lab),
        "scenarios": lambda: _scenarios(lab),
    }
    return kinds[figure.kind]()


def _sizes(lab: Lab) -> list[int]:
    """Owners of a figure: the hospitals, or three equal parts of the table, the papers' at most."""
    if lab.shards:
        return [len(shard) for shard in lab.shards.values()]
    most = 30_000 if lab.figure.data == "cards" else 250_000
    return [min(most, len(lab.table) // 3)] * 3


def _owners(lab: Lab, sizes: Sequence[int]) -> list[Records]:
    return list(lab.shards.values()) if lab.shards else lab.blocks(sizes)


def _percentiles(lab: Lab) -> pd.DataFrame:
    """Quartiles of 100 runs against k, for three budgets."""
    sizes = _sizes(lab)
    world = lab.world(_owners(lab, sizes))
    T = lab.figure.horizon
    ks = sorted(set(np.linspace(1, T, CHECKPOINTS).astype(int).tolist()))
    constant = lab.step(sizes, BUDGETS[1])
    rows = []
    for epsilon in BUDGETS:
        _, trace = lab.run(
            world,
            sizes,
            [epsilon] * len(sizes),
            constant=constant,
            runs=PERCENTILE_RUNS,
            checkpoints=ks,
        )
        for k, psi in zip(ks, trace, strict=True):
            low, middle, high = np.quantile(psi, [0.25, 0.5, 0.75])
            rows.append({"epsilon": epsilon, "k": k, "q25": low, "median": middle, "q75": high})
    return pd.DataFrame(rows).assign(owners=len(sizes), records=sizes[0])


def _timing(lab: Lab) -> pd.DataFrame:
    """Whose each tick is."""
    sizes = _sizes(lab)
    rng = np.random.default_rng(SEED)
    ticks = rng.integers(len(sizes), size=lab.figure.horizon)
    times = np.cumsum(rng.standard_exponential(lab.figure.horizon)) / len(sizes)
    return pd.DataFrame({"k": np.arange(1, ticks.size + 1), "time": times, "owner": ticks + 1})


def _grid(lab: Lab) -> pd.DataFrame:
    """Mean relative fitness of three equal owners over n and epsilon, with one step."""
    largest = _sizes(lab)[0]
    sizes = [int(largest * f) for f in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)]
    budgets = np.geomspace(*((3.0, 300.0) if lab.figure.data == "loans" else (1.0, 100.0)), 5)
    constant = lab.step([sizes[2]] * 3, float(budgets[2]))
    rows = []
    for size in sizes:
        world = lab.world(lab.blocks([size] * 3))
        optimum = world.evaluation.fitness_optimal
        for epsilon in budgets.tolist():
            psi, _ = lab.run(world, [size] * 3, [epsilon] * 3, constant=constant)
            rows.append(
                {"records": size, "epsilon": epsilon, "relative_fitness": psi.mean(),
                 "fitness_optimal": optimum, "owners": 3}
            )  # fmt: skip
    return pd.DataFrame(rows)


def with_bound(grid: pd.DataFrame) -> pd.DataFrame:
    """The grid with (11) fitted to it, its constants in every row."""
    n = (grid["records"] * grid["owners"]).to_numpy(dtype=np.float64)
    S = (grid["owners"] / grid["epsilon"] ** 2).to_numpy(dtype=np.float64)
    fitted: Constants = fit_constants(n, S, grid["relative_fitness"].to_numpy())
    x = np.sqrt(S) / n
    return grid.assign(
        bound=fitted.sqrt_term * x + fitted.linear_term * x**2,
        sqrt_term=fitted.sqrt_term,
        linear_term=fitted.linear_term,
    )


def _lines(lab: Lab, laboratory: Laboratory) -> pd.DataFrame:
    """Cuts through the grid, or hospitals of their own sizes, with the bound."""
    if not lab.shards:
        return with_bound(laboratory.grid(lab.figure))
    sizes = _sizes(lab)
    world = lab.world(_owners(lab, sizes))
    budgets = np.geomspace(1.0, 1000.0, 7).tolist()
    constant = lab.step(sizes, budgets[4])
    rows = []
    for epsilon in budgets:
        psi, _ = lab.run(world, sizes, [epsilon] * len(sizes), constant=constant)
        rows.append(
            {"records": int(np.mean(sizes)), "epsilon": epsilon, "relative_fitness": psi.mean(),
             "fitness_optimal": world.evaluation.fitness_optimal, "owners": len(sizes)}
        )  # fmt: skip
    return with_bound(pd.DataFrame(rows))


def _value(lab: Lab) -> pd.DataFrame:
    """Together against the first owner alone, over the number of owners and epsilon."""
    available = len(lab.table)
    size = VALUE_RECORDS if available >= 100 * VALUE_RECORDS else available // 32
    most = min(100, available // size)
    counts = sorted({int(n) for n in np.geomspace(2, most, 7).round()})
    budgets = np.geomspace(1.0, 300.0, 6).tolist()
    rows = []
    for count in counts:
        sizes = [size] * count
        world = lab.world(lab.blocks(sizes))
        alone = float(world.relative_fitness_alone[0])
        for epsilon in budgets:
            constant = lab.step(sizes, epsilon)
            psi, _ = lab.run(world, sizes, [epsilon] * count, constant=constant)
            rows.append(
                {"owners": count, "epsilon": epsilon, "relative_fitness": psi.mean(),
                 "alone": alone, "gains": bool(psi.mean() < alone), "records": size}
            )  # fmt: skip
    return pd.DataFrame(rows)


def _hospitals(lab: Lab) -> pd.DataFrame:
    """Each hospital's own model beside the common one at three budgets."""
    sizes = _sizes(lab)
    world = lab.world(_owners(lab, sizes))
    alone = world.relative_fitness_alone
    table = pd.DataFrame({"owner": list(lab.shards), "records": sizes, "alone": alone})
    for epsilon in BUDGETS:
        constant = lab.step(sizes, epsilon)
        psi, _ = lab.run(world, sizes, [epsilon] * len(sizes), constant=constant)
        table[f"together_{epsilon:g}"] = psi.mean()
        table[f"gains_{epsilon:g}"] = psi.mean() < alone
    return table


def _scenarios(lab: Lab) -> pd.DataFrame:
    """Partners small or large, conservative or eager, against the first owner's n_1 and epsilon_1.

    Partners have 1,000 records or a third of the table, and epsilon 0.1 or 10.
    """
    large = _sizes(lab)[0]
    firsts = [int(n) for n in np.geomspace(min(1000, large // 4), large, 4)]
    rows = []
    for number, (partner, budget) in enumerate(
        ((1000, 0.1), (1000, 10.0), (large, 0.1), (large, 10.0)), start=1
    ):
        for first in firsts:
            sizes = [first, partner, partner]
            world = lab.world(lab.blocks(sizes))
            for epsilon in (0.1, 1.0, 10.0):
                constant = lab.step(sizes, min(epsilon, budget))
                psi, _ = lab.run(world, sizes, [epsilon, budget, budget], constant=constant)
                rows.append(
                    {"scenario": number, "partner_records": partner, "partner_epsilon": budget,
                     "records": first, "epsilon": epsilon, "relative_fitness": psi.mean()}
                )  # fmt: skip
    return pd.DataFrame(rows)
