"""The real records of docs/results.md, cut into owners and public records as its tables say."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from common.features import FeatureMap, FeatureSettings
from common.losses import LOSSES, Regulariser, domain_gradient_bound
from common.map_fitting import fit_feature_map
from common.tables import TableSource
from common.terms import Records
from learner.simulated.evaluation import Evaluation

SOURCES = {
    "hospitals": "sparcs/sparcs_2020_survivors_339006.parquet",
    "loans": "lending/lc_2007_2011_all_42535.parquet",
    "cards": "creditcard/creditcard_partial_union.parquet",
}
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
G, BOX = Regulariser(coefficient=1e-5), 0.5


@dataclass(frozen=True)
class Case:
    """One table of records under one feature map, cut into owners."""

    title: str
    loss: str
    feature_map: FeatureMap
    public: Records
    shards: list[Records]

    @property
    def counts(self) -> np.ndarray:
        return np.array([len(shard) for shard in self.shards], dtype=float)

    @property
    def weights(self) -> np.ndarray:
        return self.counts / self.counts.sum()

    @property
    def bound(self) -> float:
        return domain_gradient_bound(
            LOSSES[self.loss].example(), self.feature_map.domain, theta_max=BOX
        )


def hospitals(data: Path, title: str, **features: Any) -> Case:
    table = pd.read_parquet(data / SOURCES["hospitals"])
    table = table.iloc[np.random.default_rng(0).permutation(len(table))].reset_index(drop=True)
    sizes = table["Hospital.County"].value_counts()
    counties = sorted(sizes[sizes >= 10_000].index)
    # The area is a function of the county: an owner's own model could learn nothing of it.
    settings = FeatureSettings(
        public=TableSource(),
        target="los",
        drop=("Hospital.County", "Hospital.Service.Area"),
        **features,
    )
    public, private = table.iloc[-50_000:], table.iloc[:-50_000]
    return _case(
        title,
        "squared",
        public,
        [private[private["Hospital.County"] == county] for county in counties],
        settings,
    )


def loans(data: Path, title: str, **features: Any) -> Case:
    study = tomllib.loads((EXAMPLES / "lending.toml").read_text(encoding="utf-8"))
    table = pd.read_parquet(data / SOURCES["loans"])
    settings = FeatureSettings(
        public=TableSource(),
        target="int_rate",
        columns=tuple(name for name in study["features"]["columns"] if name in table.columns),
        components=10,
        **features,
    )
    shards = [table.iloc[start : start + 10_800] for start in (0, 10_800, 21_600)]
    return _case(title, "squared", table.iloc[-10_000:], shards, settings)


def cards(data: Path, size: int) -> Case:
    table = pd.read_parquet(data / SOURCES["cards"])
    table = table.iloc[np.random.default_rng(0).permutation(len(table))].reset_index(drop=True)
    settings = FeatureSettings(public=TableSource(), target="Class", positive=1, drop=("Time",))
    shards = [table.iloc[i * 6000 : i * 6000 + size] for i in range(3)]
    return _case(f"cards, n_i = {size:,}", "hinge", table.iloc[-4000:], shards, settings)


def _case(
    title: str,
    loss: str,
    public: pd.DataFrame,
    shards: Sequence[pd.DataFrame],
    settings: FeatureSettings,
) -> Case:
    feature_map = fit_feature_map(public, settings, source="public")
    return Case(
        title,
        loss,
        feature_map,
        feature_map.apply(public, where="public"),
        [feature_map.apply(shard, where="owner") for shard in shards],
    )


def evaluation(case: Case, coefficient: float = G.coefficient, box: float = BOX) -> Evaluation:
    return Evaluation(
        shards=case.shards,
        loss=LOSSES[case.loss].example(),
        regulariser=Regulariser(coefficient=coefficient),
        theta_max=box,
    )
