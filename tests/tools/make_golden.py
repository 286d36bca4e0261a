"""Make the golden files of the program as it is: what it wrote must mean the same for ever.

`tests/golden/VERSION/` holds feature maps with the records that they give, ledgers of every kind
of study, a run that was killed, and a run folder. They are made once, by the version that they
are named after, and `tests/integration/test_golden_files.py` opens them with every later one.
A later version adds a folder of its own where what it writes is new; it changes no older one.

Usage: python tests/tools/make_golden.py tests/golden/version-0.1
"""

import contextlib
import gzip
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import grpc
import numpy as np
import pandas as pd
import tomli_w
from calls import methods

from common import codec
from common.features import load_feature_map
from common.pb import copriv_pb2 as pb
from common.tables import TableSource, read_table
from common.terms import Query, StudyTerms

ROOT = Path(__file__).resolve().parents[2]
# What stands in the files for the folder that they are unpacked to.
PLACE = "@FOLDER@"
TOKENS = {"alpha": "golden-alpha", "beta": "golden-beta"}
INSECURE_SEED = 7
HORIZON = 60
KILLED_AFTER = 25

MAPS = {
    "plain": {"target": "outcome", "categorical": ["code"], "drop": ["answer"]},
    "rotated": {"target": "outcome", "drop": ["answer"], "components": 4, "l1_coverage": 1.0},
    "whitened": {
        "target": "outcome",
        "drop": ["answer"],
        "whiten": True,
        "intercept": False,
        "category_order": "name",
    },
    "classes": {"target": "answer", "drop": ["outcome"], "positive": "yes", "coverage": 0.95},
}

# Name, learner, map, what differs from the usual terms, how many answers, whether it is closed.
STUDIES = (
    ("open", "alpha", "plain", {"responses": 10, "horizon": 20}, 3, False),
    ("closed", "alpha", "rotated", {"responses": 4, "epsilon": Fraction(1, 3)}, 2, True),
    ("closed-unanswered", "beta", "plain", {}, 0, True),
    ("untouched", "beta", "whitened", {"epsilon": Fraction(2, 7)}, 0, False),
    ("moments", "beta", "plain", {"responses": 1, "horizon": 3, "release": "moments"}, 1, False),
    ("clipped", "alpha", "rotated", {"clip": 0.5, "kappa": 2}, 1, False),
    ("classes:hinge", "alpha", "classes", {"loss": "hinge", "clip": 1.25}, 2, False),
    ("classes:logistic", "beta", "classes", {"loss": "logistic"}, 5, False),
    ("insecure", "alpha", "plain", {"responses": 6, "horizon": 6}, 2, False),
)


def raw_table(num_records, *, seed):
    """Records with a column of every type that a table has."""
    rng = np.random.default_rng(seed)
    n = num_records
    amount = np.round(rng.lognormal(3.0, 1.0, n), 3)
    visits = rng.integers(0, 9, n)
    grade = rng.choice(["A", "B", "C", "D"], n)
    days = rng.integers(0, 3000, n)
    table = pd.DataFrame(
        {
            "amount": pd.Series(amount).where(rng.random(n) > 0.1),
            "visits": pd.array(visits, dtype="Int64"),
            "points": rng.integers(-5, 50, n),
            "grade": pd.Series(grade).where(rng.random(n) > 0.05),
            "region": pd.Categorical(rng.choice(["North", "South", "West"], n)),
            "code": rng.choice([101, 205, 333], n),
            "rate": [f"{value:.2f}%" for value in rng.uniform(2, 30, n)],
            "term": rng.choice([" 36 months", " 60 months", "< 1 year"], n),
            "opened": [pd.Timestamp("2012-03-04").date() + pd.Timedelta(days=int(d)) for d in days],
            "stamped": pd.Timestamp("2015-01-01 10:20:30") + pd.to_timedelta(days, unit="h"),
            "member": pd.array(rng.random(n) > 0.4, dtype="boolean"),
            "price": [Decimal(int(cents)) / 100 for cents in rng.integers(100, 99999, n)],
        }
    )
    table.loc[rng.random(n) < 0.1, "visits"] = pd.NA
    table.loc[rng.random(n) < 0.1, "member"] = pd.NA
    table["outcome"] = np.round(
        0.4 * np.log1p(amount) + 0.2 * visits + (grade == "A") + 0.3 * rng.normal(size=n), 4
    )
    table["answer"] = np.where(table["outcome"] > table["outcome"].median(), "yes", "no")
    return table


def run(*command, cwd=None):
    """A command of the product, which must end well."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}


# --- feature maps -----------------------------------------------------------------------------


def make_maps(out, work):
    out.mkdir()
    raw_table(400, seed=1).to_parquet(work / "public.parquet")
    table = raw_table(40, seed=2)
    table.to_parquet(out / "table.parquet")
    table.to_csv(out / "table.csv", index=False)
    digests = {}
    for name, features in MAPS.items():
        study = {
            "name": "maps",
            "features": {"public": {"path": "public.parquet"}} | features,
            "model": {
                "loss": "hinge" if "positive" in features else "squared",
                "theta_max": 1.0,
            },
            "algorithm": {"horizon": 10},
            "privacy": {"epsilon": 1},
            "owners": [{"name": "a", "address": "127.0.0.1:1"}],
        }
        (work / f"{name}.toml").write_text(tomli_w.dumps(study))
        fitted = out / f"{name}.json"
        run("learner.cli", "features", "fit", work / f"{name}.toml", "--out", fitted)
        feature_map = load_feature_map(fitted)
        digests[name] = feature_map.digest
        raw = read_table(TableSource(path=Path("table.parquet")), base=out)
        records = feature_map.apply(raw, where="table")
        # One row for each record, the target last.
        rows = np.concatenate([records.features, records.targets[:, None]], axis=1)
        np.save(out / f"{name}.npy", rows.astype("<f8"))
    write_json(out / "digests.json", digests)


# --- ledgers ----------------------------------------------------------------------------------


class Served:
    """An owner's process, and its wire."""

    def __init__(self, settings, *, insecure_seed=None):
        seed = [] if insecure_seed is None else ["--insecure-noise-seed", str(insecure_seed)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "owner.cli", "serve", settings, "--with-parent", *seed],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().split()[-1])
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.stub = methods("DataOwner", self.channel)

    def call(self, name, message, *, learner):
        token = (("authorization", f"Bearer {TOKENS[learner]}"),)
        return getattr(self.stub, name)(message, timeout=20, metadata=token)

    def end(self, how=signal.SIGTERM):
        self.channel.close()
        self.process.send_signal(how)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@contextlib.contextmanager
def served(settings, **options):
    owner = Served(settings, **options)
    try:
        yield owner
    finally:
        if owner.process.poll() is None:
            owner.end()


def terms_of(name, feature_map, changes):
    """The terms of a study as JSON has them; the map by its name."""
    usual = {"loss": "squared", "theta_max": 2.0, "horizon": 5, "responses": 5}
    values = usual | {"epsilon": "1/2", "study_id": name, "feature_map": feature_map} | changes
    values["epsilon"] = str(values["epsilon"])
    return values


def typed_terms(values, maps):
    text = (maps / f"{values['feature_map']}.json").read_text()
    return StudyTerms(**values | {"feature_map": text, "epsilon": Fraction(values["epsilon"])})


def theta_of(name, sequence, dimension):
    rng = np.random.default_rng([len(name), sequence])
    return list(rng.uniform(-0.5, 0.5, dimension))


def answered(owner, study, sequence, dimension):
    """One more answer of a study, noted in what is to be kept of it."""
    name = study["terms"]["study_id"]
    theta = theta_of(name, sequence, dimension)
    query = Query(study_id=name, sequence=sequence, theta=np.array(theta))
    told = owner.call("AnswerOnce", codec.query_to_pb(query), learner=study["learner"])
    study["answered"] = sequence
    study["last_theta"] = theta
    study["last_response"] = told.gradient.data.hex()


def write_owner(folder):
    folder.mkdir()
    raw_table(60, seed=3).to_parquet(folder / "shard.parquet")
    settings = {
        "name": "golden-owner",
        "ledger": "ledger.sqlite",
        "data": {"path": "shard.parquet"},
        "policy": {
            "epsilon_per_study": "1",
            "epsilon_lifetime": "10",
            "tokens": {
                name: f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"
                for name, token in TOKENS.items()
            },
        },
    }
    (folder / "OWNER.toml").write_text(tomli_w.dumps(settings))
    return folder / "OWNER.toml"


def make_ledgers(out, work, maps):
    settings = write_owner(out)
    ledger = out / "ledger.sqlite"
    meaning = []
    for insecure in (True, False):
        with served(settings, insecure_seed=INSECURE_SEED if insecure else None) as owner:
            for name, learner, feature_map, changes, answers, closed in STUDIES:
                if (name == "insecure") is not insecure:
                    continue
                values = terms_of(name, feature_map, changes)
                terms = typed_terms(values, maps)
                told = owner.call("Enroll", codec.terms_to_pb(terms), learner=learner)
                study = {"learner": learner, "terms": values, "insecure": insecure}
                study |= {"noise_scale": told.noise_scale, "answered": 0, "closed": closed}
                dimension = load_feature_map(maps / f"{feature_map}.json").num_features
                for sequence in range(1, answers + 1):
                    answered(owner, study, sequence, dimension)
                if closed:
                    owner.call("Close", pb.CloseRequest(study_id=name), learner=learner)
                meaning.append(study)
    assert not ledger.with_name("ledger.sqlite-wal").exists()
    keep_ledger(ledger, out / "stopped", meaning)
    with served(settings) as owner:
        by_name = {study["terms"]["study_id"]: study for study in meaning}
        for name, sequence in (("open", 4), ("open", 5), ("clipped", 2)):
            study = by_name[name]
            feature_map = load_feature_map(maps / f"{study['terms']['feature_map']}.json")
            answered(owner, study, sequence, feature_map.num_features)
        owner.call("Close", pb.CloseRequest(study_id="classes:hinge"), learner="alpha")
        by_name["classes:hinge"]["closed"] = True
        owner.end(signal.SIGKILL)
    assert ledger.with_name("ledger.sqlite-wal").stat().st_size > 0
    keep_ledger(ledger, out / "killed", meaning)
    for left in out.glob("ledger.sqlite*"):
        left.unlink()


def keep_ledger(ledger, folder, meaning):
    folder.mkdir()
    pack(ledger.parent, folder, "ledger.sqlite*")
    held = spent = Fraction(0)
    for study in meaning:
        terms = study["terms"]
        study["spent"] = str(Fraction(terms["epsilon"]) * study["answered"] / terms["responses"])
        study["held"] = study["spent"] if study["closed"] else terms["epsilon"]
        held += Fraction(study["held"])
        spent += Fraction(study["spent"])
    told = {"epsilon_held": str(held), "epsilon_spent": str(spent), "studies": meaning}
    write_json(folder / "meaning.json", told)


# --- runs -------------------------------------------------------------------------------------


def small_table():
    rng = np.random.default_rng(5)
    table = pd.DataFrame(np.round(rng.normal(size=(360, 3)), 4), columns=["a", "b", "c"])
    table["y"] = table["a"] - 0.5 * table["b"] + np.round(0.2 * rng.normal(size=360), 4)
    return table


def study_of(owners, **changes):
    return {
        "name": "golden",
        "seed": 3,
        "data": {"path": "table.parquet"},
        "features": {"public": {"rows": "-120:"}, "target": "y"},
        "model": {"loss": "squared", "theta_max": 2.0},
        "algorithm": {"horizon": 30},
        "privacy": {"epsilon": 10},
        "owners": owners,
    } | changes


def make_run(out, work):
    """A whole run of `copriv simulate`, without the page that `copriv report` makes of it."""
    out.mkdir()
    small_table().to_parquet(out / "table.parquet")
    owners = [
        {"name": f"owner-{letter}", "data": {"rows": f"{start}:{start + 80}"}}
        for letter, start in (("a", 0), ("b", 80), ("c", 160))
    ]
    (out / "study.toml").write_text(tomli_w.dumps(study_of(owners)))
    told = work / "run"
    run("learner.cli", "simulate", out / "study.toml", "--insecure-noise-seed", 1, "--out", told)
    keep_run(told, out / "run", work=work, place=out)


def make_killed_run(out, work):
    """A run that was killed, with its owners, and what came out when it went on."""
    out.mkdir()
    small_table().to_parquet(out / "table.parquet")
    here = work / "killed"
    here.mkdir()
    processes, owners = [], []
    for index, name in enumerate(("north", "south")):
        folder = here / name
        folder.mkdir()
        settings = {
            "name": name,
            "data": {"path": "../table.parquet", "rows": f"{100 * index}:{100 * index + 100}"},
            "policy": {"epsilon_per_study": "10", "epsilon_lifetime": "10"},
        }
        (folder / "OWNER.toml").write_text(tomli_w.dumps(settings))
    small_table().to_parquet(here / "table.parquet")
    for index, name in enumerate(("north", "south")):
        processes.append(Served(here / name / "OWNER.toml", insecure_seed=index))
        owners.append({"name": name, "address": f"127.0.0.1:{processes[-1].port}"})
    features = {"public": {"path": "table.parquet", "rows": "-120:"}, "target": "y"}
    algorithm = {"horizon": HORIZON, "time_scale": 0.1}
    study = study_of(owners, features=features, algorithm=algorithm) | {"data": {}}
    (here / "study.toml").write_text(tomli_w.dumps(study))
    learner = subprocess.Popen(
        [sys.executable, "-m", "learner.cli", "train", here / "study.toml", "--out", here / "run"],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while lived(here / "run" / "journal.sqlite") < KILLED_AFTER:
        assert learner.poll() is None
        time.sleep(0.005)
    learner.kill()
    learner.wait()
    for process in processes:
        process.end()
    keep_run(here / "run", out / "run", work=here, place=out)
    for name in ("north", "south"):
        (out / name).mkdir()
        (out / name / "OWNER.toml").write_text((here / name / "OWNER.toml").read_text())
        pack(here / name, out / name, "ledger.sqlite*")
    ticks = lived(here / "run" / "journal.sqlite")
    processes = [
        Served(here / name / "OWNER.toml", insecure_seed=index)
        for index, name in enumerate(("north", "south"))
    ]
    for owner, process in zip(owners, processes, strict=True):
        owner["address"] = f"127.0.0.1:{process.port}"
    (here / "study.toml").write_text(tomli_w.dumps(study))
    write_study(out / "study.toml", study)
    run("learner.cli", "train", here / "study.toml", "--resume", here / "run")
    for process in processes:
        process.end()
    told = json.loads((here / "run" / "summary.json").read_text())
    trace = pd.read_parquet(here / "run" / "trace.parquet")
    write_json(
        out / "meaning.json",
        {
            "ticks_before_the_kill": ticks,
            "models_before_the_kill": np.stack(trace["theta"])[:ticks].tolist(),
            "theta": told["theta"],
            "owners": {owner["name"]: owner["responses"] for owner in told["owners"]},
        },
    )


def write_study(path, study):
    """The study of a run, for whoever goes on with it under other addresses."""
    path.write_text(tomli_w.dumps(study))


def lived(journal):
    """How many communications a journal holds; -1 before there is one."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as db:
            return int(db.execute("SELECT count(*) FROM ticks").fetchone()[0])
    except sqlite3.OperationalError:
        return -1


# --- files ------------------------------------------------------------------------------------


def keep_run(folder, out, *, work, place):
    """A run folder without its page and pictures, its databases packed, its paths as PLACE."""
    for path in sorted(folder.rglob("*")):
        kept = out / path.relative_to(folder)
        if path.is_dir() or path.suffix in {".html", ".png"} or path.name.endswith("-shm"):
            continue
        kept.parent.mkdir(parents=True, exist_ok=True)
        if ".sqlite" in path.name:
            pack(path.parent, kept.parent, path.name)
        elif path.suffix == ".parquet":
            kept.write_bytes(path.read_bytes())
        else:
            text = path.read_text().replace(str(folder), f"{PLACE}/run")
            text = text.replace(str(work), PLACE).replace(str(place), PLACE)
            assert "/tmp/" not in text, path
            kept.write_text(text)


def pack(folder, out, pattern):
    """Databases with their logs and marks, compressed."""
    for path in sorted(folder.glob(pattern)):
        if not path.name.endswith("-shm"):
            packed = gzip.compress(path.read_bytes(), mtime=0)
            (out / f"{path.name}.gz").write_bytes(packed)


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


def main():
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        make_maps(out / "maps", work)
        make_ledgers(out / "owner", work, out / "maps")
        make_run(out / "simulated", work)
        make_killed_run(out / "killed", work)


if __name__ == "__main__":
    main()
