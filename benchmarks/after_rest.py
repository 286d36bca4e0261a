"""How long does the same Python take after a rest, as an owner has one between two turns?

A processor that others share forgets what it held in its caches while a process rests. The work is
always the same; medians are printed, in microseconds.

Run it:  python benchmarks/after_rest.py
"""

from __future__ import annotations

import json
import statistics
import time

RESTS = (0.0, 0.001, 0.005)
TIMES = 300


def work() -> object:
    counts: dict[int, int] = {}
    for number in range(300):
        counts[number % 17] = counts.get(number % 17, 0) + number
    return json.loads(json.dumps(counts))


def microseconds_after(rest: float) -> float:
    seconds = []
    for _ in range(TIMES):
        if rest:
            time.sleep(rest)
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return 1e6 * statistics.median(seconds)


if __name__ == "__main__":
    for rest in RESTS:
        print(f"after {1000 * rest:g} ms of rest: {microseconds_after(rest):.0f} us")
