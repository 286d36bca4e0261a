"""Records cut into owners and public records, and the cuts of the papers' tables."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from common.arrays import Indices, Vector
from common.feature_settings import FeatureSettings
from common.features import FeatureMap
from common.losses import LOSSES, Regulariser
from common.map_fitting import fit_feature_map
from common.tables import TableSource
from common.terms import Records
from learner.planning.held_out import held_out_records
from learner.planning.public_side import PublicSide
from learner.simulated.problem import Problem
from learner.simulated.world import World

SOURCES = {
    "hospitals": "sparcs/sparcs_2020_survivors_339006.parquet",
    "loans": "lending/lc_2007_2011_all_42535.parquet",
    "cards": "creditcard/creditcard_partial_union.parquet",
}
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One table of records under one feature map, cut into owners.

    Args:
      title: Its name.
      loss: A key of ``common.losses.LOSSES``.
      feature_map: Fitted on the public records.
      public: The public records.
      shards: Each owner's records, none of them public.
      coefficient: The coefficient of g.
      theta_max: Half the side of the box.
      labels: The group of each public record; None where nothing but their order is known.
      known: The group that owners are known to be, by name.
    """

    title: str
    loss: str
    feature_map: FeatureMap
    public: Records
    shards: Sequence[Records]
    coefficient: float = 1e-5
    theta_max: float = 0.5
    labels: Indices | None = None
    known: Mapping[str, int] = field(default_factory=dict)

    @property
    def owners(self) -> list[str]:
        """Their names."""
        return [f"owner-{i}" for i in range(len(self.shards))]

    @property
    def counts(self) -> Vector:
        """Each owner's n_i, shape (N,)."""
        return np.array([len(shard) for shard in self.shards], dtype=float)

    @property
    def problem(self) -> Problem:
        """What is learnt."""
        regulariser = Regulariser(coefficient=self.coefficient)
        return Problem(
            loss=LOSSES[self.loss].example(), regulariser=regulariser, theta_max=self.theta_max
        )

    @property
    def bound(self) -> float:
        """The domain's bound Xi on one record's gradient."""
        return self.problem.gradient_bound(self.feature_map.domain)

    @property
    def public_side(self) -> PublicSide:
        """What a learner knows before it talks to anybody."""
        return PublicSide(
            feature_map=self.feature_map,
            records=self.public,
            labels=self.labels,
            known=self.known,
        )

    @cached_property
    def world(self) -> World:
        """The owners, on whose union fitness is measured."""
        return World.of(self.shards, self.problem)

    @cached_property
    def theta_public(self) -> Vector:
        """The model theta_0 of the public records, shape (p,)."""
        return self.problem.optimum(self.public)

    @cached_property
    def relative_fitness_public(self) -> float:
        """Relative fitness on the union of theta_0."""
        return float(self.world.evaluation.relative_fitness(self.theta_public[None])[0])


def shuffled(table: pd.DataFrame) -> pd.DataFrame:
    """The rows in a random order, the same at every call."""
    order = np.random.default_rng(0).permutation(len(table))
    return table.iloc[order].reset_index(drop=True)


def case_of(
    title: str,
    public: pd.DataFrame,
    shards: Sequence[pd.DataFrame],
    features: Mapping[str, Any],
    loss: str = "squared",
    **given: Any,
) -> Case:
    """The case of raw tables; the map is fitted on the public one."""
    settings = FeatureSettings(public=TableSource(), **features)
    feature_map = fit_feature_map(public, settings, source="public")
    return Case(
        title=title,
        loss=loss,
        feature_map=feature_map,
        public=held_out_records(feature_map, public, where="public"),
        shards=[feature_map.apply(shard, where="owner") for shard in shards],
        **given,
    )


def loan_columns(table: pd.DataFrame) -> tuple[str, ...]:
    """What is known when a loan is made, as ``examples/lending.toml`` says."""
    study = tomllib.loads((EXAMPLES / "lending.toml").read_text(encoding="utf-8"))
    return tuple(name for name in study["features"]["columns"] if name in table.columns)


def papers_hospitals(data: Path, title: str, **features: Any) -> Case:
    """Hospital stays of eleven counties, a sixth of all rows public."""
    table = shuffled(pd.read_parquet(data / SOURCES["hospitals"]))
    sizes = table["Hospital.County"].value_counts()
    counties = sorted(sizes[sizes >= 10_000].index)
    # The area is a function of the county: an owner's own model could learn nothing of it.
    dropped = ("Hospital.County", "Hospital.Service.Area")
    public, private = table.iloc[-50_000:], table.iloc[:-50_000]
    shards = [private[private["Hospital.County"] == county] for county in counties]
    return case_of(title, public, shards, {"target": "los", "drop": dropped, **features})


def papers_loans(data: Path, title: str, **features: Any) -> Case:
    """Three banks of consecutive rows, as ``examples/lending.toml`` cuts them."""
    table = pd.read_parquet(data / SOURCES["loans"])
    shards = [table.iloc[start : start + 10_800] for start in (0, 10_800, 21_600)]
    given = {"target": "int_rate", "columns": loan_columns(table), "components": 10}
    return case_of(title, table.iloc[-10_000:], shards, {**given, **features})


def papers_cards(data: Path, size: int) -> Case:
    """Three card companies of this many rows each, as ``examples/creditcard.toml`` cuts them."""
    table = shuffled(pd.read_parquet(data / SOURCES["cards"]))
    return case_of(
        f"cards, n_i = {size:,}",
        table.iloc[-4000:],
        [table.iloc[i * 6000 : i * 6000 + size] for i in range(3)],
        {"target": "Class", "positive": 1, "drop": ("Time",)},
        loss="hinge",
        coefficient=5e-6,
        theta_max=1.0,
    )
