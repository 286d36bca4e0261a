"""What does a tick cost beside a bare gRPC echo, with and without one commit of SQLite?

Everything is measured by turns in one run, on the same disk and over loopback: the learner's own
loop with three owner processes, which charge each response strictly or in blocks, as a study runs
(owners are asked ahead of their turn) and with one owner asked at a time, and two floors: a stream
of gRPC that echoes p doubles, and one that first commits them (WAL, synchronous = FULL). Each turn
is a batch of ticks or echoes, and its mean; tables say medians of these. A batch is long, so little
can be put off until the rest after it: noise drawn ahead, the journal. From 1,000 coordinates on
the owners' noise comes from a seed, since an exact draw takes 6 us and would be all that is seen:
python benchmarks/noise_ahead.py.

Run it:  python benchmarks/tick.py [--quick] [--sizes 10 1000 10000] [--only plain|tls]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import common  # noqa: F401  # isort: skip (gRPC takes its settings when it is imported)
import grpc
import numpy as np
import pandas as pd
import tomli_w

from common.channels import bind, open_channel
from common.feature_settings import FeatureSettings
from common.losses import Regulariser
from common.map_fitting import fit_feature_map
from common.tables import TableSource
from common.terms import StudyTerms
from common.tls import Identity, TlsSettings, load_identity
from common.wire import size_options
from learner.algorithms.asynchronous import Asynchronous
from learner.algorithms.clocks import PoissonClocks, each_alone
from learner.network.certificates import Party, make_certificates
from learner.network.grpc_owner import GrpcOwner
from learner.training.journal import Journal
from learner.training.line import OwnerLine
from learner.training.pace import Pace
from learner.training.runner import Applied, run

NAMES: tuple[str, ...] = ("owner-a", "owner-b", "owner-c")
OWNER = [sys.executable, "-m", "owner.cli"]
# Block of the ledger, and how many owners may be asked at the same time.
MODES = {
    "strict": (1, 16),
    "strict, one at a time": (1, 1),
    "blocks": (64, 16),
    "blocks, one at a time": (64, 1),
}
BARS = {
    "strict": ("echo + commit", 1.6),
    "strict, one at a time": ("echo + commit", 1.6),
    "blocks": ("echo", 2.0),
    "blocks, one at a time": ("echo", 2.0),
}
RECORDS = 20
SECURE_UP_TO = 100
RESPONSES = 100_000
BATCH = 300
UNCOUNTED = 6
TURNS = 12
SERVICE = "bench.Echo"

Lane = Callable[[int], float]


def rows() -> list[tuple[str, float, float]]:
    """Name, ratio and bar of each comparison; 0 for a bar that there is none for."""
    table = []
    for num_features in (10, 1000, 10_000):
        for encrypted in (False, True):
            medians = measured(num_features, encrypted, turns=TURNS)
            line = "mutual TLS" if encrypted else "plain"
            for mode in MODES:
                floor, bar = BARS[mode]
                name = f"tick, {mode}, p = {num_features}, {line} / {floor}"
                table.append((name, medians[mode] / medians[floor], bar))
    return table


def measured(num_features: int, encrypted: bool, *, turns: int) -> dict[str, float]:
    """The median of each lane, in seconds for a tick."""
    taken = timed(num_features, encrypted, turns=turns)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def timed(num_features: int, encrypted: bool, *, turns: int) -> dict[str, list[float]]:
    """Seconds for a tick in every batch of each lane."""
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        folder = Path(made)
        identity = _certificates(folder) if encrypted else None
        lanes: dict[str, Lane] = {}
        for floor in ("echo", "echo + commit"):
            lanes[floor] = stack.enter_context(_echo(folder, floor, num_features, identity))
        for mode, (block, in_flight) in MODES.items():
            lanes[mode] = stack.enter_context(
                learner(folder, mode, block, num_features, identity, in_flight=in_flight)
            )
        seconds: dict[str, list[float]] = {name: [] for name in lanes}
        for turn in range(turns + 2):
            for name, lane in lanes.items():
                taken = lane(BATCH)
                if turn >= 2:
                    seconds[name].append(taken)
        return seconds


# --- the learner and its owners ---------------------------------------------------------------


class _Turns:
    """A learner's run in a thread of its own, which goes on for a batch of ticks at a time.

    While it rests, owners may answer what they were asked ahead: ticks that profit are not counted.
    """

    def __init__(self, train: Callable[[Callable[[Applied], None]], object]) -> None:
        self._train = train
        self._allowed = threading.Semaphore(0)
        self._batches: queue.SimpleQueue[float] = queue.SimpleQueue()
        self._size = self._left = 0
        self._began: float | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        with contextlib.suppress(_OverError):
            self._train(self._on_applied)

    def _on_applied(self, now: Applied) -> None:
        del now
        if self._left == 0:
            if self._began is not None:
                self._batches.put((time.perf_counter() - self._began) / self._size)
            self._allowed.acquire()
            if not self._size:
                raise _OverError
            self._left = self._size + UNCOUNTED
        if self._left == self._size:
            self._began = time.perf_counter()
        self._left -= 1

    def __call__(self, size: int) -> float:
        self._size = size
        self._allowed.release()
        return self._batches.get(timeout=300)

    def end(self) -> None:
        self._size = 0
        self._allowed.release()
        self._thread.join(30)


class _OverError(Exception):
    """Nobody asks for another batch."""


@contextlib.contextmanager
def learner(
    folder: Path,
    mode: str,
    block: int,
    num_features: int,
    identity: Identity | None,
    *,
    in_flight: int,
    way: Callable[[int], contextlib.AbstractContextManager[int]] = contextlib.nullcontext,
) -> Iterator[Lane]:
    with contextlib.ExitStack() as stack:
        home = folder / mode
        home.mkdir()
        feature_map = make_shard(home, num_features)
        owners = []
        for name in NAMES:
            port = stack.enter_context(
                owner_process(home, name, block, num_features, encrypted=identity is not None)
            )
            reached = stack.enter_context(way(port))
            owner = GrpcOwner(name, f"127.0.0.1:{reached}", deadline=120, identity=identity)
            stack.callback(owner.disconnect)
            owners.append(owner)
        terms = StudyTerms(
            study_id="bench",
            loss="squared",
            theta_max=2.0,
            feature_map=feature_map,
            horizon=RESPONSES,
            responses=RESPONSES,
            epsilon=Fraction(1000),
            clip=1.0,
        )
        lines = [OwnerLine(owner, terms) for owner in owners]
        for line in lines:
            stack.callback(line.stop)
            line.enroll()
        journal = Journal(home / "journal.sqlite")
        stack.callback(journal.close)
        algorithm = Asynchronous(
            weights=np.full(len(owners), 1 / len(owners)),
            num_features=num_features,
            horizon=RESPONSES,
            rho=1.0,
            theta_max=2.0,
            regulariser=Regulariser(coefficient=1e-5),
        )
        clocks = PoissonClocks(
            each_alone(len(owners)), np.ones(len(owners)), rng=np.random.default_rng(1)
        )

        def train(on_applied: Callable[[Applied], None]) -> object:
            return run(
                algorithm,
                clocks,
                lines,
                journal=journal,
                horizon=RESPONSES,
                pace=Pace(time_scale=0.0, patience=60.0, in_flight=in_flight),
                on_applied=on_applied,
            )

        turns = _Turns(train)
        stack.callback(turns.end)
        yield turns


def make_shard(home: Path, num_features: int) -> str:
    """A few records, and a map of them, which takes the rules of the first columns for all others.

    A map is fitted to no fewer records than it has features: 800 MB for the widest.
    """
    rng = np.random.default_rng(3)
    columns = {f"x{i}": rng.normal(size=RECORDS) for i in range(num_features - 1)}
    table = pd.DataFrame(columns | {"y": rng.normal(size=RECORDS)})
    table.to_parquet(home / "shard.parquet")
    settings = FeatureSettings(target="y", public=TableSource(), intercept=True)
    few = [*list(columns)[: RECORDS - 1], "y"]
    fitted = fit_feature_map(table[few], settings, source="public")
    rules = [fitted.columns[i % len(fitted.columns)] for i in range(num_features - 1)]
    bounds = tuple(fitted.bounds[i % len(fitted.bounds)] for i in range(num_features - 1))
    fitted = fitted.model_copy(
        update={
            "l1_radius": sum(bounds) + 1,
            "bounds": bounds,
            "columns": tuple(
                rule.model_copy(update={"name": f"x{i}"}) for i, rule in enumerate(rules)
            ),
        }
    )
    if fitted.num_features != num_features:
        raise SystemExit(f"the feature map has {fitted.num_features} features")
    (home / "features.json").write_text(fitted.to_json())
    return fitted.to_json()


@contextlib.contextmanager
def owner_process(
    home: Path, name: str, block: int, num_features: int, *, encrypted: bool
) -> Iterator[int]:
    settings: dict[str, Any] = {
        "name": name,
        "ledger": {"path": f"{name}.sqlite", "block": block},
        "features": "features.json",
        "data": {"path": "shard.parquet"},
        "policy": {
            "epsilon_per_study": "1000",
            "epsilon_lifetime": "1000",
            "max_features": num_features,
        },
    }
    if encrypted:
        settings["tls"] = _tls(home.parent, name)
    path = home / f"{name}.toml"
    path.write_text(tomli_w.dumps(settings))
    command = [*OWNER, "serve", str(path), "--allow-private-bounds"]
    if num_features > SECURE_UP_TO:
        command += ["--insecure-noise-seed", "1"]
    with _process(command) as line:
        yield int(line.split()[-1])


@contextlib.contextmanager
def _process(command: list[str]) -> Iterator[str]:
    """The first line that a process of its own prints."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise SystemExit(f"{' '.join(command)} did not start")
        yield line
    finally:
        process.kill()
        process.communicate()


def _certificates(folder: Path) -> Identity:
    parties = [Party(name=name, role="owner", hosts=("127.0.0.1",)) for name in (*NAMES, "echo")]
    make_certificates(
        folder / "certs",
        [*parties, Party(name="lab", role="learner")],
        study="bench",
        days=1,
        ca_days=40,
        renew=False,
    )
    return _identity(folder, "lab", "client")


def _tls(folder: Path, name: str) -> dict[str, Any]:
    return {key: str(folder / "certs" / name / f"{key}.pem") for key in TlsSettings.model_fields}


def _identity(folder: Path, name: str, side: Any) -> Identity:
    return load_identity(TlsSettings(**_tls(folder, name)), base=folder, side=side)


# --- the floors -------------------------------------------------------------------------------


@contextlib.contextmanager
def _echo(folder: Path, floor: str, num_features: int, identity: Identity | None) -> Iterator[Lane]:
    """Asks a process that echoes; its client is gRPC's own, without a thread more."""
    database = str(folder / "echo.sqlite") if "commit" in floor else "-"
    certs = "-" if identity is None else str(folder)
    with _process([sys.executable, __file__, "--serve", database, certs]) as line:
        channel = open_channel(f"127.0.0.1:{int(line)}", identity, size_options())
        queries: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        method: Any = channel.stream_stream(f"/{SERVICE}/Echo")
        call = method(iter(queries.get, None))
        content = np.random.default_rng(0).normal(size=num_features).tobytes()

        def ask(size: int) -> float:
            began = time.perf_counter()
            for _ in range(size):
                queries.put(content)
                next(call)
            return (time.perf_counter() - began) / size

        yield ask
        queries.put(None)
        channel.close()


def serve(database: str, certs: str) -> None:
    """The simplest server that gRPC has, until whoever started it kills it."""
    keep = _committer(database) if database != "-" else lambda content: None

    def echo(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        del context
        for content in requests:
            keep(content)
            yield content

    server = grpc.server(ThreadPoolExecutor(4), options=size_options())
    echoing: Any = grpc.stream_stream_rpc_method_handler(echo)
    handlers = {"Echo": echoing}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    identity = None if certs == "-" else _identity(Path(certs), "echo", "server")
    port = bind(server, "echo", "127.0.0.1:0", identity)
    server.start()
    print(port, flush=True)
    sys.stdin.read()


def _committer(database: str) -> Callable[[bytes], None]:
    db = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE last (number INTEGER PRIMARY KEY, content BLOB)")

    def keep(content: bytes) -> None:
        db.execute("INSERT OR REPLACE INTO last VALUES (1, ?)", (content,))

    return keep


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 1000, 10_000])
    parser.add_argument("--only", choices=["plain", "tls"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return
    for num_features in options.sizes:
        for line in ("plain", "tls"):
            if options.only not in (None, line):
                continue
            turns = TURNS // 4 if options.quick else TURNS
            taken = timed(num_features, line == "tls", turns=turns)
            print(f"p = {num_features}, {line}", flush=True)
            for name, seconds in taken.items():
                tenth, half = np.quantile(seconds, [0.1, 0.5])
                print(f"  {name}: median {1e6 * half:.0f} us, best tenth {1e6 * tenth:.0f} us")
            for mode in MODES:
                floor, bar = BARS[mode]
                tenth, half = (
                    np.quantile(taken[mode], q) / np.quantile(taken[floor], q) for q in (0.1, 0.5)
                )
                ratios = f"{half:.2f} (of best tenths {tenth:.2f}), bar {bar}"
                print(f"  {mode} / ({floor}): {ratios}", flush=True)


if __name__ == "__main__":
    main()
