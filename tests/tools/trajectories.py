"""Digests of the models of every way to train, so that two versions can be compared by diff.

Each line is a name, then SHA-256 of the final model and of the trace of models (k, owner, number,
time, central model). Seeds and insecure noise seeds are fixed, so on one machine equal programs
print equal lines; another processor may round sums otherwise. Only commands and run folders are
used.

Usage: python tests/tools/trajectories.py [--only TEXT] [--jobs 2] > trajectories.txt
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import tomli_w

ROOT = Path(__file__).resolve().parents[2]
HOSPITALS = ROOT / "examples" / "hospitals.toml"
SIZES = (("a", 0, 150), ("b", 150, 240), ("c", 240, 280))
NUMBERS = {"horizon": 20, "rho": 1e-3}
ROUNDS = {"horizon": 6, "rho": 5.0}
CLASSES = {"positive": "yes", "target": "class", "drop": ["y"]}


def table():
    rng = np.random.default_rng(11)
    made = pd.DataFrame(rng.normal(size=(480, 3)), columns=["one", "two", "three"])
    made["y"] = made["one"] - 0.5 * made["two"] + 0.3 * rng.normal(size=480)
    made["class"] = np.where(made["y"] > 0.2, "yes", "no")
    return made


def study(
    algorithm,
    privacy=None,
    *,
    profile="published",
    features=None,
    loss="squared",
    rates=(1.0, 1.0, 1.0),
    owners=3,
    **more,
):
    """A study of the small table."""
    entries = [
        {"name": name, "data": {"rows": f"{first}:{last}"}, "clock_rate": rate}
        for (name, first, last), rate in zip(SIZES, rates, strict=True)
    ]
    own = features or {"target": "y", "drop": ["class"]}
    return {
        "name": "trajectory",
        "seed": 5,
        "profile": profile,
        "data": {"path": "table.parquet"},
        "features": {"public": {"rows": "-200:"}} | own,
        "model": {"loss": loss, "theta_max": 2.0},
        "algorithm": algorithm,
        # So that models compare with those of versions that knew no validation.
        "privacy": {"epsilon": 5, "validation": 0} | (privacy or {}),
        "owners": entries[:owners],
    } | more


def asynchronous():
    """Algorithm 1 of the 2021 paper, with all that its settings can vary."""
    uneven = {"rates": (1.0, 3.0, 0.5)}
    for rule in ("printed", "corrected"):
        for average in ("last", "tail"):
            for split in ("horizon", "schedule"):
                algorithm = NUMBERS | {"rule": rule, "average": average}
                yield f"{rule}-{average}-{split}", study(algorithm, {"split": split})
    for correction in ("none", "rates", "counted"):
        for clocks in ("given", "records"):
            for split in ("horizon", "schedule"):
                algorithm = NUMBERS | {"correction": correction, "clocks": clocks}
                rates = uneven if clocks == "given" else {}
                yield f"{correction}-{clocks}-{split}", study(algorithm, {"split": split}, **rates)
    clip = {"sensitivity": "clip"}
    yield "clip", study(NUMBERS, clip | {"clip": 1.5})
    yield "clip-auto", study({"horizon": 20, "step": "auto"}, clip | {"clip": "auto"})
    yield "step-auto", study({"horizon": 20, "step": "auto"})
    yield "horizon-auto", study({"horizon": "auto", "step": "auto"})
    yield "all-auto", study({"horizon": "auto", "step": "auto"}, clip | {"clip": "auto"})
    yield "kappa", study(NUMBERS, {"kappa": 2})
    yield "components", study(NUMBERS, features={"target": "y", "drop": ["class"], "components": 2})
    yield "whitened", study(NUMBERS, features={"target": "y", "drop": ["class"], "whiten": True})
    for loss in ("hinge", "logistic"):
        yield loss, study(NUMBERS, loss=loss, features=CLASSES)
        yield f"{loss}-clip", study(NUMBERS, clip | {"clip": 1.0}, loss=loss, features=CLASSES)


def recommended():
    """What the recommended profile fills in and chooses."""
    for name, algorithm in (("auto", {}), ("horizon", {"horizon": 20}), ("numbers", NUMBERS)):
        yield name, study(algorithm, profile="recommended")
    yield "rates", study({}, profile="recommended", rates=(1.0, 3.0, 0.5))
    yield "groups", study({}, profile="recommended", groups=[["a", "b"]])
    for loss in ("hinge", "logistic"):
        yield loss, study({}, profile="recommended", loss=loss, features=CLASSES)
    for algorithm in ("synchronous-1", "synchronous-2", "moments"):
        yield algorithm, study({"name": algorithm}, profile="recommended")
    yield "owner", study({"initiative": "owner", "horizon": 20}, profile="recommended")


def others():
    """The other algorithms, and those that give owners a role."""
    clip = {"sensitivity": "clip", "clip": 1.5}
    for rule in ("printed", "corrected"):
        yield f"synchronous-1-{rule}", study(ROUNDS | {"name": "synchronous-1", "rule": rule})
    rounds = {"name": "synchronous-1", "horizon": 6, "step": "auto"}
    yield "synchronous-1-auto", study(rounds)
    yield "synchronous-1-clip", study(ROUNDS | {"name": "synchronous-1"}, clip)
    average = {"name": "synchronous-2", "horizon": 6}
    yield "synchronous-2", study(average | {"initial_step": 0.3})
    yield "synchronous-2-auto", study(average | {"step": "auto"})
    yield "synchronous-2-clip", study(average | {"initial_step": 0.3}, clip)
    hinge = {"loss": "hinge", "features": CLASSES}
    yield "synchronous-2-hinge", study(average | {"initial_step": 0.3}, **hinge)
    yield "moments", study({"name": "moments"})
    groups = [["a", "c"]]
    yield "groups", study(NUMBERS, groups=groups)
    yield (
        "groups-schedule",
        study(NUMBERS | {"clocks": "records"}, {"split": "schedule"}) | {"groups": groups},
    )
    yield "own", study(NUMBERS, learner={"own": "b", "shows_model": True})
    for correction in ("none", "rates", "counted"):
        algorithm = NUMBERS | {"initiative": "owner", "correction": correction}
        yield f"initiative-owner-{correction}", study(algorithm, rates=(1.0, 3.0, 0.5))
    # With more owners, which one accepts first is a race.
    algorithm = NUMBERS | {"initiative": "broadcast", "interval": 0.5}
    yield "initiative-broadcast", study(algorithm, owners=1)


def cases():
    for kind, makes in (
        ("asynchronous", asynchronous),
        ("recommended", recommended),
        ("others", others),
    ):
        for name, made in makes():
            yield f"{kind}/{name}", [], made
    each = study(NUMBERS)
    yield "others/each-learns", ["--each-learns"], each
    given = ["--set", "profile=published", "--set", "algorithm.horizon=20"]
    rho = ["--set", "algorithm.rho=1e-4"]
    yield "examples/hospitals", [HOSPITALS, "--set", "privacy.validation=0"], None
    yield "examples/hospitals-published", [HOSPITALS, *given, *rho], None


def digest(parts):
    told = hashlib.sha256()
    for part in parts:
        told.update(part)
    return told.hexdigest()


def of_run(folder):
    """The digests of all runs in a folder."""
    traces = sorted(folder.rglob("trace.parquet"))
    assert traces, "no run was left"
    models, rows = [], []
    for path in traces:
        theta = json.loads((path.parent / "summary.json").read_text())["theta"]
        models.append(np.array(theta).tobytes())
        trace = pd.read_parquet(path)
        for k, owner, number, time, central in zip(
            *(trace[key] for key in ("k", "owner", "sequence", "time", "theta")), strict=True
        ):
            rows.append(f"{k} {owner} {number} {float(time).hex()} ".encode())
            rows.append(np.asarray(central).tobytes())
    return f"{digest(iter(models))} {digest(iter(rows))}"


def line(case, work):
    """One way to train, as a line."""
    name, arguments, made = case
    out = work / name.replace("/", "-")
    if made is not None:
        path = work / f"{out.name}.toml"
        path.write_text(tomli_w.dumps(made))
        arguments = [path, *arguments]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "learner.cli", "simulate", *map(str, arguments)),
            *("--insecure-noise-seed", "1", "--out", str(out)),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [""]
        return f"{name} status {done.returncode}: {said[-1].replace(str(work), '')}"
    return f"{name} {of_run(out)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="Only names that contain this.")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    chosen = [case for case in cases() if options.only in case[0]]
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        table().to_parquet(work / "table.parquet")
        with ThreadPoolExecutor(options.jobs) as executor:
            for told in executor.map(lambda case: line(case, work), chosen):
                print(told, flush=True)


if __name__ == "__main__":
    main()
