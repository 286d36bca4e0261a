"""How fast many runs are simulated side by side: python benchmarks/replicates.py

The bar: 1.5 million ticks x replicates per second and core at N = 3, p = 10.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np

from common.arrays import Vector
from common.losses import Regulariser
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.synchronous import SynchronousAverage
from learner.simulated.replicates import (
    ShardMoments,
    laplace_noise,
    moment_gradients,
    run_replicates,
)
from learner.simulated.rounds import run_rounds
from learner.simulated.schedules import Attendance, Split, draw_schedule

N, P, T = 3, 10, 1000
REPLICATES = 1000
REPEATS = 5
BAR = 1.5e6
COMMON: dict[str, Any] = {
    "weights": np.full(N, 1 / N),
    "num_features": P,
    "theta_max": 1.0,
    "regulariser": Regulariser(coefficient=1e-5),
    "horizon": T,
}


def rows() -> list[tuple[str, float, float]]:
    """(name, ratio, bar): a tick of many runs against the noise and the products that it needs."""
    rng = np.random.default_rng(1)
    algorithm, moments = _study(rng)
    schedule = draw_schedule(np.ones(N), horizon=T, replicates=REPLICATES, split="horizon", rng=rng)
    noise = laplace_noise(np.ones(N), num_features=P, rng=rng)
    thetas, products = np.zeros((REPLICATES, P)), np.zeros((P, N * P))

    def whole() -> None:
        run_replicates(algorithm, schedule.slots, gradients=moment_gradients(moments), noise=noise)

    def needed() -> None:
        for _ in range(T):
            rng.standard_exponential((2, REPLICATES, P))
            thetas @ products

    ratios = []
    for _ in range(REPEATS):
        times = []
        for work in (whole, needed):
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
        ratios.append(times[0] / times[1])
    return [("replicates: a tick / its noise and products alone", float(np.median(ratios)), 2.5)]


def _study(rng: np.random.Generator) -> tuple[Asynchronous, ShardMoments]:
    """An algorithm, and owners that answer from moments."""
    x = rng.normal(size=(N, 200, P))
    moments = ShardMoments(
        gram=np.einsum("nki,nkj->nij", x, x) / 200,
        cross=np.einsum("nki,nk->ni", x, rng.normal(size=(N, 200))) / 200,
    )
    return Asynchronous(rho=1e-3, **COMMON), moments


def main() -> None:
    """Print one line for each kind of run: millions of ticks x replicates per second, median."""
    rng = np.random.default_rng(1)
    _, moments = _study(rng)
    print(f"N = {N}, p = {P}, T = {T}, {REPLICATES} replicates, median of {REPEATS}")
    kinds: tuple[tuple[Split, bool, Vector | None], ...] = (
        ("horizon", False, None),
        ("schedule", True, None),
        ("schedule", True, np.full(N, 0.8)),
    )
    for split, tail, away in kinds:
        attendance = Attendance(availability=away)
        algorithm = Asynchronous(rho=1e-3, tail_average=tail, **COMMON)
        schedule = draw_schedule(
            np.ones(N),
            horizon=T,
            replicates=REPLICATES,
            split=split,
            attendance=attendance,
            rng=rng,
        )
        scales = (schedule.promised * 1e-3).astype(np.float64)
        noise = laplace_noise(scales, num_features=P, rng=rng)
        words = [split, *(["tail"] if tail else []), *(["dropouts"] if away is not None else [])]
        name = f"asynchronous, {', '.join(words)}"
        tell(
            name,
            partial(
                run_replicates,
                algorithm,
                schedule.slots,
                gradients=moment_gradients(moments),
                noise=noise,
            ),
        )
    average = SynchronousAverage(initial_step=0.1, **COMMON)
    noise = laplace_noise(np.ones(N), num_features=P, rng=rng)
    tell(
        "synchronous-2 (a round counts once)",
        lambda: run_rounds(
            average, replicates=REPLICATES, gradients=moment_gradients(moments), noise=noise
        ),
    )


def tell(name: str, work: Callable[[], object]) -> None:
    """Time it."""
    rates = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        rates.append(T * REPLICATES / (time.process_time() - start))
    rate = float(np.median(rates))
    print(f"{name:40s} {rate / 1e6:6.2f} million/s and core   {rate / BAR:5.1f} x the bar")


if __name__ == "__main__":
    main()
