"""Shared fixtures: small public tables, their feature map, and owners of every kind."""

import gc
import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
import warnings
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w
from forked import Ended
from hypothesis import HealthCheck, settings
from postgres import running_server, server_programs

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Whoever runs the tests in the background has Ctrl-C ignored, and so had all that they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import common.mounts
import learner.training.study
from common.command import OBJECTS_MADE
from common.config import check_settings
from common.feature_settings import FeatureSettings
from common.losses import LOSSES
from common.map_fitting import fit_feature_map
from common.model import Model
from common.tables import TableSource
from common.terms import StudyTerms
from learner.cli import main as copriv
from learner.planning.deciding import decide_quietly
from learner.results.summary import QualitySummary, Summary
from owner.cli import main as copriv_owner
from owner.server import start_owner

# How long an example takes depends on what else the machine does, and is no property of the code.
settings.register_profile("copriv", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("copriv")

COMMANDS = {"copriv": copriv, "copriv-owner": copriv_owner}


def make_table(num_records, *, seed, num_columns=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_records, num_columns))
    slopes = np.resize([1.0, -0.5, 0.25], num_columns)
    y = x @ slopes + 0.3 * rng.normal(size=num_records)
    table = pd.DataFrame(x, columns=[f"column-{j}" for j in range(num_columns)])
    table["y"] = y
    return table


@pytest.fixture(scope="session")
def table_maker():
    return make_table


@pytest.fixture(scope="session")
def public_table():
    return make_table(500, seed=0)


@pytest.fixture(scope="session")
def feature_map(public_table):
    return fit_feature_map(
        public_table, FeatureSettings(target="y", public=TableSource()), source="public.parquet"
    )


@pytest.fixture(scope="session")
def few_records(feature_map):
    return feature_map.apply(make_table(50, seed=1), where="test")


@pytest.fixture(scope="session")
def postgres():
    """What `database` says to reach PostgreSQL, a variable's server or one of the tests' own."""
    pytest.importorskip("adbc_driver_postgresql.dbapi")
    variable = "COPRIV_TEST_POSTGRES"
    with ExitStack() as stack:
        if variable not in os.environ:
            programs = server_programs()
            if programs is None:
                pytest.skip(f"no PostgreSQL server: {variable} names none, and none is installed")
            try:
                address = stack.enter_context(running_server(programs))
            except (OSError, subprocess.SubprocessError) as error:
                pytest.skip(f"PostgreSQL does not start here: {error}")
            stack.enter_context(pytest.MonkeyPatch.context()).setenv(variable, address)
        yield f"env:{variable}"


@pytest.fixture
def make_terms(feature_map):
    def make(**changes):
        values = {
            "study_id": "study-1",
            "loss": "squared",
            "theta_max": 2.0,
            "feature_map": feature_map.to_json(),
            "horizon": 10,
            "responses": 10,
            "epsilon": Fraction(1),
        }
        return StudyTerms(**(values | changes))

    return make


@pytest.fixture
def validation_terms(make_terms, feature_map):
    """Terms of an answer about a finished model."""
    return make_terms(
        release="validation",
        responses=1,
        horizon=1,
        loss_bound=2.0,
        difference_bound=1.0,
        reference=(0.0,) * feature_map.num_features,
        epsilon=Fraction(1, 2),
    )


@pytest.fixture
def owner_folder(tmp_path, feature_map):
    """Writes an owner's folder (records, feature map, OWNER.toml) and returns the settings path.

    OWNER.toml has also what is given as ``also``, beside its policy.
    """

    def write(
        name="owner-a", *, seed=1, num_records=200, table=None, pinned=None, also=None, **policy
    ):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        shard = make_table(num_records, seed=seed) if table is None else table
        shard.to_parquet(folder / "shard.parquet")
        (folder / "features.json").write_text((pinned or feature_map).to_json())
        settings = {
            "name": name,
            "listen": "127.0.0.1:0",
            "ledger": "ledger.sqlite",
            "features": "features.json",
            "data": {"path": "shard.parquet"},
            "policy": {"epsilon_per_study": "10", "epsilon_lifetime": "10"} | policy,
        }
        path = folder / "owner.toml"
        path.write_text(tomli_w.dumps(settings | (also or {})))
        return path

    return write


@pytest.fixture
def serve_owner():
    """Starts owners in this process behind real sockets; all are stopped at the end."""
    with ExitStack() as stack:

        def serve(settings, *, insecure_noise_seed=None):
            running = start_owner(settings, listen=None, insecure_noise_seed=insecure_noise_seed)
            stack.callback(running.drain, grace=0.5)
            return running

        yield serve


@contextmanager
def a_process_of_its_own():
    """What a command changes for the whole process is as before afterwards."""
    loggers = [logging.getLogger(name) for name in ("copriv", "grpc")]
    before = [(one, list(one.handlers), one.level, one.propagate) for one in loggers]
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    memory = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for one, its_handlers, level, propagate in before:
            one.handlers[:] = its_handlers
            one.setLevel(level)
            one.propagate = propagate
        resource.setrlimit(resource.RLIMIT_DATA, memory)
        signal.set_wakeup_fd(-1)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.fixture
def typed(monkeypatch, capsys):
    """A whole command, from its arguments to its exit status, without the start of a process.

    An error that is not ours would end it in a traceback: here it fails the test.
    """

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        capsys.readouterr()
        with a_process_of_its_own(), pytest.raises(SystemExit) as ended:
            COMMANDS[name]()
        code = ended.value.code
        assert code is None or isinstance(code, int)
        return Ended(code or 0, *capsys.readouterr())

    return run


@pytest.fixture
def mounted(tmp_path, monkeypatch):
    """What the system tells of the test's disk, as if it were of this kind, with these options."""

    def mount(kind, options):
        found = tmp_path.stat().st_dev
        told = tmp_path / "mountinfo"
        told.write_text(
            "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
            f"36 35 {os.major(found)}:{os.minor(found)} / /a\\040disk rw shared:1 master:2 - "
            f"{kind} server:/home {options}\n"
        )
        monkeypatch.setattr(common.mounts, "MOUNTS", told)

    return mount


ROWS = 1_000


def raw_table(num_records, *, seed, strange):
    """Numbers, truth values, categories, codes and dates; with gaps and unknown ones if strange."""
    rng = np.random.default_rng(seed)
    amount = rng.gamma(2.0, 10.0, size=num_records)
    grade = rng.choice(["A", "B", "New York", "St. John's"], size=num_records)
    codes = rng.choice(["7", "12", "1204"], size=num_records)
    table = pd.DataFrame(
        {
            "amount": amount,
            "is new": (rng.random(num_records) < 0.3).astype(float),
            "grade": grade,
            "code": codes,
            "when": [
                f"20{y:02}-{m:02}-15" for y, m in rng.integers((8, 1), (20, 13), (num_records, 2))
            ],
            "y": 3 * amount + 10 * (grade == "A") + rng.normal(size=num_records),
        }
    )
    table["class"] = np.where(table["y"] > table["y"].median(), "late", "on time")
    if strange:
        for column, values in {
            "amount": [np.nan, 1e9, -1e9],
            "is new": [np.nan],
            "grade": ["", "NA", "unheard of", "  New   York ", "a"],
            "code": ["", "12.0", "1,204", "+7", "99", "x"],
            "when": ["", "Dec-2011", "1 June 2012", "12/31/2010", "2011-13-01", "soon", "1/1/1900"],
        }.items():
            table[column] = table[column].astype(object)
            rows = rng.random(num_records) < 0.4
            table.loc[rows, column] = rng.choice(np.array(values, dtype=object), size=rows.sum())
    table["amount"] = table["amount"].astype(float)
    table["is new"] = table["is new"].astype(float)
    return table


@pytest.fixture(scope="session")
def make_raw_table():
    return raw_table


@pytest.fixture(scope="session")
def strange_table():
    return raw_table(ROWS, seed=2, strange=True)


@pytest.fixture(scope="session")
def make_model():
    def make(loss="squared", also_positive=(), **settings):
        classes = LOSSES[loss].has_classes()
        given = {
            "public": {},
            "target": "class" if classes else "y",
            "columns": ["amount", "is new", "grade", "code", "when"],
            "categorical": ["code"],
        }
        if classes:
            given["positive"] = "late"
        checked = check_settings(FeatureSettings, given | settings, where="test")
        public = raw_table(800, seed=1, strange=False)
        feature_map = fit_feature_map(public, checked, source="public.csv")
        target = feature_map.target.model_copy(update={"also_positive": also_positive})
        feature_map = feature_map.model_copy(update={"target": target})
        p = feature_map.num_features
        return Model(
            feature_map=feature_map,
            loss=LOSSES[loss].example(),
            theta=np.linspace(-1.0, 2.0, p),
            public_theta=np.linspace(-0.9, 1.9, p),
        )

    return make


@pytest.fixture
def fast_folder():
    """A folder in memory where there is one: syncing thousands of times takes its time."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture
def without_forecasts(monkeypatch):
    """Trainings in this process decide the same, without the forecasts that are told beside it.

    Those of equal settings on the same public records decide once. Forecasts, and that equal
    arguments choose equally, have tests of their own.
    """
    decided = {}

    def decide(settings, public, *, num_records, seed):
        key = (settings.model_dump_json(), id(public), num_records, seed)
        if key not in decided:
            made = decide_quietly(settings, public, num_records=num_records, seed=seed)
            decided[key] = public, made  # kept, so that no other has its id
        return decided[key][1]

    monkeypatch.setattr(learner.training.study, "decide", decide)


OWNER = {
    "name": "north",
    "records": 1200,
    "epsilon": "1/2",
    "responses": 3,
    "noise_scale": 0.5,
    "epsilon_spent": "1/2",
    "responses_left": 0,
}


@pytest.fixture(scope="session")
def summary_table():
    """A summary of a trained run, in plain values."""
    return {
        "study": "small",
        "study_id": "small-1",
        "algorithm": "asynchronous",
        "loss": "squared",
        "horizon": 6,
        "seed": 1,
        "insecure_noise": False,
        "profile": "recommended",
        "split": "schedule",
        "initiative": "learner",
        "clocks": "records",
        "correction": "counted",
        "groups": [],
        "average": "tail",
        "horizon_chosen": "auto",
        "clip": 1.0,
        "clip_chosen": "auto",
        "step": {"chosen": "auto", "rho": 0.1},
        "versions": {"copriv": "0.1.0"},
        "wall_seconds": 1.0,
        "ticks": 6,
        "queries_per_second": 6.0,
        "theta": [0.0] * 6,
        "owners": [OWNER, OWNER | {"name": "south", "epsilon": "8", "epsilon_spent": "8"}],
    }


@pytest.fixture(scope="session")
def summary(summary_table):
    """A summary with some values changed."""
    return lambda **changes: Summary.model_validate(summary_table | changes)


@pytest.fixture(scope="session")
def quality():
    """How good a model is on its owners' records, with some values changed."""
    same = {"measure": "rmse", "target": "days", "on": "owners", "records": 9, "intervals": "none"}
    return lambda **changes: QualitySummary.model_validate(same | changes)


def pytest_collection():
    """What is imported and collected stays, and is not looked through for garbage."""
    gc.disable()


def pytest_collection_finish():
    gc.freeze()
    # As the commands have it.
    gc.set_threshold(OBJECTS_MADE, *gc.get_threshold()[1:])
    gc.enable()


def pytest_unconfigure():
    gc.unfreeze()
