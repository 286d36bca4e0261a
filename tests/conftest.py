"""Shared fixtures: small public tables, their feature map, and owners of every kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from common.features import FeatureMap, FeatureSettings, fit_feature_map
from common.tables import TableSource
from common.terms import StudyTerms
from owner.server import RunningOwner, start_owner


def make_table(num_records: int, *, seed: int, num_columns: int = 3) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_records, num_columns))
    slopes = np.resize([1.0, -0.5, 0.25], num_columns)
    y = x @ slopes + 0.3 * rng.normal(size=num_records)
    table = pd.DataFrame(x, columns=[f"column-{j}" for j in range(num_columns)])
    table["y"] = y
    return table


@pytest.fixture(scope="session")
def table_maker() -> Callable[..., pd.DataFrame]:
    return make_table


@pytest.fixture(scope="session")
def public_table() -> pd.DataFrame:
    return make_table(500, seed=0)


@pytest.fixture(scope="session")
def feature_map(public_table: pd.DataFrame) -> FeatureMap:
    return fit_feature_map(
        public_table, FeatureSettings(target="y", public=TableSource()), source="public.parquet"
    )


@pytest.fixture
def make_terms(feature_map: FeatureMap) -> Callable[..., StudyTerms]:
    def make(**changes: Any) -> StudyTerms:
        values: dict[str, Any] = {
            "study_id": "study-1",
            "loss": "squared",
            "theta_max": 2.0,
            "feature_map": feature_map.to_json(),
            "horizon": 10,
            "responses": 10,
            "epsilon": Fraction(1),
        }
        return StudyTerms(**(values | changes))

    return make


@pytest.fixture
def owner_folder(tmp_path: Path, feature_map: FeatureMap) -> Callable[..., Path]:
    """Writes an owner's folder (records, feature map, OWNER.toml) and returns the settings path."""

    def write(
        name: str = "owner-a",
        *,
        seed: int = 1,
        num_records: int = 200,
        table: pd.DataFrame | None = None,
        pinned: FeatureMap | None = None,
        **policy: Any,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        shard = make_table(num_records, seed=seed) if table is None else table
        shard.to_parquet(folder / "shard.parquet")
        (folder / "features.json").write_text((pinned or feature_map).to_json())
        settings = {
            "name": name,
            "listen": "127.0.0.1:0",
            "ledger": "ledger.sqlite",
            "features": "features.json",
            "data": {"path": "shard.parquet"},
            "policy": {"epsilon_per_study": "10", "epsilon_lifetime": "10"} | policy,
        }
        path = folder / "owner.toml"
        path.write_text(tomli_w.dumps(settings))
        return path

    return write


@pytest.fixture
def serve_owner() -> Iterator[Callable[..., RunningOwner]]:
    """Starts owners in this process behind real sockets; all are stopped at the end."""
    with ExitStack() as stack:

        def serve(settings: Path, *, insecure_noise_seed: int | None = None) -> RunningOwner:
            running = start_owner(settings, listen=None, insecure_noise_seed=insecure_noise_seed)
            stack.callback(running.drain, grace=0.5)
            return running

        yield serve
