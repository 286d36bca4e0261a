"""The loop over real sockets: same trajectory as in memory, and owners that come and go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from common.losses import Regulariser
from common.terms import StudyTerms
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import PoissonClocks, each_alone
from learner.network.grpc_owner import GrpcOwner
from learner.training.journal import Journal
from learner.training.line import OwnerLine
from learner.training.memory_owner import MemoryOwner
from learner.training.owners import Owner
from learner.training.runner import Applied, Pace, run
from owner.server import RunningOwner

NAMES = ("owner-a", "owner-b", "owner-c")
SIZES = (200, 300, 100)
HORIZON = 60


@pytest.fixture
def settings_files(owner_folder: Callable[..., Path]) -> list[Path]:
    return [owner_folder(name, seed=10 + i, num_records=SIZES[i]) for i, name in enumerate(NAMES)]


@pytest.fixture
def train(make_terms: Callable[..., StudyTerms]) -> Callable[..., list[Applied]]:
    def go(owners: list[Owner], journal: Path | None = None, stop: int = HORIZON) -> list[Applied]:
        rows: list[Applied] = []
        weights = np.array(SIZES) / sum(SIZES)
        algorithm = Asynchronous(
            weights=weights,
            num_features=4,
            horizon=HORIZON,
            rho=1e-3,
            theta_max=2.0,
            regulariser=Regulariser(coefficient=1e-5),
        )
        kept = Journal(journal) if journal else None
        answered = [0] * len(owners)
        for entry in kept.entries() if kept else ():
            for owner, (sequence, _) in entry.responses.items():
                answered[owner] = sequence
        lines = [
            OwnerLine(owner, make_terms(horizon=HORIZON, responses=HORIZON), answered=count)
            for owner, count in zip(owners, answered, strict=True)
        ]
        for line in lines:
            line.enroll()
        run(
            algorithm,
            PoissonClocks(each_alone(3), np.ones(3), rng=np.random.default_rng(5)),
            lines,
            journal=kept,
            horizon=stop,
            pace=Pace(time_scale=0.0, patience=20.0),
            on_applied=rows.append,
        )
        for line in lines:
            line.stop()
            line.owner.disconnect()
        if kept:
            kept.close()
        return rows

    return go


def remote(running: list[RunningOwner]) -> list[Owner]:
    return [
        GrpcOwner(name, f"127.0.0.1:{one.port}", deadline=20)
        for name, one in zip(NAMES, running, strict=True)
    ]


def trajectory(rows: list[Applied]) -> bytes:
    return np.array([row.central_model for row in rows]).tobytes()


def test_the_trajectory_over_grpc_equals_the_one_in_memory_bit_for_bit(
    settings_files, serve_owner, feature_map, train, tmp_path
):
    running = [serve_owner(path, insecure_noise_seed=i) for i, path in enumerate(settings_files)]
    over_grpc = train(remote(running), tmp_path / "journal.sqlite")
    tables = [pd.read_parquet(path.parent / "shard.parquet") for path in settings_files]
    in_memory = train(
        [
            MemoryOwner(name, feature_map.apply(table, where=name), seed=i)
            for i, (name, table) in enumerate(zip(NAMES, tables, strict=True))
        ]
    )
    assert len(over_grpc) == HORIZON
    assert trajectory(over_grpc) == trajectory(in_memory)
    other_seed = train(
        [
            MemoryOwner(name, feature_map.apply(table, where=name), seed=99 + i)
            for i, (name, table) in enumerate(zip(NAMES, tables, strict=True))
        ]
    )
    assert trajectory(other_seed) != trajectory(in_memory)


def test_a_run_that_stopped_goes_on_bit_for_bit_and_charges_nobody_twice(
    settings_files, serve_owner, train, tmp_path
):
    running = [serve_owner(path, insecure_noise_seed=i) for i, path in enumerate(settings_files)]
    journal = tmp_path / "journal.sqlite"
    first = train(remote(running), journal, stop=25)
    both = train(remote(running), journal)
    assert trajectory(both).startswith(trajectory(first))
    assert [row.replayed for row in both] == [True] * 25 + [False] * (HORIZON - 25)
    answered = [one.owner._ledger.study("study-1").account.answered for one in running]  # type: ignore[union-attr]
    assert sum(answered) == HORIZON


def test_an_owner_that_is_away_misses_its_ticks_and_the_others_go_on(
    settings_files, serve_owner, train, tmp_path
):
    running = [serve_owner(path) for path in settings_files]
    owners = remote(running)
    journal = tmp_path / "journal.sqlite"
    train(owners, journal, stop=10)
    owners = remote(running)
    rows: list[Applied] = []
    absent = running[1]

    class Leaves:
        """Owner b answers its enrolment and then its server stops."""

        def __getattr__(self, name: str) -> object:
            return getattr(owners[1], name)

        def answer(self, query: object) -> object:
            absent.server.stop(None)
            return owners[1].answer(query)  # type: ignore[arg-type]

    rows = train([owners[0], Leaves(), owners[2]], journal)  # type: ignore[list-item]
    assert len(rows) == HORIZON
    spoke = {owner for row in rows[11:] for owner in row.entry.responses}
    assert spoke == {0, 2}
