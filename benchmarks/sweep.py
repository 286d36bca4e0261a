"""How fast a sweep is, on real records: python benchmarks/sweep.py

Replicates per second and core of the hospitals of ``examples/`` at their own ticks and at longer
ones, beside the loop that trains one run with owners in memory; two processes beside one; and what
a thousand cores would take by the model of docs/performance.md.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.arrays import Matrix
from common.config import load_settings
from common.terms import Records
from learner.commands.study import read_owners
from learner.planning.deciding import decide_quietly
from learner.planning.decision import Decision
from learner.planning.public_side import PublicSide, prepare_public_side
from learner.planning.settings import StudySettings
from learner.simulated.evaluation import union
from learner.simulated.sweeps import Workers, run_sweep
from learner.training.journal import Journal
from learner.training.memory_owner import MemoryOwner
from learner.training.points import Repeating, fingerprint, records_digest, repeat_point
from learner.training.repeated import NOISE_SEEDS, Repeated
from learner.training.study import train

STUDY = Path(__file__).resolve().parents[1] / "examples" / "hospitals.toml"
TICKS = 500
SEEDS = 100
REPEATS = 3
# The sweep of a thousand cores that is asked about.
CORES, POINTS = 1_000, 10_000
# Seconds that a process takes to import what it needs, and a point to be sent and written.
IMPORTS, SENT = 2.0, 0.05


class Hospitals(NamedTuple):
    """The study of the examples, under some changes."""

    settings: StudySettings
    public: PublicSide
    shards: Sequence[Records]
    decision: Decision
    deciding: float

    @classmethod
    def of(cls, *overrides: str) -> Hospitals:
        """Read, and decided."""
        settings = load_settings(StudySettings, STUDY, overrides=overrides)
        public = prepare_public_side(settings, base=STUDY.parent)
        shards = read_owners(settings, public.feature_map, base=STUDY.parent).shards
        began = time.process_time()
        counts = [len(shard) for shard in shards]
        decision = decide_quietly(settings, public, num_records=counts, seed=1)
        return cls(settings, public, shards, decision, time.process_time() - began)

    @property
    def repeated(self) -> Repeated:
        """Many seeds of it."""
        return Repeated(
            settings=self.settings,
            feature_map=self.public.feature_map,
            decision=self.decision,
            shards=self.shards,
        )

    def models(self, seeds: int = SEEDS) -> Matrix:
        """Seeds side by side."""
        return self.repeated.models(range(1, seeds + 1))

    def loop(self) -> None:
        """One seed, trained by the loop with owners in memory."""
        owners = [
            MemoryOwner(entry.name, shard, seed=NOISE_SEEDS + i)
            for i, (entry, shard) in enumerate(zip(self.settings.owners, self.shards, strict=True))
        ]
        with tempfile.TemporaryDirectory() as folder:
            journal = Journal(Path(folder) / "journal.sqlite")
            train(self.settings, self.public, owners, journal=journal)
            journal.close()


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """How long it takes: of a core, or by another clock."""
    began = clock()
    work()
    return clock() - began


def rows() -> list[tuple[str, float, float]]:
    """(name, ratio, bar): a seed side by side with others against the loop, and two processes."""
    fixed = ("algorithm.rho=0.01", f"algorithm.horizon={TICKS}", "profile=published")
    study = Hospitals.of(*fixed, "privacy.split=schedule")
    study.models(2)
    apart = [seconds(study.models) / SEEDS / seconds(study.loop) for _ in range(REPEATS)]
    return [
        ("sweep: a seed / the same by the loop, in memory", float(np.median(apart)), 0.1),
        ("sweep: 2 processes / 1", scaling(), 0.6),
    ]


def scaling() -> float:
    """Seconds of a sweep with two processes over those with one, both warm, interleaved."""
    study = Hospitals.of(f"algorithm.horizon={TICKS}")
    records = union(study.shards)
    digest = records_digest(records.features, records.targets)
    calls = {
        f"block-{block}": (
            Repeating(
                settings=study.settings,
                feature_map=study.public.feature_map,
                decision=study.decision,
                records=digest,
                seeds=tuple(range(block * SEEDS + 1, (block + 1) * SEEDS + 1)),
            ),
            records.features,
            records.targets,
        )
        for block in range(8)
    }

    def sweep(jobs: int) -> float:
        return seconds(
            lambda: run_sweep(
                repeat_point, calls, workers=Workers(jobs=jobs), fingerprint=fingerprint
            ),
            time.perf_counter,
        )

    sweep(2)
    return float(np.median([sweep(2) / sweep(1) for _ in range(REPEATS)]))


def main() -> None:
    """Print a line for each study, and what a large sweep takes by the model."""
    ticks = f"algorithm.horizon={TICKS}"
    for name, overrides in (
        ("as the example says", ()),
        (f"T = {TICKS:,}, clipped", (ticks,)),
        (f"T = {TICKS:,}, unclipped", (ticks, "privacy.sensitivity=domain")),
        ("moments", ("algorithm.name=moments",)),
        ("newton", ("algorithm.name=newton",)),
    ):
        study = Hospitals.of(*overrides)
        study.models(2)
        took = float(np.median([seconds(study.models) for _ in range(REPEATS)]))
        T = study.decision.horizon
        each = took / SEEDS
        work = POINTS * (study.deciding + SENT + each * SEEDS)
        print(
            f"{name:24s} T = {T:5,}: {1 / each:8,.0f} replicates/s and core, "
            f"{T / each / 1e6:5.2f} million ticks/s; a point is decided in {study.deciding:.1f} s; "
            f"{POINTS:,} points x {SEEDS} seeds on {CORES:,} cores: "
            f"{IMPORTS + work / CORES:.0f} s",
            flush=True,
        )
    for name, ratio, bar in rows():
        print(f"{name:50s} {ratio:7.3f}   bar {bar:g}")


if __name__ == "__main__":
    main()
