"""What an answer costs with its noise drawn ahead, and with noise drawn when it is asked for.

Ratios of medians in one run, over real ledgers on this machine's disk, for p features each. Beside
them what the noise of a response takes to draw, by one thread and by all: whoever asks an owner
more often than that, and more often than it holds responses ready, waits for its noise.

Usage: python benchmarks/noise_ahead.py [--features 10 1000 10000] [--answers 60] [--pause 0.5]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from common.arrays import Units
from common.features import FeatureMap
from common.fitting import ColumnRule, TargetRule
from common.privacy import NoisePlan
from common.terms import Query, StudyTerms
from owner.access import Access
from owner.answering import DataOwner
from owner.ledger import Ledger
from owner.mechanism import BLOCK_DRAWS, DrawnAhead, SecureNoise, secure_noise
from owner.open_study import StudyMaker
from owner.policy import Policy
from owner.shard import PrivateTable
from owner.sums import usable_threads

RECORDS = 200


class DrawnWhenAsked(DrawnAhead):
    """Noise drawn while the learner waits."""

    def __init__(self, plan: NoisePlan) -> None:
        self._source = SecureNoise(plan)

    def take(self) -> Units:
        noise: Units = self._source.draw(1)[0]
        return noise

    def wait(self) -> None:
        return

    def stop(self) -> None:
        return


def wide_map(features: int) -> FeatureMap:
    """A map of this many numeric columns."""
    number = partial(ColumnRule, kind="number", fill=0.0, low=-1.0, high=1.0, center=0.0, scale=1.0)
    return FeatureMap(
        source="benchmark",
        num_public_records=1,
        target=TargetRule(name="y", bound=1.0, fill=0.0),
        intercept=False,
        bounds=(1.0,) * features,
        columns=tuple(number(name=f"x{j}") for j in range(features)),
    )


def latencies(features: int, *, ahead: bool, answers: int, pause: float) -> np.ndarray:
    """Seconds of each answer, asked one after another with a pause for the noise."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        rng.uniform(-1, 1, size=(RECORDS, features)), columns=[f"x{j}" for j in range(features)]
    ).assign(y=rng.uniform(-1, 1, size=RECORDS))
    feature_map = wide_map(features)
    policy = Policy.model_validate(
        {"epsilon_per_study": "1", "epsilon_lifetime": "1", "max_features": features}
    )
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        owner = DataOwner(
            name="benchmark",
            ledger=Ledger(Path(folder) / "l.sqlite", owner="benchmark", fingerprint=""),
            maker=StudyMaker(
                table=PrivateTable(table, where="benchmark", columns=table.columns),
                policy=policy,
                noise=secure_noise if ahead else DrawnWhenAsked,
                insecure_noise=False,
                pinned_map=feature_map,
            ),
            access=Access(policy, base=Path(folder)),
        )
        # A clip, so that the time is not that of the second moments at the first answer.
        terms = StudyTerms(
            study_id="s",
            loss="squared",
            theta_max=1.0,
            feature_map=feature_map.to_json(),
            horizon=answers,
            responses=answers,
            epsilon=Fraction(1),
            clip=1.0,
        )
        owner.enroll(terms, learner="benchmark")
        for sequence in range(1, answers + 1):
            # Other owners' ticks are a pause for this one.
            time.sleep(pause)
            query = Query(study_id="s", sequence=sequence, theta=np.zeros(features))
            began = time.perf_counter()
            owner.answer(query, learner="benchmark")
            seconds.append(time.perf_counter() - began)
        owner.stop()
    return np.array(seconds)


def drawing(features: int, *, threads: int) -> float:
    """Seconds for the noise of a response, drawn one after another."""
    plan = NoisePlan(
        grid_exponent=-30,
        sensitivity_units=10**6,
        scale_units=1e9,
        epsilon_per_response=Fraction(1, 100),
        dimension=features,
        responses=1,
    )
    source = SecureNoise(plan, threads=threads)
    count = max(1, BLOCK_DRAWS // features)
    source.draw(count)
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        source.draw(count)
        seconds.append((time.perf_counter() - began) / count)
    return float(np.median(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=int, nargs="+", default=[10, 1000, 10000])
    parser.add_argument("--answers", type=int, default=60)
    parser.add_argument("--pause", type=float, default=0.2)
    options = parser.parse_args()
    threads = usable_threads()
    print("     p  drawn ahead, ms  when asked, ms  ratio  to draw, ms  by all threads, ms")
    for features in options.features:
        ahead, asked = (
            np.median(latencies(features, ahead=kind, answers=options.answers, pause=options.pause))
            for kind in (True, False)
        )
        alone, together = (drawing(features, threads=count) * 1e3 for count in (1, threads))
        print(
            f"{features:6d}  {ahead * 1e3:15.2f}  {asked * 1e3:14.2f}  {asked / ahead:5.1f}"
            f"  {alone:11.2f}  {together:18.2f}"
        )


if __name__ == "__main__":
    main()
