"""Three owners over a slow line, asked one at a time and ahead: python benchmarks/slow_line.py

Each owner is a process behind a proxy that holds everything back, half of the line's time each way.
Beside what a tick takes is what benchmarks/in_flight.py makes of the same ticks on paper.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import tick as bench  # isort: skip (gRPC takes its settings when it is imported)
import numpy as np
from in_flight import LINE, TICK, ahead

from learner.algorithms.clocks import PoissonClocks, each_alone

READ_BYTES = 65_536
TICKS = 300


async def _later(source: asyncio.StreamReader, target: asyncio.StreamWriter, wait: float) -> None:
    """Pass on what arrives, each piece this many seconds later."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionError):
        while piece := await source.read(READ_BYTES):
            loop.call_later(wait, target.write, piece)
    loop.call_later(wait, target.close)


async def _line(port: int, seconds: float, bound: list[int], ready: threading.Event) -> None:
    """Serve a port that leads to another one, there and back in this many seconds."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        both = ((reader, far_writer), (far_reader, writer))
        await asyncio.gather(*(_later(*ends, seconds / 2) for ends in both))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    bound.append(server.sockets[0].getsockname()[1])
    ready.set()
    await server.serve_forever()


@contextlib.contextmanager
def slow_line(port: int, *, seconds: float) -> Iterator[int]:
    """Another port for a port; ends with the process."""
    bound, ready = list[int](), threading.Event()
    work = partial(asyncio.run, _line(port, seconds, bound, ready))
    threading.Thread(target=work, daemon=True).start()
    ready.wait(10)
    yield bound[0]


def main() -> None:
    """Print what a tick takes, and what it should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--line", type=float, default=1e3 * LINE, help="ms there and back")
    line = parser.parse_args().line / 1e3
    count = len(bench.NAMES)
    clocks = PoissonClocks(each_alone(count), np.ones(count), rng=np.random.default_rng(1))
    owners = np.array([tick.owners[0] for tick in islice(clocks, TICKS)])
    print(f"{count} owners, a line of {1e3 * line:.0f} ms, ms for a tick")
    for in_flight in (1, 16):
        with (
            tempfile.TemporaryDirectory() as made,
            bench.learner(
                Path(made),
                "slow",
                1,
                10,
                None,
                in_flight=in_flight,
                way=partial(slow_line, seconds=line),
            ) as lane,
        ):
            took = 1e3 * lane(TICKS - bench.UNCOUNTED)
        paper = 1e3 * ahead(owners, in_flight, asked_for=line + TICK) / TICKS
        print(f"in_flight = {in_flight}: {took:.1f}, on paper {paper:.1f}")


if __name__ == "__main__":
    main()
