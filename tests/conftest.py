"""Shared fixtures: small public tables, their feature map, and owners of every kind."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from common.features import FeatureMap, FeatureSettings
from common.map_fitting import fit_feature_map
from common.tables import TableSource
from common.terms import StudyTerms
from learner.cli import main as copriv
from owner.cli import main as copriv_owner
from owner.server import RunningOwner, start_owner

COMMANDS = {"copriv": copriv, "copriv-owner": copriv_owner}


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


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit status."""

    returncode: int
    stdout: str
    stderr: str


@contextmanager
def a_process_of_its_own() -> Iterator[None]:
    """What a command changes for the whole process is as before afterwards."""
    loggers = [logging.getLogger(name) for name in ("copriv", "grpc")]
    before = [(one, list(one.handlers), one.level, one.propagate) for one in loggers]
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for one, its_handlers, level, propagate in before:
            one.handlers[:] = its_handlers
            one.setLevel(level)
            one.propagate = propagate
        signal.set_wakeup_fd(-1)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.fixture
def typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """A whole command, from its arguments to its exit status, without the start of a process.

    An error that is not ours would end it in a traceback: here it fails the test.
    """

    def run(name: str, *arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        monkeypatch.setenv("GRPC_VERBOSITY", "NONE")
        capsys.readouterr()
        with a_process_of_its_own(), pytest.raises(SystemExit) as ended:
            COMMANDS[name]()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return Said(code or 0, *capsys.readouterr())

    return run
