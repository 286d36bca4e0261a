"""What many owners cost: python benchmarks/many_owners.py [NUMBER OF HOSPITALS]

The learner's part of a tick (clocks, query point, equations (5) to (7), result) for a hundred
owners and for a million, taken in turns in one run; the ratio is of the medians. Then hospitals as
processes of this machine (`copriv simulate`), 300 if no number is given, beside three: seconds from
the command to the first tick, seconds of 3,000 ticks, and the memory of each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import pandas as pd
from simulate import INSTALLED

from common.losses import Regulariser
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import PoissonClocks, each_alone

FEW, MANY, FEATURES = 100, 1_000_000, 10
ROUNDS, TICKS = 41, 500
TICK_BAR = 1.2
HOSPITALS, RECORDS, PUBLIC, HORIZON = 300, 300, 2_000, 3_000
FIRST_TICK_BAR, MORE_SECONDS_BAR, MEGABYTES_BAR = 25.0, 6.0, 45.0
ENROLLED = "enrolled the owners"


class Learner:
    """A study of this many owners, each of which answers the same."""

    def __init__(self, num_owners: int) -> None:
        self._algorithm = Asynchronous(
            weights=np.full(num_owners, 1 / num_owners),
            num_features=FEATURES,
            theta_max=1.0,
            regulariser=Regulariser(coefficient=1e-3),
            rho=1.0,
            horizon=10**6,
            frequency=1.0 + np.random.default_rng(1).poisson(3.0, num_owners).astype(np.float64),
            tail_average=True,
        )
        self._state = self._algorithm.initial_state()
        rates = np.ones(num_owners)
        self._clocks = PoissonClocks(each_alone(num_owners), rates, rng=np.random.default_rng(2))
        self._answer = np.linspace(-1.0, 1.0, FEATURES)

    def seconds(self, ticks: int) -> float:
        """Seconds for each of the next ticks."""
        algorithm, state, began = self._algorithm, self._state, time.perf_counter()
        for _ in range(ticks):
            tick = next(self._clocks)
            algorithm.query_point(state, tick)
            state = algorithm.apply_responses(state, tick, {tick.owners[0]: self._answer})
            algorithm.central_model(state)
        self._state = state
        return (time.perf_counter() - began) / ticks


def tick_seconds() -> tuple[float, float]:
    """Median seconds of a tick for few owners and for many, measured in turns."""
    learners = [Learner(FEW), Learner(MANY)]
    for learner in learners:
        learner.seconds(TICKS)
    rounds = [[learner.seconds(TICKS) for learner in learners] for _ in range(ROUNDS)]
    few, many = (median(times) for times in zip(*rounds, strict=True))
    return few, many


@dataclass(frozen=True)
class Simulated:
    """A simulation of hospitals: what it took.

    Args:
      first_tick: Seconds from the command to the first tick.
      training: Seconds of all ticks.
      megabytes: Proportional set size of each owner while it serves, less its records.
    """

    first_tick: float
    training: float
    megabytes: list[float]


def simulated(count: int) -> Simulated:
    """``copriv simulate`` with this many hospitals, each a process."""
    with tempfile.TemporaryDirectory(prefix="copriv-hospitals-") as made:
        folder = Path(made)
        study, out = _study(folder, count), folder / "run"
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "learner.cli", "simulate", study, "--yes", "--out", out],
            stdout=subprocess.PIPE,
            text=True,
            env=INSTALLED,
        )
        assert process.stdout is not None  # noqa: S101 (it was asked for)
        for line in process.stdout:
            if line.startswith(ENROLLED):
                break
        first_tick = time.perf_counter() - began
        megabytes = _proportional(process.pid)
        process.stdout.read()
        if process.wait():
            raise SystemExit(f"copriv simulate ended with status {process.returncode}")
        told = json.loads((out / "summary.json").read_text())
    records = RECORDS * (FEATURES + 1) * 8 / 2**20
    return Simulated(first_tick, told["wall_seconds"], [each - records for each in megabytes])


def _study(folder: Path, count: int) -> Path:
    """A table and a study of it, whose owners have 300 records each."""
    rng = np.random.default_rng(1)
    size = count * RECORDS + PUBLIC
    table = pd.DataFrame(
        rng.normal(size=(size, FEATURES - 1)), columns=[f"x{i}" for i in range(FEATURES - 1)]
    )
    table["y"] = table @ rng.normal(size=FEATURES - 1) + rng.normal(size=size)
    table.to_parquet(folder / "table.parquet")
    owners = (
        f'[[owners]]\nname = "hospital-{i}"\n'
        f'data = {{ rows = "{i * RECORDS}:{(i + 1) * RECORDS}" }}\n'
        for i in range(count)
    )
    study = folder / "study.toml"
    study.write_text(
        f"""name = "hospitals"
seed = 1
[data]
path = "table.parquet"
[features]
public = {{ rows = "-{PUBLIC}:" }}
target = "y"
[model]
loss = "squared"
regularisation = 1e-5
theta_max = 2.0
[algorithm]
name = "asynchronous"
horizon = {HORIZON}
rho = 1.0
[privacy]
epsilon = 10
clip = 5.0
{"".join(owners)}"""
    )
    return study


def _proportional(learner: int) -> list[float]:
    """Megabytes of each owner: the children of the learner's warm parent."""
    parents = [pid for pid in _children(learner) if "owner.parent" in _command(pid)]
    found = []
    for pid in (owner for parent in parents for owner in _children(parent)):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        found.append(sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024)
    return found


def _children(pid: int) -> list[int]:
    # Those of its main thread, which starts all of them; other threads come and go.
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def rows() -> list[tuple[str, float, float]]:
    """Name, ratio and bar of each measurement; seconds and megabytes are ratios to their bars."""
    few, many = tick_seconds()
    three, all_of_them = simulated(3), simulated(HOSPITALS)
    more = all_of_them.training - three.training
    return [
        (f"learner's tick, {MANY:,} owners against {FEW}", many / few, TICK_BAR),
        (
            f"{HOSPITALS} hospitals, command to first tick, against {FIRST_TICK_BAR:g} s",
            all_of_them.first_tick / FIRST_TICK_BAR,
            1.0,
        ),
        (
            f"{HOSPITALS} hospitals, {HORIZON:,} ticks, more than three take, against "
            f"{MORE_SECONDS_BAR:g} s",
            more / MORE_SECONDS_BAR,
            1.0,
        ),
        (
            f"{HOSPITALS} hospitals, largest proportional set size, against {MEGABYTES_BAR:g} MB",
            max(all_of_them.megabytes) / MEGABYTES_BAR,
            1.0,
        ),
    ]


def main() -> None:
    """Print each number with its bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hospitals", type=int, nargs="?", default=HOSPITALS)
    options = parser.parse_args()
    few, many = tick_seconds()
    print(f"learner's tick: {FEW} owners {few * 1e6:.1f} us, {MANY:,} owners {many * 1e6:.1f} us")
    print(f"ratio {many / few:.2f} (bar {TICK_BAR})")
    for count in (3, options.hospitals):
        took = simulated(count)
        print(
            f"{count} hospitals: {took.first_tick:.1f} s to the first tick, {HORIZON:,} ticks in "
            f"{took.training:.1f} s, {median(took.megabytes):.0f} MB each, "
            f"at most {max(took.megabytes):.0f}"
        )
    print(
        f"bars: {FIRST_TICK_BAR:g} s, {MORE_SECONDS_BAR:g} s more than three, {MEGABYTES_BAR:g} MB"
    )


if __name__ == "__main__":
    main()
