"""Sweeps keep what they computed, record what failed, and go on."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from waiting import is_there, wait_until

from common.errors import DoubtWarning, InputError
from learner.simulated.sweeps import Workers, _checksum, holds_results, run_sweep

ALONE = Workers(jobs=1)


def work(x, log):
    with open(log, "a") as file:
        file.write(f"{x} {os.getpid()}\n")
    if x < 0:
        raise ValueError(f"{x} is below 0")
    return {"square": x * x}


def calls(log):
    return sorted(line.split()[0] for line in log.read_text().splitlines())


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep_computes_every_point_once_and_records_failures(tmp_path, jobs):
    log, told = tmp_path / "log", []
    points = {f"p{x}": (x, str(log)) for x in (1, 2, -3, 4)}
    sweep = run_sweep(
        work, points, folder=tmp_path / "kept", workers=Workers(jobs=jobs), on_done=told.append
    )
    assert sweep.results == {"p1": {"square": 1}, "p2": {"square": 4}, "p4": {"square": 16}}
    assert list(sweep.results) == ["p1", "p2", "p4"]
    assert sweep.failures["p-3"].error == "ValueError: -3 is below 0"
    assert "below 0" in json.loads((tmp_path / "kept/p-3.json").read_text())["error"]
    assert told[0] == 0
    assert told[-1] == 4
    again = run_sweep(work, points, folder=tmp_path / "kept", workers=Workers(jobs=jobs))
    assert again.results == sweep.results
    assert calls(log) == sorted(["1", "2", "4", "-3", "-3"])  # only the failed one again


def test_a_point_of_other_arguments_is_computed_anew(tmp_path):
    log = tmp_path / "log"
    run_sweep(work, {"p": (2, str(log))}, folder=tmp_path / "kept", workers=ALONE)
    sweep = run_sweep(work, {"p": (3, str(log))}, folder=tmp_path / "kept", workers=ALONE)
    assert sweep.results["p"] == {"square": 9}


@pytest.mark.parametrize("wrote", ["0.0.1", None])
def test_points_of_another_version_are_computed_anew_with_one_line(tmp_path, wrote):
    points, folder = {x: (int(x), str(tmp_path / "log")) for x in "12"}, tmp_path / "kept"
    first = run_sweep(work, points, folder=folder, workers=ALONE)
    texts = {path: path.read_text() for path in folder.iterdir()}
    theirs = {"version": wrote, "result": {"square": 5}, "checksum": _checksum({"square": 5})}
    for path, text in texts.items():
        path.write_text(json.dumps(json.loads(text) | theirs))
    with pytest.warns(DoubtWarning, match="another version of copriv") as warned:
        again = run_sweep(work, points, folder=folder, workers=ALONE)
    assert len(warned) == 1
    assert again == first
    assert {path: path.read_text() for path in folder.iterdir()} == texts


@pytest.mark.parametrize("damaged", [b'{"result": {"squ', b"", b"[]", b"\xff", b"[" * 100_000])
def test_a_damaged_file_is_computed_anew(tmp_path, damaged):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/p.json").write_bytes(damaged)
    sweep = run_sweep(
        work, {"p": (2, str(tmp_path / "log"))}, folder=tmp_path / "kept", workers=ALONE
    )
    assert sweep.results["p"] == {"square": 4}


@pytest.mark.parametrize("changed", [None, {}, {"square": [4]}, {"square": 5}, 10**400])
def test_a_result_that_was_changed_is_computed_anew(tmp_path, changed):
    points, path = {"p": (2, str(tmp_path / "log"))}, tmp_path / "kept/p.json"
    run_sweep(work, points, folder=path.parent, workers=ALONE)
    kept = path.read_text()
    path.write_text(json.dumps(json.loads(kept) | {"result": changed}))
    assert run_sweep(work, points, folder=path.parent, workers=ALONE).results["p"] == {"square": 4}
    assert path.read_text() == kept
    assert len(calls(tmp_path / "log")) == 2


def test_a_kept_result_that_the_work_cannot_have_returned_is_computed_anew(tmp_path):
    points, folder = {"p": (2, str(tmp_path / "log"))}, tmp_path / "kept"

    def read(kept, *arguments):
        assert arguments == points["p"]
        return {"square": float(kept["square"])}

    def again():
        found = run_sweep(work, points, folder=folder, workers=ALONE, read=read)
        return found.results["p"]["square"]

    run_sweep(work, points, folder=folder, workers=ALONE)
    assert isinstance(again(), float)
    kept = json.loads((folder / "p.json").read_text())
    for result in ({}, {"square": "x"}, {"square": 10**400}, [], None):
        changed = kept | {"result": result, "checksum": _checksum(result)}
        (folder / "p.json").write_text(json.dumps(changed))
        assert isinstance(again(), int)


def ends(name):
    if name == "ends":
        time.sleep(1)  # the other one is done by then
        os.kill(os.getpid(), signal.SIGKILL)
    return {"name": name}


def test_a_process_that_is_killed_is_one_sentence_and_what_was_computed_is_kept(tmp_path):
    """As where memory runs out."""
    with pytest.raises(InputError, match=r"--jobs: a process that computed was ended, .* again$"):
        run_sweep(ends, {"a": ("a",), "ends": ("ends",)}, folder=tmp_path, workers=Workers(jobs=2))
    assert "result" in json.loads((tmp_path / "a.json").read_text())


# Two points whose processes never end, until this one is killed.
KILLED = """
import os, sys, time
from pathlib import Path
from learner.simulated.sweeps import Workers, run_sweep
def endless(folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)
run_sweep(endless, {"a": (sys.argv[1],), "b": (sys.argv[1],)}, workers=Workers(jobs=2))
"""


def test_who_is_killed_leaves_no_process_that_computes(tmp_path):
    sweep = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)])
    try:
        wait_until(lambda: len(os.listdir(tmp_path)) == 2)
    finally:
        sweep.kill()
        sweep.wait()
    for process in os.listdir(tmp_path):
        wait_until(lambda process=process: not is_there(process))


def begun_and_stopped(**_):
    """A stop comes as computing begins; what a thread of joblib's needs is gone when it begins."""

    def results():
        try:
            yield
        finally:
            late = threading.Thread(target=lambda: {}["what was taken from it"])
            late.start()
            late.join()

    def begin(calls):
        begun = results()
        next(begun)
        signal.raise_signal(signal.SIGINT)
        return begun

    return begin


def test_a_thread_that_fails_as_a_sweep_is_stopped_says_nothing(tmp_path, monkeypatch):
    hook = threading.excepthook
    monkeypatch.setattr("joblib.Parallel", begun_and_stopped)
    points = {f"p{x}": (x, str(tmp_path / "log")) for x in (1, 2)}
    with pytest.raises(KeyboardInterrupt):
        run_sweep(work, points, workers=Workers(jobs=2))
    assert threading.excepthook is hook


def test_a_cluster_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="no Dask scheduler answers there"):
        run_sweep(
            work, {"p": (1, str(tmp_path / "log"))}, workers=Workers(cluster="nonsense://nowhere:1")
        )


@pytest.mark.parametrize("limit", ["abc", "", "2.5"])
def test_a_limit_of_processes_that_is_no_number_is_one_sentence(tmp_path, monkeypatch, limit):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", limit)
    with pytest.raises(InputError, match=f"LOKY_MAX_CPU_COUNT='{limit}': expected a whole number"):
        run_sweep(
            work, {"p": (1, str(tmp_path / "log"))}, folder=tmp_path / "kept", workers=Workers()
        )
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_file_among_points_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.json")
    (tmp_path / "b.json").symlink_to("/dev/zero")
    assert not holds_results(tmp_path)
    (tmp_path / "c.json").write_text('{"result": {}}')
    assert holds_results(tmp_path)
