"""An update of others beside one of copriv: python benchmarks/peers.py

    python -m venv flower && flower/bin/pip install 'flwr[simulation]'
    python -m venv appfl && appfl/bin/pip install appfl
    PEERS_FLOWER=flower/bin/python PEERS_APPFL=appfl/bin/python .venv/bin/python benchmarks/peers.py

They want other versions of what copriv uses, so each has an environment of its own; what is not
named is left out. All learn a logistic model of 10 features from three owners of 250,000 records,
one owner's mean gradient for each update. copriv's goes over TCP to an owner process, is noised,
and is charged on the disk before it leaves; Flower's simulation and APPFL run here without a
network, noise or ledger.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import json
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import tomli_w

from common.config import load_settings
from learner.commands.study import read_owners
from learner.network.connections import simulated_owners
from learner.network.processes import Hosting
from learner.network.warm_parent import warm_parent
from learner.planning.public_side import prepare_public_side
from learner.planning.settings import StudySettings
from learner.results.run_folder import write_features
from learner.training.journal import Journal
from learner.training.study import train

HERE = Path(__file__).resolve().parent
OWNERS, RECORDS, FEATURES, SEED = 3, 250_000, 10, 1
# The first updates of everybody are not counted.
UPDATES, WARM = 200, 3
LONGEST = 600.0


class Peer(NamedTuple):
    """Another way: its name, script, the variable that names its interpreter, updates, the bar."""

    name: str
    script: str
    interpreter: str
    kind: str
    updates: int
    bar: float


PEERS = (
    Peer("Flower's simulation, stock", "peers_flower.py", "PEERS_FLOWER", "stock", 5, 1.0),
    Peer("Flower's simulation, tuned", "peers_flower.py", "PEERS_FLOWER", "tuned", 20, 1.0),
    Peer("APPFL, stock", "peers_appfl.py", "PEERS_APPFL", "stock", 3, 1.0),
    Peer("APPFL, tuned", "peers_appfl.py", "PEERS_APPFL", "tuned", 60, 0.2),
)


def seconds_of(peer: Peer) -> float | None:
    """Seconds of one of its updates; None where its interpreter is not named."""
    interpreter = os.environ.get(peer.interpreter)
    if interpreter is None:
        return None
    sizes = map(str, (RECORDS, FEATURES, peer.updates, SEED))
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [Path(interpreter).absolute(), HERE / peer.script, peer.kind, *sizes],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=True,
        )
    told = next(line for line in reversed(done.stdout.splitlines()) if line.startswith("{"))
    return float(json.loads(told)["seconds"])


def seconds_of_copriv() -> float:
    """Seconds of an update of copriv, over TCP."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _write_study(folder)
        settings = load_settings(StudySettings, folder / "study.toml")
        public = prepare_public_side(settings, base=folder)
        shards = read_owners(settings, public.feature_map, base=folder).shards
        write_features(folder / "features.json", public.feature_map)
        with (
            warm_parent() as parent,
            simulated_owners(
                settings,
                shards,
                Hosting(parent=parent),
                base=folder,
                folder=folder,
            ) as connections,
        ):
            journal = Journal(folder / "journal.sqlite")
            train(settings, public, connections.owners, journal=journal)
            ended = [entry.wall_seconds for entry in journal.entries()]
            journal.close()
    return (ended[-1] - ended[WARM]) / (len(ended) - 1 - WARM)


def _write_study(folder: Path) -> None:
    """Three owners' records, and public ones."""
    rng = np.random.default_rng(SEED)
    columns = [f"x{i}" for i in range(FEATURES)]
    for name, size in [("public", 5_000), *((f"owner-{i}", RECORDS) for i in range(OWNERS))]:
        x = rng.uniform(-1, 1, size=(size, FEATURES))
        table = pd.DataFrame(x, columns=columns)
        table["y"] = (x.sum(axis=1) + rng.normal(size=size) > 0).astype(int)
        table.to_parquet(folder / f"{name}.parquet")
    study = {
        "name": "peers",
        "profile": "published",
        "features": {
            "public": {"path": "public.parquet"},
            "target": "y",
            "positive": 1,
            "columns": columns,
        },
        "model": {"loss": "logistic", "theta_max": 1.0},
        "algorithm": {"horizon": UPDATES, "rho": 0.01},
        "privacy": {"epsilon": 1},
        "owners": [
            {"name": f"owner-{i}", "data": {"path": f"owner-{i}.parquet"}} for i in range(OWNERS)
        ],
    }
    (folder / "study.toml").write_text(tomli_w.dumps(study))


def measured() -> tuple[float, dict[Peer, float]]:
    """Seconds of an update of copriv, the median of some in between, and of each peer."""
    own = [seconds_of_copriv()]
    others = {}
    for peer in PEERS:
        took = seconds_of(peer)
        if took is not None:
            others[peer] = took
            own.append(seconds_of_copriv())
    if not others:
        names = " and ".join(sorted({peer.interpreter for peer in PEERS}))
        raise RuntimeError(f"no peer is named; set {names} to interpreters that have them")
    return float(np.median(own)), others


def rows() -> list[tuple[str, float, float]]:
    """(name, ratio, bar) for each peer."""
    own, others = measured()
    return [
        (f"an update: copriv, all included / {peer.name}", own / took, peer.bar)
        for peer, took in others.items()
    ]


def main() -> None:
    """Print milliseconds for each."""
    own, others = measured()
    print(f"{'copriv, TCP':30s} {own * 1e3:8.1f} ms for an update")
    for peer, took in others.items():
        print(f"{peer.name:30s} {took * 1e3:8.1f} ms for an update: {took / own:.3g} x copriv's")


if __name__ == "__main__":
    main()
