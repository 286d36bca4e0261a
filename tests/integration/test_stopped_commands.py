"""After Ctrl-C, or in a folder that an earlier command left, what is advised is true: it works."""

import contextlib
import os
import pty
import select
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tomli_w

import learner.commands.study
from common.toml_files import read_toml
from learner.training.journal import Journal

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("a", "b")
# No command is silent for so long.
SECONDS = 60


def stop(*_, **__):
    """What Ctrl-C does."""
    raise KeyboardInterrupt


def last_line(said):
    """The sentence that a command ended with."""
    lines = said.stderr.strip().splitlines()
    return lines[-1] if lines else ""


def advised(sentence):
    """The command in the sentence, as it is typed."""
    return shlex.split(sentence.split("`")[1])


@pytest.fixture
def owners(owner_folder, serve_owner):
    """Two that serve."""
    return {name: serve_owner(owner_folder(name, seed=i)) for i, name in enumerate(NAMES)}


@pytest.fixture
def study(tmp_path, owners):
    """A study of both."""
    addresses = {name: f"127.0.0.1:{one.port}" for name, one in owners.items()}
    table = {
        "name": "s",
        "seed": 1,
        "profile": "published",
        "features": {"map": str(tmp_path / "a" / "features.json")},
        "model": {"theta_max": 2},
        "algorithm": {"horizon": 9, "rho": 1e-3},
        "privacy": {"epsilon": 1},
        "network": {"deadline": 2, "patience": 1, "retries": 0},
        "owners": [{"name": name, "address": address} for name, address in addresses.items()],
    }
    path = tmp_path / "study.toml"
    path.write_text(tomli_w.dumps(table))
    return path


@pytest.fixture
def records(tmp_path):
    """A study whose records are all here."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(400, 2)), columns=["u", "v"])
    table["y"] = table.u - table.v + 0.1 * rng.normal(size=len(table))
    table["owner"] = ["north", "south", "public", "public"] * 100
    table.to_parquet(tmp_path / "records.parquet")
    path = tmp_path / "here.toml"
    path.write_text(
        tomli_w.dumps(
            {
                "name": "here",
                "profile": "published",
                "data": {"path": "records.parquet"},
                "features": {
                    "public": {"where": {"owner": "public"}},
                    "target": "y",
                    "columns": ["u", "v"],
                },
                "model": {"theta_max": 1.0},
                "algorithm": {"horizon": 12, "rho": 1.0},
                "privacy": {"epsilon": 10, "sensitivity": "clip", "clip": 0.5},
                "owners": [
                    {"name": n, "data": {"where": {"owner": n}}} for n in ("north", "south")
                ],
            }
        )
    )
    return path


def test_training_that_is_stopped_before_it_began_leaves_nothing(
    study, tmp_path, typed, monkeypatch
):
    """A folder that was made empty for the run is left as it was made."""
    run, made = tmp_path / "run", tmp_path / "made"
    made.mkdir(mode=0o700)
    before = made.stat()
    for folder in (run, made):
        with monkeypatch.context() as patch:
            patch.setattr("learner.commands.run_start.write_settings", stop)
            said = typed("copriv", "train", study, "--out", folder)
        assert (said.returncode, last_line(said)) == (
            130,
            "copriv: stopped; type the same command again to start over",
        )
    assert not run.exists()
    assert list(made.iterdir()) == []
    assert (made.stat().st_ino, made.stat().st_mode) == (before.st_ino, before.st_mode)
    assert typed("copriv", "train", study, "--out", run).returncode == 0


def test_resuming_that_is_stopped_before_anything_is_read_goes_on(tmp_path, typed):
    (tmp_path / "study.toml").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("learner.commands.study.run_training", stop)
        said = typed("copriv", "train", "--resume", tmp_path)
        assert last_line(said) == "copriv: stopped; type the same command again to go on"
        said = typed("copriv", "train", "--resume", tmp_path / "nothing")
        assert last_line(said) == "copriv: stopped; type the same command again to start over"


def test_a_training_says_who_it_waits_for_at_the_start(study, owners, typed):
    owners["b"].server.stop(None)
    said = typed(
        "copriv", "train", study, "--set", "network.patience=3", "--out", study.parent / "r"
    )
    assert said.returncode == 2
    assert "waiting for b; gives up after 3 s" in said.stderr


PROGRAM = """
import os, signal, time, click
from common.command import Commands, run_command, stoppable
# Whoever runs the tests behind nohup has the end of a terminal ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
@click.command(cls=Commands)
def main(): pass
@main.command()
def train():
    with stoppable(lambda: "stopped; `copriv train --resume run` goes on"):
        os.kill(os.getpid(), signal.{signal})
        time.sleep(60)
run_command(main, "copriv")
"""


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129)])
def test_a_command_that_is_told_to_end_says_how_to_go_on(name, status):
    program = PROGRAM.format(signal=name)
    said = subprocess.run(
        [sys.executable, "-c", program, "train"], capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stderr) == (
        status,
        "copriv: stopped; `copriv train --resume run` goes on\n",
    )


UNREAD = """
import os, click
from common.command import Commands, console, plain_console, run_command, stoppable
@click.command(cls=Commands)
def main(): pass
def printed():
    reading, writing = os.pipe()
    os.close(reading)
    for number in {numbers}:
        os.dup2(writing, number)
    console().print("a line that nobody reads")
    os.write(2, b"went on")
@main.command()
def train():
    with stoppable(lambda: "stopped; `copriv train --resume run` goes on"):
        printed()
@main.command()
def settings():
    printed()
@main.command()
def token():
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, 1)
    click.echo("a line that nobody reads")
@main.command()
def audit():
    with stoppable(lambda: "stopped"):
        reading, writing = os.pipe()
        os.close(reading)
        os.dup2(writing, 2)
        plain_console(stderr=True).print("a line that nobody reads")
run_command(main, "copriv")
"""


@pytest.mark.parametrize(
    ("command", "numbers", "said"),
    [
        ("train", (1,), "copriv: stopped; `copriv train --resume run` goes on\n"),
        ("train", (1, 2), ""),
        ("settings", (1,), ""),
        ("token", (1,), ""),
        ("audit", (2,), ""),
    ],
)
def test_a_command_whose_reader_has_gone_stops_and_says_how_a_run_goes_on(command, numbers, said):
    ended = subprocess.run(
        [sys.executable, "-c", UNREAD.format(numbers=numbers), command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (141, said)


def test_a_command_that_nohup_started_outlives_its_terminal():
    program = PROGRAM.format(signal="SIGHUP").replace("time.sleep(60)", "click.echo('goes on')")
    command = [sys.executable, "-c", program.replace("SIG_DFL", "SIG_IGN"), "train"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, "goes on\n", "")


# Ctrl-C is typed where a library that every command needs is looked for.
IN_THE_IMPORTS = """
import os, signal, sys

class Typed:
    def find_spec(name, path=None, target=None):
        if name == "numpy":
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.{handler})
sys.meta_path.insert(0, Typed)
from {module} import {function}
{function}()
"""


@pytest.mark.parametrize("command", ["copriv", "copriv-owner"])
def test_a_command_that_is_stopped_before_it_began_says_so_and_no_more(command):
    scripts = read_toml(ROOT / "pyproject.toml")["project"]["scripts"]
    module, function = scripts[command].split(":")

    def typed_with(handler):
        code = IN_THE_IMPORTS.format(handler=handler, module=module, function=function)
        return subprocess.run(
            [sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=False
        )

    said = typed_with("default_int_handler")
    assert said.stderr == f"{command}: stopped; type the same command again to start over\n"
    assert (said.returncode, said.stdout) == (130, "")
    # As a shell begins what it runs in the background.
    said = typed_with("SIG_IGN")
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith(f"{command}, version ")


# Standard input is this session's terminal, as after a login: its end is a SIGHUP.
ON_A_TERMINAL = """
import fcntl, signal, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from learner.cli import main
main()
"""


def test_a_run_whose_terminal_closes_is_stopped_and_does_not_crash(study, owners):
    """What it would still print finds no terminal."""
    owners["b"].server.stop(None)
    run = study.parent / "run"
    command = [sys.executable, "-c", ON_A_TERMINAL, "train", str(study), "--out", str(run)]
    command += ["--set", f"network.patience={SECONDS}"]
    reading, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as its:
        process = subprocess.Popen(
            command, stdin=its, stdout=its, stderr=its, start_new_session=True
        )
    said = b""
    try:
        while b"waiting for b" not in said:
            said += os.read(reading, 1024)
        os.close(reading)
        assert process.wait(SECONDS) == 128 + signal.SIGHUP
    finally:
        process.kill()
        process.wait()


ENDLESS = "with recursive n(x) as (select 1 union all select x + 1 from n) select x from n"
READING = """
import os, signal, sqlite3, threading
from common.command import run_command
from {side}.cli import cli
signal.signal(signal.SIGHUP, signal.SIG_DFL)
connect = sqlite3.connect
def connected(*given, **more):
    sqlite3.connect = connect
    threading.Timer(1, os.kill, (os.getpid(), signal.{signal})).start()
    return connect(*given, **more)
sqlite3.connect = connected
run_command(cli, "copriv")
"""
INIT = ("init", "a.sqlite", "--query", ENDLESS, "--target", "x", "--yes", "--out", "made")


def is_stopped(program, typed, status, folder):
    """A query in a program of its own ends as every command, and leaves nothing."""
    said = subprocess.run(
        [sys.executable, "-c", program, *typed],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (said.returncode, said.stderr) == (
        status,
        "copriv: stopped; type the same command again to start over\n",
    )
    assert not (folder / "made").exists()


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129)])
@pytest.mark.parametrize(
    ("side", "typed"),
    [
        ("learner", INIT),
        ("owner", ("serve", "a.toml")),
        ("owner", ("attach", "a.toml", "--learner", "127.0.0.1:9")),
    ],
)
def test_a_query_without_an_end_is_stopped(name, status, side, typed, tmp_path):
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as database:
        database.execute("create table t (x)")
    owner = {"name": "a", "data": {"path": "a.sqlite", "query": ENDLESS}}
    owner["policy"] = {"epsilon_per_study": 1, "epsilon_lifetime": 1}
    (tmp_path / "a.toml").write_text(tomli_w.dumps(owner))
    is_stopped(READING.format(signal=name, side=side), typed, status, tmp_path)


STOPPED_IN_DUCKDB = """
import os, signal, threading, duckdb
from common.command import run_command
from learner.cli import cli
connect = duckdb.connect
def connected(*given, **more):
    duckdb.connect = connect
    threading.Timer(1, os.kill, (os.getpid(), signal.{signal})).start()
    return connect(*given, **more)
duckdb.connect = connected
run_command(cli, "copriv")
"""


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_long_query_of_duckdb_is_stopped(name, status, tmp_path):
    pytest.importorskip("duckdb").connect(str(tmp_path / "a.duckdb")).close()
    long = "select count(*) x from range(1000000000) a(i), range(100000) b(j) where i * j % 7 = 3"
    typed = ["init", "a.duckdb", "--query", long, "--target", "x", "--yes", "--out", "made"]
    is_stopped(STOPPED_IN_DUCKDB.format(signal=name), typed, status, tmp_path)


@pytest.mark.parametrize("where", ["_write_results", "model_of"])
def test_training_that_is_stopped_at_its_end_is_resumed_by_what_the_sentence_says(
    study, tmp_path, typed, where
):
    run = tmp_path / "a run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"learner.commands.run_start.{where}", stop)
        said = typed("copriv", "train", study, "--out", run, "--insecure")
        assert said.returncode == 130
        command = advised(last_line(said))
        assert command == ["copriv", "train", "--resume", str(run), "--insecure"]
        # The same holds of what is advised where that is stopped, too.
        again = typed(*command)
        assert last_line(again) == "copriv: stopped; type the same command again to go on"
    finished = typed(*command)
    assert finished.returncode == 0, finished.stderr
    assert (run / "summary.json").is_file()


@pytest.mark.parametrize("room", [100, 30_000, 70_000])
def test_a_run_whose_disk_is_full_ends_as_one_that_is_tried_again_and_goes_on(study, owners, room):
    """Wherever in the run that happens; a supervisor leaves alone what ends as a mistake."""
    run = study.parent / "run"
    lines = ["import resource", "from learner.cli import main"]
    lines += [f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))", "main()"]
    command = [sys.executable, "-c", "\n".join(lines), "train", str(study), "--resume", str(run)]
    full = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert full.returncode == 4, full.stderr
    assert "Traceback" not in full.stderr
    command[2] = "from learner.cli import main; main()"
    again = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert again.returncode == 0, again.stderr
    # Each of the nine ticks was charged once.
    spent = [running.owner.epsilon_held() for running in owners.values()]
    assert sum(spent) == pytest.approx(1)


@pytest.mark.parametrize("command", [("train", "--resume"), ("close", "--abandon")])
def test_a_journal_that_holds_nothing_begins_no_second_study(
    study, tmp_path, typed, monkeypatch, command
):
    """Owners were asked from the start again, and charged a second epsilon."""
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("learner.results.run_folder.Trace.append", stop)
        assert typed("copriv", "train", study, "--out", run).returncode == 130
    (run / "journal.sqlite").write_bytes(b"")
    for _ in range(2):
        said = typed("copriv", *command, run)
        assert said.returncode == 2
        assert "put the run's journal back, or start a new run" in said.stderr
    assert not (run / "summary.json").exists()


@pytest.mark.parametrize("other", ["name=other", "seed=8"])
def test_the_whole_journal_of_another_run_is_not_gone_on_with(
    study, tmp_path, typed, monkeypatch, other
):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    with monkeypatch.context() as patch:
        patch.setattr("learner.results.run_folder.Trace.append", stop)
        for folder, changed in ((run, "seed=7"), (elsewhere, other)):
            said = typed("copriv", "train", study, "--set", changed, "--out", folder)
            assert said.returncode == 130, said.stderr
    for file in run.glob("journal.sqlite*"):
        file.unlink()
    for file in elsewhere.glob("journal.sqlite*"):
        shutil.copy2(file, run)
    for command in (("train", "--resume"), ("close", "--abandon")):
        said = typed("copriv", *command, run)
        assert said.returncode == 2
        assert f"{run / 'journal.sqlite'}: holds another run (study " in last_line(said)
        assert last_line(said).endswith("put this run's journal back, or start a new run")
    assert not (run / "summary.json").exists()


def test_a_folder_where_a_run_was_begun_says_how_to_go_on_and_it_does(
    study, tmp_path, owners, serve_owner, typed
):
    run = tmp_path / "run"
    owners["b"].drain(grace=0)
    assert typed("copriv", "train", study, "--out", run).returncode == 2
    again = typed("copriv", "train", study, "--out", run)
    assert again.returncode == 2
    sentence = last_line(again)
    assert sentence == (
        f"copriv: {run}: a run was begun there; go on with copriv train --resume {run} (STUDY.toml "
        "before --resume where an owner's address has changed); give another one with --out"
    )
    # The same owner at another port.
    settings = tmp_path / "b" / "owner.toml"
    other = serve_owner(settings)
    changed = read_toml(study)
    changed["owners"][1]["address"] = f"127.0.0.1:{other.port}"
    study.write_text(tomli_w.dumps(changed))
    finished = typed("copriv", "train", study, "--resume", run)
    assert finished.returncode == 0, finished.stderr
    full = typed("copriv", "train", study, "--out", run)
    assert last_line(full) == (
        f"copriv: {run}: the run folder is not empty; give another one with --out"
    )


@pytest.fixture
def meanwhile(monkeypatch):
    """The next training waits, once it has looked at its folder, until something else is done."""

    def begin(other):
        prepare = learner.commands.study.prepare_public_side

        def slow(*given, **named):
            monkeypatch.setattr("learner.commands.study.prepare_public_side", prepare)
            other()
            return prepare(*given, **named)

        monkeypatch.setattr("learner.commands.study.prepare_public_side", slow)

    return begin


def contents(folder):
    """What a run's files hold; the journal's own are written when it is looked at."""
    kept = (file for file in folder.iterdir() if not file.name.startswith("journal"))
    return {file.name: file.read_bytes() for file in kept}


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_run_that_another_command_began_meanwhile_is_left_as_it_is(
    study, tmp_path, typed, monkeypatch, meanwhile, is_stopped
):
    """Another study took its journal for its own, and showed answers to other questions."""
    run, left = tmp_path / "run", {}

    def begin():
        with monkeypatch.context() as patch:
            if is_stopped:
                patch.setattr("learner.results.run_folder.Trace.append", stop)
            begun = typed("copriv", "train", study, "--resume", run)
        assert begun.returncode == (130 if is_stopped else 0), begun.stderr
        left.update(contents(run))

    meanwhile(begin)
    said = typed("copriv", "train", study, "--set", "name=other", "--resume", run)
    assert said.returncode == 2
    assert last_line(said) == (
        f"copriv: {run}: another command began a run there meanwhile, which is left as it is; "
        "give another folder"
    )
    assert contents(run) == left


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (("close", "--abandon"), "the run was given up with copriv close --abandon"),
        (("train", "--resume"), "another command has finished this run meanwhile"),
    ],
)
def test_a_run_that_another_command_ended_meanwhile_is_not_gone_on_with(
    study, tmp_path, typed, monkeypatch, meanwhile, other, sentence
):
    """Its owners were blamed for a study that was closed, or its pages were written once more."""
    run, left = tmp_path / "run", {}
    with monkeypatch.context() as patch:
        patch.setattr("learner.results.run_folder.Trace.append", stop)
        assert typed("copriv", "train", study, "--out", run).returncode == 130

    def end():
        ended = typed("copriv", *other, run)
        assert ended.returncode == 0, ended.stderr
        left.update(contents(run))

    meanwhile(end)
    said = typed("copriv", "train", "--resume", run)
    assert said.returncode == 2
    assert last_line(said).startswith(f"copriv: {run}: {sentence}")
    assert contents(run) == left


def test_a_folder_that_another_command_holds_is_not_emptied(study, tmp_path, typed, monkeypatch):
    """Both had found it empty, and the second one found the first one's port taken."""
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.setattr("learner.results.run_folder.is_empty", lambda _: True)
    with closing(Journal(run / "journal.sqlite")), socket.create_server(("127.0.0.1", 0)) as port:
        taken = f'network.metrics="127.0.0.1:{port.getsockname()[1]}"'
        said = typed("copriv", "train", study, "--set", taken, "--out", run)
        assert (run / "journal.sqlite").is_file()
    assert said.returncode == 2
    assert last_line(said).endswith("another process holds this run; wait for it to end")


def test_a_simulation_that_is_stopped_says_what_to_do_with_its_folder(
    records, tmp_path, typed, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    asked = ("copriv", "simulate", records, "--in-memory")
    with monkeypatch.context() as patch:
        patch.setattr("learner.commands.run_start._write_results", stop)
        said = typed(*asked, "--out", run)
        assert (said.returncode, last_line(said)) == (
            130,
            "copriv: stopped; a simulation does not go on: to start over, remove "
            f"{run}, or give another folder with --out",
        )
        said = typed(*asked)
        assert last_line(said) == (
            "copriv: stopped; a simulation does not go on: "
            "type the same command again to start over"
        )
    with monkeypatch.context() as patch:
        patch.setattr("learner.commands.run_start.write_settings", stop)
        said = typed(*asked, "--out", tmp_path / "gone")
    assert last_line(said).endswith(": type the same command again to start over")
    assert not (tmp_path / "gone").exists()
    for out in ((), ("--out", tmp_path / "other"), ("--out", tmp_path / "gone")):
        assert typed(*asked, *out).returncode == 0
    with monkeypatch.context() as patch:
        patch.setattr("learner.results.run_folder.Trace.append", stop)
        assert "communication 1 of 12; a simulation" in last_line(typed(*asked))
    closed = typed("copriv", "close", run)
    assert closed.returncode == 2
    assert "started here by copriv simulate and have ended; there is nothing" in closed.stderr
    assert "--resume" not in closed.stderr


@pytest.mark.parametrize("command", [("sweep", "--seeds", "2"), ("forecast", "--quick")])
def test_what_computes_points_goes_on_where_it_was_stopped(
    records, tmp_path, typed, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    asked = ("copriv", command[0], records, *command[1:], "--jobs", "1")
    if command[0] == "forecast":
        asked += ("--set", "forecast.runs=10", "--set", "forecast.worlds=2", "--compare", "")
    leave = f"learner.commands.{command[0]}._leave"
    with monkeypatch.context() as patch:
        patch.setattr(leave, stop)
        said = typed(*asked, "--out", "kept")
        assert last_line(said) == (
            "copriv: stopped; type the same command again to go on, and what was computed is kept"
        )
        unnamed = typed(*asked)
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"the same with --out runs/{folder.name} goes on" in last_line(unnamed)
    for out in ("kept", f"runs/{folder.name}"):
        points = {path: path.stat().st_mtime_ns for path in Path(out, "points").glob("*.json")}
        assert points
        assert typed(*asked, "--out", out).returncode == 0
        assert all(path.stat().st_mtime_ns == then for path, then in points.items())


def test_a_run_that_is_given_up_while_an_owner_is_away_is_closed_by_what_the_sentence_says(
    study, tmp_path, owners, typed, monkeypatch
):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("learner.results.run_folder.Trace.append", stop)
        assert typed("copriv", "train", study, "--out", run).returncode == 130
    with monkeypatch.context() as patch:
        patch.setattr("learner.commands.closing.at_once", stop)
        said = typed("copriv", "close", run, "--abandon")
    assert last_line(said) == (
        f"copriv: stopped; `copriv close {run} --abandon` closes those that are left"
    )
    owners["b"].drain(grace=0)
    said = typed(*advised(last_line(said)))
    assert said.returncode == 4
    assert last_line(said).endswith(f"; then type copriv close {run} --abandon again")
    assert "a: closed" in said.stdout
    # It is only the owner that is away that is still asked.
    again = typed("copriv", "close", run, "--abandon")
    assert (again.returncode, "a: closed" in again.stdout) == (4, False)
    # It was given up once: nothing advises to go on with it.
    without = typed("copriv", "close", run)
    assert (without.returncode, "--resume" in without.stderr) == (4, False)


def test_a_new_study_that_is_stopped_leaves_nothing_and_is_made_by_typing_it_again(
    records, tmp_path, typed, monkeypatch
):
    out = tmp_path / "new"
    table = records.with_name("records.parquet")
    asked = ("copriv", "init", table, "--target", "y", "--owners", "owner", "--split", "--yes")
    with monkeypatch.context() as patch:
        patch.setattr("learner.commands.init.annotated", stop)
        said = typed(*asked, "--out", out)
    assert last_line(said) == "copriv: stopped; type the same command again to start over"
    assert not out.exists()
    assert typed(*asked, "--out", out).returncode == 0
    assert (out / "study.toml").is_file()
    refused = typed(*asked, "--out", out)
    assert "not empty" in refused.stderr
    assert (out / "study.toml").is_file()


# Python 3.12 and later warn of locks, of which a child that only begins a program needs none.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("key", [b"\x03", b"\x04"], ids=["ctrl-c", "ctrl-d"])
def test_a_question_that_is_not_answered_ends_on_a_line_of_its_own(key, tmp_path):
    """ "copriv: stopped" stood behind the question."""
    pd.DataFrame({"a": range(90), "b": range(90)}).to_csv(tmp_path / "t.csv", index=False)
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)
        typed = [sys.executable, "-m", "learner.cli", "init", "t.csv"]
        os.execv(sys.executable, typed)  # noqa: S606 (a child of this test)
    said, until = b"", time.monotonic() + SECONDS
    with contextlib.suppress(OSError):  # the end of what a closed terminal says
        while time.monotonic() < until:
            if select.select([terminal], [], [], 0.5)[0]:
                if not (more := os.read(terminal, 4096)):
                    break
                said += more
            elif b"be predicted" in said:
                # Pressed again if need be: Python hears a signal late that comes between its
                # last instruction and the system's wait for a line.
                os.write(terminal, key)
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status == (130 if key == b"\x03" else 2)
    last = said.decode().strip().splitlines()[-1]
    assert last.startswith("copriv: ")


def test_a_run_that_the_guard_stopped_goes_on_with_yes(records, tmp_path, serve_owner, typed):
    """Also where it was to be resumed whatever happens, as services do."""
    table = read_toml(records)
    for owner in table["owners"]:
        folder = tmp_path / owner["name"]
        folder.mkdir()
        data = {"path": str(tmp_path / "records.parquet"), "columns": ["u", "v", "y"]}
        policy = {"epsilon_per_study": 1, "epsilon_lifetime": 9}
        settings = {"name": owner["name"], "data": data | owner.pop("data"), "policy": policy}
        (folder / "owner.toml").write_text(tomli_w.dumps(settings))
        owner["address"] = f"127.0.0.1:{serve_owner(folder / 'owner.toml').port}"
    table |= {"guard": True, "privacy": {"epsilon": "1/1000000"}}
    del table["profile"]
    records.write_text(tomli_w.dumps(table))
    for named in ((), (records,)):
        run = tmp_path / f"run{len(named)}"
        stopped = typed("copriv", "train", records, "--resume", run)
        assert (stopped.returncode, "go on with --yes" in stopped.stderr) == (2, True)
        went_on = typed("copriv", "train", *named, "--resume", run, "--yes")
        assert went_on.returncode == 0, went_on.stderr
