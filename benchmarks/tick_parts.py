"""Where the microseconds of a tick go: moments noted on both sides, on the machine's one clock.

The learner's own loop with owner processes over TCP, as in benchmarks/tick.py, one owner at a time;
each process notes when it comes to a step, which costs about a microsecond a step. Medians over all
ticks.

Run it:  python benchmarks/tick_parts.py [--block 64] [--owners 3] [--size 10] [--ticks 600]
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

WARM_UP = 100
LOOK_SECONDS = 0.2
# (what it is, step at which it begins, step at which it ends), in the order of a tick.
PARTS = (
    ("settle: the journal's last entry of this owner", "settle", "settled"),
    ("learner: query as bytes", "settled", "sent"),
    ("the way there", "sent", "read"),
    ("owner: decode, who asks, order, box, noise", "read", "gradient"),
    ("owner: exact gradient", "gradient", "exact"),
    ("owner: release", "exact", "charge"),
    ("owner: before the note (files, who has written)", "charge", "note"),
    ("owner: note, before its sync", "note", "sync"),
    ("owner: sync", "sync", "synced"),
    ("owner: after the note (books, marks)", "synced", "charged"),
    ("owner: a block's charge, before the commit", "charge", "commit"),
    ("owner: a block's charge, commit", "commit", "committed"),
    ("owner: the whole charge", "charge", "charged"),
    ("owner: response as bytes", "charged", "replied"),
    ("the way back", "replied", "answered"),
    ("learner: decode, check", "answered", "checked"),
    ("learner: equations (5) to (7), loop", "checked", "next"),
)

noted: list[tuple[str, float]] = []


def note(step: str) -> None:
    """This step is come to now."""
    noted.append((step, time.perf_counter()))


def watch(holder: Any, name: str, before: str = "", after: str = "") -> None:
    """Note when a function is called, and when it returns."""
    function = getattr(holder, name)

    @functools.wraps(function)
    def watched(*arguments: Any, **named: Any) -> Any:
        if before:
            note(before)
        result = function(*arguments, **named)
        if after:
            note(after)
        return result

    setattr(holder, name, watched)


def serve(log: Path, arguments: list[str]) -> None:
    """An owner that writes down its steps once a file asks for them."""
    from owner import (  # noqa: PLC0415 (after the settings of gRPC)
        answering,
        calls,
        cli,
        ledger,
        ledger_given,
        ledger_held,
    )

    asked: Any = calls.Calls
    held: Any = ledger_held
    read, whole = asked._next, held.transaction

    async def read_next(*arguments: Any) -> bytes | None:
        content: bytes | None = await read(*arguments)
        note("read")
        return content

    @contextlib.contextmanager
    def transaction(db: sqlite3.Connection) -> Iterator[None]:
        with whole(db):
            yield
            note("commit")
        note("committed")

    asked._next, held.transaction = read_next, transaction
    watch(answering, "exact_answer", "gradient", "exact")
    watch(ledger.Ledger, "charge", "charge", "charged")
    watch(ledger_given.GivenLog, "give", "note")
    watch(os, "fdatasync", "sync", "synced")
    watch(calls.Calls, "_deliver", "replied")

    def write() -> None:
        while not log.exists():
            time.sleep(LOOK_SECONDS)
        part = log.with_name(f"{os.getpid()}.part")
        part.write_text(json.dumps(list(noted)))
        part.rename(part.with_suffix(".json"))

    threading.Thread(target=write, daemon=True).start()
    cli.cli(arguments)


def measured(block: int, owners: int, size: int, count: int) -> list[dict[str, float]]:
    """When each tick came to each step."""
    import tick as bench  # noqa: PLC0415 (it imports gRPC)

    from learner.network import streams  # noqa: PLC0415
    from learner.training import journal, line  # noqa: PLC0415

    watch(journal.Journal, "settle", "settle", "settled")
    watch(streams.DirectStream, "send", "sent")
    watch(streams.DirectStream, "answer", "", "answered")
    watch(line.OwnerLine, "ask", "", "checked")
    bench.NAMES = bench.NAMES[:owners]
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        home = Path(made)
        log = home / "log"
        bench.OWNER = [sys.executable, __file__, "--serve", str(log)]
        lane = stack.enter_context(bench.learner(home, "ticks", block, size, None, in_flight=1))
        lane(WARM_UP)
        begins = time.perf_counter()
        lane(count)
        steps = [(step, at) for step, at in list(noted) if at >= begins]
        log.touch()
        while len(parts := list(home.glob("*[0-9].json"))) < owners:
            time.sleep(LOOK_SECONDS)
        for part in parts:
            steps += [(step, at) for step, at in json.loads(part.read_text()) if at >= begins]
    return by_ticks(sorted(steps, key=lambda noted: noted[1]))


def by_ticks(steps: list[tuple[str, float]]) -> list[dict[str, float]]:
    """The steps of each tick, which begins as the journal is settled."""
    ticks: list[dict[str, float]] = []
    for step, at in steps:
        if step == "settle":
            if ticks:
                ticks[-1]["next"] = at
            ticks.append({})
        if ticks:
            ticks[-1].setdefault(step, at)
    return ticks[:-1]


def row(ticks: list[dict[str, float]], begins: str, ends: str) -> tuple[float, float, float]:
    """Median and mean in microseconds, and the share of ticks that have the part."""
    taken = [1e6 * (tick[ends] - tick[begins]) for tick in ticks if {begins, ends} <= tick.keys()]
    if not taken:
        return 0.0, 0.0, 0.0
    return statistics.median(taken), statistics.fmean(taken), len(taken) / len(ticks)


def main() -> None:
    """Measure and print, or serve one of the owners."""
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--block", type=int, default=1)
    parser.add_argument("--owners", type=int, choices=[1, 2, 3], default=3)
    parser.add_argument("--size", type=int, default=10)
    parser.add_argument("--ticks", type=int, default=600)
    options = parser.parse_args()
    ticks = measured(options.block, options.owners, options.size, options.ticks)
    print(f"block {options.block}, {options.owners} owners, p = {options.size}, us")
    print(f"{'part':54}{'median':>8}{'mean':>8}{'ticks':>7}")
    for name, begins, ends in (*PARTS, ("a tick", "settle", "next")):
        half, mean, share = row(ticks, begins, ends)
        print(f"{name:54}{half:8.0f}{mean:8.0f}{share:7.0%}")


if __name__ == "__main__":
    main()
