"""``copriv sweep``: rows that ``simulate`` would give, whoever computes them, killed or not."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import tomli_w
from clusters import local_cluster
from forked import Forked, run
from waiting import wait_until

import learner
from common.config import load_settings
from common.errors import InputError
from common.tables import read_table
from learner.commands.sweep import _gone_without_results, _read_grounds
from learner.planning.grid import experiment_of
from learner.planning.public_side import prepare_public_side
from learner.planning.settings import StudySettings
from learner.simulated.sweeps import _checksum
from learner.training.repeated import NOISE_SEEDS

COLUMNS = ["a", "b", "c"]
GRID = ("--grid", "privacy.epsilon=1,10", "--grid", "owners=2,3")


@pytest.fixture
def study(tmp_path):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1200, 3))
    table = pd.DataFrame(x, columns=COLUMNS)
    table["y"] = x @ [1.0, -0.5, 0.25] + 0.3 * rng.normal(size=len(table))
    table["owner"] = ["north", "south", "west", "public"] * 300
    table.to_parquet(tmp_path / "records.parquet")

    def write(**changes):
        values = {
            "name": "small",
            "profile": "published",
            "data": {"path": "records.parquet"},
            "features": {
                "public": {"where": {"owner": "public"}},
                "target": "y",
                "columns": COLUMNS,
            },
            "model": {"theta_max": 1.0, "regularisation": 0.01},
            "algorithm": {"horizon": 120, "rho": 100.0},
            "privacy": {"epsilon": 10, "sensitivity": "clip", "clip": 0.5, "split": "schedule"},
            "owners": [
                {"name": name, "data": {"where": {"owner": name}}}
                for name in ("north", "south", "west")
            ],
        }
        path = tmp_path / "study.toml"
        path.write_text(tomli_w.dumps(values | changes))
        return path

    return write


def sweep(path, out, *arguments, jobs=1):
    done = run("copriv", "sweep", path, "--out", out, "--jobs", jobs, *arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def sweep_as_typed(path, folder, **environment):
    """In a process of its own, whose workers are found as those of a command that was typed."""
    command = Path(sys.executable).with_name("copriv")
    arguments = (path, "--out", "out", "--jobs", "2", "--seeds", "2")
    done = subprocess.run(
        [command, "sweep", *arguments, "--grid", "privacy.epsilon=1,10"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout


def test_no_process_imports_a_file_of_the_folder_where_a_command_was_typed(study, tmp_path):
    for module in ("numpy", "json", "joblib", "learner"):
        (tmp_path / f"{module}.py").write_text(f"open('imported-{module}', 'w')\n")
    sweep_as_typed(study(), tmp_path, PYTHONPATH="")
    assert not list(tmp_path.glob("imported-*"))


def test_a_machine_that_lets_no_process_begin_computes_all_in_one(study, tmp_path):
    """joblib finds that out when it is imported, such as by a /dev/shm that is read-only."""
    sweep_as_typed(study(), tmp_path, JOBLIB_MULTIPROCESSING="0")


def test_a_row_is_what_simulate_trains_over_sockets_at_its_seed(study, tmp_path):
    path = study()
    rows = learner.sweep(
        path, {"privacy.epsilon": [1, 10]}, seeds=7, jobs=1, out=tmp_path / "sweep"
    )
    simulated = learner.simulate(
        path,
        overrides={"seed": 7, "privacy.epsilon": 10},
        insecure_noise_seed=7 * NOISE_SEEDS,
        out=tmp_path / "run",
    )
    row = rows[(rows["seed"] == 7) & (rows["privacy.epsilon"] == 10)].iloc[0]
    told = simulated.summary
    assert row["relative_fitness"] == pytest.approx(told.relative_fitness, rel=1e-9)
    assert row["relative_fitness_public"] == pytest.approx(told.relative_fitness_public, rel=1e-9)
    alone = np.mean([owner.relative_fitness_alone for owner in told.owners])
    assert row["relative_fitness_alone"] == pytest.approx(alone, rel=1e-9)
    assert row["gains"] == sum(bool(owner.gains) for owner in told.owners)
    assert row["horizon"] == told.horizon


def test_a_sweep_leaves_a_row_for_each_study_a_table_and_a_page(study, tmp_path):
    path, out = study(), tmp_path / "out"
    said = sweep(path, out, *GRID, "--seeds", 5)
    assert "points 4 x seeds 5 = 20 studies" in said
    assert re.search(r"all seeds take about \d+ (s|minutes) on 1 process", said)
    rows = pd.read_parquet(out / "sweep.parquet")
    assert len(rows) == 20
    for _, point in rows.groupby(["privacy.epsilon", "owners"]):
        assert point["seed"].tolist() == [1, 2, 3, 4, 5]
    means = rows.groupby(["privacy.epsilon", "owners"])["relative_fitness"].mean()
    assert means[10, 3] < means[1, 3]
    assert (rows["num_owners"] == rows["owners"]).all()
    page = (out / "sweep.html").read_text()
    assert page.count("<svg") == 2
    assert "http" not in page.replace("http://www.w3.org", "")
    assert load_settings(StudySettings, out / "study.toml").name == "small"
    # More seeds go on in the same folder: what was decided is not decided again.
    before = {p.name: p.stat().st_mtime_ns for p in (out / "points").glob("point-?????.json")}
    assert len(before) == 4
    sweep(path, out, *GRID, "--seeds", 8)
    more = pd.read_parquet(out / "sweep.parquet")
    assert len(more) == 32
    kept = more[more["seed"] <= 5].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, rows)
    assert all((out / "points" / name).stat().st_mtime_ns == t for name, t in before.items())


def test_what_is_open_is_decided_once_for_each_point(study, tmp_path):
    open_ones = {"algorithm": {}, "privacy": {"epsilon": 10}, "profile": "recommended"}
    path, out = study(**open_ones, forecast={"runs": 24, "worlds": 4}), tmp_path / "out"
    sweep(path, out, "--grid", "privacy.epsilon=1,100", "--seeds", 3)
    rows = pd.read_parquet(out / "sweep.parquet")
    assert (rows.groupby("point")[["way", "horizon"]].nunique() == 1).all().all()
    assert set(rows["way"]) <= {"ticks", "ticks from zero", "moments", "newton"}


def test_only_the_owner_that_is_the_learner_can_gain(study, tmp_path):
    moments = {"algorithm": {"name": "moments"}, "privacy": {"epsilon": 1000}}
    for gaining, role in ((3, {}), (1, {"learner": {"own": "south", "shows_model": True}})):
        out = tmp_path / f"{gaining}"
        sweep(study(**moments, **role), out, "--seeds", 3)
        assert (pd.read_parquet(out / "sweep.parquet")["gains"] == gaining).all()


def test_each_model_of_a_grid_takes_the_public_records_in_groups_as_its_study_does(tmp_path):
    """A model that is free to follow them shows that the records of one group change."""
    rng = np.random.default_rng(4)
    site, along = np.array(list("ABC"))[rng.integers(0, 3, 4000)], np.linspace(-3, 1, 4000)
    table = pd.DataFrame({"a": rng.normal(size=4000), "b": rng.normal(size=4000), "site": site})
    moves = 0.2 * along.clip(-1) * (along > -1) * table["b"]
    table["y"] = 3 * table["a"] + (site == "B") + moves + 0.3 * rng.normal(size=4000)
    table.to_parquet(tmp_path / "records.parquet")
    owners = [
        {"name": name, "data": {"rows": ":2000", "where": {"site": name.upper()}}} for name in "abc"
    ]
    study = {
        "name": "drifting",
        "data": {"path": "records.parquet"},
        "features": {"public": {"rows": "2000:"}, "target": "y", "columns": ["a", "b"]},
        "model": {"theta_max": 1.0},
        "privacy": {"epsilon": 1},
        "owners": owners,
    }
    path = tmp_path / "study.toml"
    path.write_text(tomli_w.dumps(study))
    experiment = experiment_of(path, {"model.theta_max": [0.05, 1.0]}, seeds=1)
    with mock.patch("learner.planning.public_side.read_table", wraps=read_table) as reads:
        grounds = _read_grounds(experiment.points, base=tmp_path)
    assert reads.call_count == 1
    alone = [prepare_public_side(point.settings, base=tmp_path) for point in experiment.points]
    assert [its.labels is None for its in alone] == [False, True]
    assert [its.public.labels is None for its in grounds] == [False, True]
    assert grounds[0].features is grounds[1].features
    # A decision of other groups is no decision of these.
    moved = replace(alone[0], labels=np.roll(alone[0].labels, 1))
    digests = [its.digest(3) for its in (*grounds, replace(grounds[0], public=moved))]
    assert len(set(digests)) == 3


@pytest.mark.long
def test_a_sweep_that_was_killed_goes_on_and_leaves_the_same_bytes(study, tmp_path):
    path = study(algorithm={"horizon": 500, "rho": 100.0})
    options = ("--grid", "privacy.epsilon=1,10", "--seeds", "300", "--jobs", "1")
    killed = Forked("copriv", "sweep", path, *options, "--out", tmp_path / "killed")
    wait_until(lambda: list((tmp_path / "killed").glob("points/*-seeds-*.json")))
    assert killed.poll() is None
    killed.kill()
    killed.communicate()
    assert not (tmp_path / "killed/sweep.parquet").exists()
    there = {p: p.stat().st_mtime_ns for p in (tmp_path / "killed").glob("points/point*.json")}
    assert 0 < sum("seeds" in p.name for p in there) < 6
    grid = {"privacy.epsilon": [1, 10]}
    learner.sweep(path, grid, seeds=300, jobs=2, out=tmp_path / "killed")
    sweep(path, tmp_path / "whole", *options[:4])
    assert {p: p.stat().st_mtime_ns for p in there} == there
    for name in ("sweep.parquet", "sweep.html"):
        ended, whole = (tmp_path / folder / name for folder in ("killed", "whole"))
        assert ended.read_bytes() == whole.read_bytes()


KILLED = """
import os, signal, sys
from common.command import run_command
from learner.cli import cli
replace, when = os.replace, sys.argv.pop(1)
def killed(draft, path):
    if path.name == when:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(draft, path)
os.replace = killed
run_command(cli, "copriv")
"""


@pytest.mark.parametrize("command", ["sweep", "forecast"])
def test_ctrl_c_while_processes_begin_is_one_sentence(study, tmp_path, command):
    """A terminal sends it to all of them, and they took it for an error of an import."""
    asked = [command, str(study()), "--jobs", "2", "--out", "out"]
    program = subprocess.Popen(
        [sys.executable, "-c", "from learner.start import main; main()", *asked],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with program:
        wait_until(lambda: _begun_of(program.pid))
        held = [_holds_back(process, signal.SIGINT) for process in _begun_of(program.pid)]
        os.killpg(program.pid, signal.SIGINT)
        said = program.stderr.read()
    assert all(held)
    assert program.returncode == 130
    assert said.splitlines() == [
        "copriv: stopped; type the same command again to go on, and what was computed is kept"
    ]


SLOW = """
import time
from pathlib import Path
from learner.simulated.sweeps import Workers, run_sweep
def slow(place):
    time.sleep(1)
    Path(place).touch()
    return {}
run_sweep(slow, {str(i): (str(i),) for i in range(8)}, workers=Workers(jobs=2))
"""


def test_who_stops_while_processes_begin_waits_for_nothing_that_they_compute(tmp_path):
    program = subprocess.Popen(
        [sys.executable, "-c", SLOW], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    with program:
        wait_until(lambda: _begun_of(program.pid))
        program.send_signal(signal.SIGINT)
        said = program.stderr.read()
    assert program.returncode == -signal.SIGINT
    assert said.splitlines()[-1] == "KeyboardInterrupt"
    assert "in thread" not in said
    assert not list(tmp_path.iterdir())


def _begun_of(process):
    """The processes that a command computes with."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [one for one in children if b"popen_loky" in Path(f"/proc/{one}/cmdline").read_bytes()]


def _holds_back(process, number):
    """Whether a process blocks or ignores a signal."""
    told = Path(f"/proc/{process}/status").read_text()
    masks = re.findall(r"Sig(?:Blk|Ign):\s+([0-9a-f]+)", told)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


@pytest.mark.parametrize("when", ["grid.json", "study.toml", "point-00000.json"])
def test_a_sweep_that_was_killed_at_its_first_files_goes_on(study, tmp_path, typed, when):
    path, out = study(), tmp_path / "out"
    asked = ("sweep", path, "--seeds", "2", "--jobs", "1", "--out", out)
    program = [sys.executable, "-c", KILLED, when, *map(str, asked)]
    killed = subprocess.run(program, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not (out / when).exists()
    said = typed("copriv", *asked)
    assert said.returncode == 0, said.stderr
    assert {file.name for file in out.iterdir()} == {
        *("grid.json", "points", "study.toml", "sweep.html", "sweep.parquet")
    }


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("point-?????", lambda its: its | {"decision": "{}"}),
        ("point-?????", lambda its: its | {"horizon": 10**9}),
        ("point-?????", lambda its: its | {"alone": [1.0]}),
        ("point-?????", lambda its: []),
        ("*seeds*", lambda its: {"relative_fitness": [0.5]}),
    ],
)
def test_kept_points_that_were_changed_are_computed_anew(study, tmp_path, kind, change):
    path, out = study(), tmp_path / "sweep"
    sweep(path, out, "--grid", "privacy.epsilon=1,10", "--seeds", "2")
    before = (out / "sweep.parquet").read_bytes()
    for kept in (out / "points").glob(f"{kind}.json"):
        table = json.loads(kept.read_text())
        result = change(table["result"])
        kept.write_text(json.dumps(table | {"result": result, "checksum": _checksum(result)}))
    sweep(path, out, "--grid", "privacy.epsilon=1,10", "--seeds", "2")
    assert (out / "sweep.parquet").read_bytes() == before


# Dask's own, such as of a slow disk, are not ours to mend.
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_gives_the_same_bytes(study, tmp_path):
    path, grid = study(), {"privacy.epsilon": [1, 10]}
    here = learner.sweep(path, grid, seeds=4, jobs=1, out=tmp_path / "here")
    with local_cluster() as address:
        there = learner.sweep(path, grid, seeds=4, cluster=address, out=tmp_path / "there")
    pd.testing.assert_frame_equal(here, there)
    files = [tmp_path / folder / "sweep.parquet" for folder in ("here", "there")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_point_that_fails_is_left_out_and_said(study, tmp_path):
    path, out = study(), tmp_path / "out"
    said = sweep(path, out, "--grid", "privacy.epsilon=10,1e-17", "--seeds", 2)
    assert "left out: privacy.epsilon=1e-17: owner " in " ".join(said.split())
    assert set(pd.read_parquet(out / "sweep.parquet")["privacy.epsilon"]) == {10.0}


def test_mistakes_are_one_sentence_and_leave_nothing(study, tmp_path, typed):
    path, out = study(), tmp_path / "out"
    for arguments, sentence in (
        (("--grid", "privacy.epsylon=1"), "privacy.epsylon"),
        (("--grid", "owners=4"), "from 1 to 3"),
        (("--grid", "privacy.epsilon=1,2", "--seeds", "900000"), "1,800,000 studies"),
        (("--seeds", "0"), "'--seeds'"),
        (("--grid", "privacy.epsilon=1e-17"), "epsilon"),
        (("--grid", "privacy.epsilon=1e-17", "--cluster", "nonsense://x"), "no Dask scheduler"),
    ):
        said = typed("copriv", "sweep", path, "--out", out, "--jobs", "1", *arguments)
        assert said.returncode == 2, arguments
        assert sentence in said.stderr
        assert "Traceback" not in said.stderr
        assert not out.exists()


def test_where_nothing_can_be_computed_what_was_there_stays(study, tmp_path, typed):
    """A folder that was made empty stays so, and what is kept of another try is not lost."""
    path, out = study(), tmp_path / "out"
    out.mkdir()
    nothing = (
        "copriv",
        "sweep",
        path,
        "--out",
        out,
        "--jobs",
        "1",
        "--grid",
        "privacy.epsilon=1e-17",
    )
    assert typed(*nothing).returncode == 2
    assert list(out.iterdir()) == []
    sweep(path, out, "--grid", "privacy.epsilon=10", "--seeds", 2)
    kept = sorted(file.name for file in (out / "points").iterdir())
    bad = ("--grid", "privacy.epsilon=10", "--seeds", "3", "--cluster", "nonsense://x")
    assert typed("copriv", "sweep", path, "--out", out, *bad).returncode == 2
    assert sorted(file.name for file in (out / "points").iterdir()) == kept


def test_a_sweep_that_comes_to_nothing_takes_away_only_what_it_wrote(study, tmp_path, typed):
    path, out = study(), tmp_path / "out"
    sweep(path, out, "--grid", "privacy.epsilon=10", "--seeds", 2)
    for result in (out / "points").iterdir():
        result.unlink()
    (out / "notes.txt").write_text("mine")
    before = sorted(out.iterdir())
    bad = ("--grid", "privacy.epsilon=10", "--seeds", "2", "--cluster", "nonsense://x")
    assert typed("copriv", "sweep", path, "--out", out, *bad).returncode == 2
    assert sorted(out.iterdir()) == before
    new = tmp_path / "new"
    (new / "points").mkdir(parents=True)
    for name in ("study.toml", "grid.json", "points/point-00000.json", "notes.txt"):
        (new / name).write_text("{}")
    with pytest.raises(InputError), _gone_without_results(new, was_there=False):
        raise InputError("nothing could be computed")
    assert [file.name for file in new.rglob("*")] == ["notes.txt"]


def test_a_table_that_is_typed_is_read_at_some_point_or_refused(study, tmp_path, typed):
    """Whichever point comes first."""
    table = pd.read_parquet(tmp_path / "records.parquet")
    table[table["owner"] == "public"].to_parquet(tmp_path / "public.parquet")
    own = {"path": "records.parquet"}
    owners = [
        {"name": "north", "data": own | {"where": {"owner": "north"}}},
        {"name": "south", "data": {"where": {"owner": "south"}}},
    ]
    features = {"public": {"path": "public.parquet"}, "target": "y", "columns": COLUMNS}
    path, out = study(owners=owners, features=features, data={}), tmp_path / "out"
    typing = ("copriv", "sweep", path, "--out", out, "--jobs", "1", "--seeds", "2")
    given = ("--data", tmp_path / "records.parquet")
    said = typed(*typing, *given, "--grid", "owners=1,2")
    assert said.returncode == 0, said.stderr
    for grid, sentence in (
        ("owners=1", "nothing would be read from it"),
        ("data.path=a.parquet,b.parquet", "--grid data.path"),
    ):
        said = typed(*typing, *given, "--grid", grid, "--out", tmp_path / "other")
        assert said.returncode == 2, grid
        assert sentence in said.stderr
        assert not (tmp_path / "other").exists()


def test_a_key_that_changes_nothing_is_noted_and_warnings_come_once(study, tmp_path, typed):
    path, out = study(), tmp_path / "out"
    table = pd.read_parquet(tmp_path / "records.parquet")
    # One owner measures in another unit, which is warned of.
    table.loc[table["owner"] == "north", COLUMNS[0]] *= 1000
    table.to_parquet(tmp_path / "records.parquet")
    grid = ("--grid", "network.in_flight=2,4", "--grid", "features.coverage=0.98,0.99")
    # With rows of other values nobody could compare it: there are none.
    grid += ("--grid", "features.l1_coverage=0.8")
    said = typed("copriv", "sweep", path, "--out", out, "--jobs", "1", "--seeds", "2", *grid)
    assert said.returncode == 0, said.stderr
    notes = [line for line in said.stdout.splitlines() if line.startswith("note:")]
    assert notes == [
        "note: each value of network.in_flight gives the same runs",
        "note: each value of features.coverage has its own best model, against which relative "
        "fitness is measured: compare a row with its own public model and alone, not with rows of "
        "other values",
    ]
    page = (out / "sweep.html").read_text()
    assert all(f"<p>{note[6].upper()}{note[7:]}.</p>" in page for note in notes)
    warnings = [line for line in said.stderr.splitlines() if "warning: " in line]
    assert warnings
    assert len(set(warnings)) == len(warnings)


def test_a_box_that_is_too_small_is_warned_of_once_and_on_the_page(study, tmp_path):
    path, out = study(), tmp_path / "out"
    grid = ("--grid", "model.theta_max=0.3,2", "--grid", "privacy.epsilon=1,10", "--seeds", 2)
    said = sweep(path, out, *grid)
    edge = "the public model is at an edge of its box (a, b); enlarge model.theta_max, which is 0.3"
    assert [said.count(words) for words in (f"warning: {edge}, to ", "edge of its box")] == [1, 1]
    assert f"<p>T{edge[1:]}, to " in (out / "sweep.html").read_text()


def test_a_folder_of_another_sweep_is_refused(study, tmp_path, typed):
    path, out = study(), tmp_path / "out"
    sweep(path, out, "--grid", "owners=2", "--seeds", 2)
    before = (out / "sweep.parquet").read_bytes()
    for other in (("--grid", "owners=3"), ("--grid", "owners=2", "--set", "model.theta_max=2")):
        said = typed("copriv", "sweep", path, "--out", out, "--jobs", "1", *other)
        assert said.returncode == 2
        assert "of a sweep of other settings" in said.stderr
    (out / "grid.json").write_text("[" * 100_000)
    assert typed("copriv", "sweep", path, "--out", out, "--jobs", "1").returncode == 2
    assert (out / "sweep.parquet").read_bytes() == before
    assert json.loads(next((out / "points").glob("*seeds*.json")).read_text())["result"]
