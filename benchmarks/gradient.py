"""How fast an owner adds up its records, beside what the machine can do at all.

Everything is measured in turns, one after the other, and a ratio is the median over the turns:
other work on the machine slows both of its sides. One thread each, and what is measured is the
time that the thread had on a core; but for what threads save, which is on the clock.

* ``stream``: numpy's sum over the same array, that is one core's read of the same bytes.
* ``blas``: X'X and X'y by one matrix product each, by a single thread of the same library.

Usage: python benchmarks/gradient.py [--quick]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from common.blas import one_blas_thread
from common.losses import LOSSES
from common.own_files import compiled_code_folder
from common.terms import Records
from owner.core import mean_gradient
from owner.gradients import by_compiled_code
from owner.shards import Shard
from owner.stored import stored_float32
from owner.sums import SHARED_CELLS, moment_sums

TURNS = 15
LARGE, SMALL, FEW = (500_000, 100), (250_000, 10), (20, 10_000)
CLIP = 0.5

Work = Callable[[], object]


def seconds(
    work: dict[str, Work], turns: int, *, clock: Callable[[], float] = time.thread_time
) -> dict[str, list[float]]:
    """What each takes, turn by turn."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(turns + 1):
        for name, run in work.items():
            start = clock()
            run()
            if turn:  # the first one compiles and touches the memory
                times[name].append(clock() - start)
    return times


def ratio(times: dict[str, list[float]], above: str, below: str) -> float:
    """The median of the turns' own ratios."""
    return statistics.median(a / b for a, b in zip(times[above], times[below], strict=True))


def made(shape: tuple[int, int], *, seed: int = 0) -> Records:
    """Records that no loss and no clip finds easy."""
    rng = np.random.default_rng(seed)
    targets = np.sign(rng.uniform(-1.0, 1.0, shape[0]))
    return Records(features=rng.normal(size=shape), targets=targets)


def gradients(records: Records) -> dict[str, Work]:
    """Each loss's gradient, whole and clipped, compiled."""
    theta = np.linspace(-0.1, 0.1, records.features.shape[1])
    shard, work = Shard(records), dict[str, Work]()
    for name, kind in LOSSES.items():
        loss = kind.example()
        by_compiled_code(records, theta, loss=loss, clip=None, kept_in=compiled_code_folder)
        for clip in (None, CLIP):
            if clip is None and loss.is_quadratic:
                continue
            title = name if clip is None else f"{name}, clipped"
            work[title] = partial(mean_gradient, shard, theta, loss=loss, clip=clip, compiled=True)
    return work


def in_blocks(records: Records) -> dict[str, Work]:
    """The same by numpy, for a loss whose slope is smooth and one whose slope jumps."""
    theta, shard = np.linspace(-0.1, 0.1, records.features.shape[1]), Shard(records)
    return {
        f"{name}, numpy": partial(
            mean_gradient, shard, theta, loss=LOSSES[name].example(), clip=None
        )
        for name in ("logistic", "hinge")
    }


def by_threads(shape: tuple[int, int], turns: int) -> dict[int, float]:
    """Seconds on the clock of a clipped gradient, by how many threads may add."""
    records, theta = made(shape), np.full(shape[1], 0.01)
    compiled = records.features.size >= SHARED_CELLS
    work: dict[str, Work] = {
        str(threads): partial(
            mean_gradient,
            Shard(records, threads=threads),
            theta,
            loss=LOSSES["squared"](),
            clip=CLIP,
            compiled=compiled,
        )
        for threads in (1, 2)
    }
    times = seconds(work, turns, clock=time.perf_counter)
    return {int(threads): statistics.median(took) for threads, took in times.items()}


def moments(records: Records) -> dict[str, Work]:
    """Second moments, ours and the library's."""
    x, y = records.features, records.targets

    def blas() -> object:
        with one_blas_thread():
            return x.T @ x, y @ x

    return {"blas": blas, "moments": lambda: moment_sums(x, y, threads=1)}


def measured(shape: tuple[int, int], turns: int) -> dict[str, list[float]]:
    """All that is measured of one shape."""
    records = made(shape)
    flat = records.features.reshape(-1)
    work: dict[str, Work] = {"stream": flat.sum}
    times = seconds(work | gradients(records) | in_blocks(records), turns)
    return times | seconds(moments(records), max(3, turns // 3))


def rows(*, turns: int = TURNS) -> list[tuple[str, float, float]]:
    """(name, ratio, bar): a gradient over a streaming read, and moments over BLAS."""
    times = measured(LARGE, turns)
    told = []
    for name in gradients(made((2, 2))):
        # 70 or 80 % of the streaming read.
        bar = 1 / (0.7 if "clipped" in name or name == "hinge" else 0.8)
        told.append((f"gradient, {name} / streaming read", ratio(times, name, "stream"), bar))
    told.append(("moments / BLAS", ratio(times, "moments", "blas"), 1.5))
    return told


def import_cost() -> tuple[float, float]:
    """Seconds and megabytes of a process that loads compiled code, beyond one that does not."""
    common = f"import numpy, owner.core, {compiled_code_folder.__module__} as o, time;"
    common += "t = time.process_time();"
    load = "from owner import fused; fused.kernel('logistic', clipped=False,"
    load += "kept_in=o.compiled_code_folder)(numpy.ones((2, 2)), numpy.ones(2), numpy.ones(2),"
    load += "0.0, 1.0);"
    end = "status = open('/proc/self/status').read();"
    end += "print(time.process_time() - t, status.split('VmHWM:')[1].split()[0])"
    took, size = [], []
    for middle in (load, load, ""):
        done = subprocess.run(
            [sys.executable, "-c", common + middle + end],
            capture_output=True,
            text=True,
            check=True,
        )
        second, kilobytes = done.stdout.split()
        took.append(float(second))
        size.append(float(kilobytes) / 1024)
    return took[1] - took[2], size[1] - size[2]


def float32_ratio(turns: int) -> tuple[float, float]:
    """The logistic gradient of records stored in float32 over the same in float64: time, bytes."""
    records = made(LARGE)
    features: Any = stored_float32(records.features)
    small = Records(features=features, targets=records.targets)
    work = {
        "float64": gradients(records)["logistic"],
        "float32": gradients(small)["logistic"],
    }
    return ratio(seconds(work, turns), "float32", "float64"), (
        small.features.nbytes / records.features.nbytes
    )


def main() -> None:
    turns = 3 if "--quick" in sys.argv else TURNS
    for shape in (LARGE, SMALL):
        times = measured(shape, turns)
        print(f"{shape[0]:,} x {shape[1]}, one thread, medians of {turns} turns")
        for name, taken in times.items():
            beside = "blas" if name in ("blas", "moments") else "stream"
            speed = ratio(times, beside, name)
            print(f"  {name:20} {1e3 * statistics.median(taken):9.2f} ms  {speed:6.1%} of {beside}")
    for shape in (FEW, SMALL, LARGE):
        one, two = by_threads(shape, 10 * turns).values()
        print(f"{shape[0]:,} x {shape[1]:,}, clipped: {1e3 * one:.2f} ms by one thread, ", end="")
        print(f"{1e3 * two:.2f} ms where there may be two")
    took, size = import_cost()
    print(f"loading compiled code: {took:.2f} s, {size:.0f} MB")
    print("float32 / float64: time {:.2f}, bytes {:.2f}".format(*float32_ratio(turns)))
    for name, value, bar in rows(turns=turns):
        print(f"{name:50} {value:6.3f}  bar {bar}")


if __name__ == "__main__":
    main()
