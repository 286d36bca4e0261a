"""The end of a study: what was not spent comes back, whoever closes, and the log tells it."""

import json
import logging
from contextlib import closing
from fractions import Fraction

import tomli_w

from common.toml_files import read_toml
from learner.training.closing import note_given_up
from learner.training.journal import Journal
from owner.ledger import Ledger
from owner.ledger_reading import read_studies, verify_ledger

NAMES = ("owner-a", "owner-b")


def write_study(folder, running):
    path = folder / "study.toml"
    study = {
        "name": "spring",
        "profile": "published",
        "seed": 4,
        "features": {"map": str(folder / "owner-a" / "features.json")},
        "model": {"theta_max": 2.0},
        "algorithm": {"horizon": 8, "rho": 1e-3},
        "privacy": {"epsilon": 1},
        "network": {"deadline": 5, "patience": 5, "retries": 0},
        "owners": [
            {"name": name, "address": f"127.0.0.1:{one.port}"} for name, one in running.items()
        ],
    }
    path.write_text(tomli_w.dumps(study))
    return path


def held(folder, name):
    _, (entry,) = read_studies(folder / name / "ledger.sqlite")
    return entry.epsilon_held


def test_an_owner_that_was_away_at_the_end_gets_its_unused_epsilon_back_later(
    owner_folder, serve_owner, typed, monkeypatch, tmp_path
):
    files = {name: owner_folder(name, seed=i) for i, name in enumerate(NAMES)}
    running = {name: serve_owner(path) for name, path in files.items()}
    study, run = write_study(tmp_path, running), tmp_path / "run"
    # The second owner dies as the study ends.
    from learner.training import study as training  # noqa: PLC0415

    end = training.end_study

    def dies_first(*arguments, **named):
        running["owner-b"].drain(grace=0)
        return end(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(training, "end_study", dies_first)
        trained = typed("copriv", "train", study, "--out", run)
    assert trained.returncode == 0, trained.stderr
    assert "owner-b: away at the end" in trained.stdout
    assert f"copriv close {run}" in " ".join(trained.stdout.split())
    assert held(tmp_path, "owner-a") < 1
    assert held(tmp_path, "owner-b") == 1
    still_away = typed("copriv", "close", run)
    assert still_away.returncode == 4
    assert "not closed: owner owner-b" in still_away.stderr
    settings = read_toml(files["owner-b"])
    settings["listen"] = f"127.0.0.1:{running['owner-b'].port}"
    files["owner-b"].write_text(tomli_w.dumps(settings))
    serve_owner(files["owner-b"])
    closed = typed("copriv", "close", run)
    assert closed.returncode == 0, closed.stderr
    assert "owner-b: closed" in closed.stdout
    assert "owner-a" not in closed.stdout
    assert held(tmp_path, "owner-b") < 1
    assert verify_ledger(tmp_path / "owner-b" / "ledger.sqlite") == []
    again = typed("copriv", "close", run)
    assert (again.returncode, "no owner holds epsilon" in again.stdout) == (0, True)


def test_owners_that_closed_before_a_kill_are_not_told_to_hold_epsilon(
    owner_folder, serve_owner, typed, monkeypatch, tmp_path
):
    running = {name: serve_owner(owner_folder(name, seed=i)) for i, name in enumerate(NAMES)}
    study, run = write_study(tmp_path, running), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("learner.commands.run_start._write_results", _stops)
        assert typed("copriv", "train", study, "--out", run).returncode == 2
    for owner in running.values():
        owner.drain(grace=0)
    resumed = typed("copriv", "train", "--resume", run)
    assert resumed.returncode == 0, resumed.stderr
    assert "away at the end" not in resumed.stdout
    assert "no owner holds epsilon" in typed("copriv", "close", run).stdout


def test_an_unfinished_run_is_closed_only_when_that_is_typed(
    owner_folder, serve_owner, typed, monkeypatch, tmp_path
):
    running = {"owner-a": serve_owner(owner_folder("owner-a"))}
    study, run = write_study(tmp_path, running), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("learner.commands.run_start._write_results", _stops)
        assert typed("copriv", "train", study, "--out", run).returncode == 2
    early = typed("copriv", "close", run)
    assert early.returncode == 2
    assert "has not finished" in early.stderr
    assert "--abandon" in early.stderr
    reported = typed("copriv", "report", run)
    assert reported.returncode == 2
    assert f"the run has not finished; continue it with copriv train --resume {run}" in (
        reported.stderr
    )
    with closing(Journal(run / "journal.sqlite")) as journal:
        note_given_up(journal)
    resumed = typed("copriv", "train", "--resume", run)
    assert resumed.returncode == 2
    assert "the run was given up with copriv close --abandon, and cannot go on" in resumed.stderr
    assert typed("copriv", "close", run, "--abandon").returncode == 0
    nothing = typed("copriv", "close", tmp_path / "nowhere")
    assert nothing.returncode == 2
    assert nothing.stderr.endswith("no run was started there; give the folder of a run\n")


def test_a_run_whose_model_leaves_the_box_says_what_to_set_and_how_epsilon_comes_back(
    owner_folder, serve_owner, typed, tmp_path
):
    """Its owners would refuse to answer there, so it can never go on."""
    running = {name: serve_owner(owner_folder(name, seed=i)) for i, name in enumerate(NAMES)}
    study, run = write_study(tmp_path, running), tmp_path / "run"
    printed = ("algorithm.name=synchronous-1", "algorithm.rule=printed", "algorithm.rho=1e6")
    changes = [word for each in printed for word in ("--set", each)]
    trained = typed("copriv", "train", study, "--out", run, *changes)
    assert trained.returncode == 2
    assert "the model has left the box of half side 2 (model.theta_max)" in trained.stderr
    assert 'algorithm.rule = "corrected"' in trained.stderr
    assert f"reserve for this one comes back by `copriv close {run} --abandon`" in trained.stderr
    assert "Traceback" not in trained.stderr
    assert held(tmp_path, "owner-a") == 1
    assert typed("copriv", "close", run, "--abandon").returncode == 0
    assert held(tmp_path, "owner-a") < 1


def test_a_folder_without_a_journal_is_not_taken_for_a_run(
    owner_folder, serve_owner, typed, tmp_path
):
    """A study's own folder got an empty journal, and a run whose journal was lost a second one."""
    running = {"owner-a": serve_owner(owner_folder("owner-a"))}
    study, run = write_study(tmp_path, running), tmp_path / "run"
    before = sorted(path.name for path in tmp_path.iterdir())
    for command in (
        ("copriv", "close", tmp_path),
        ("copriv", "close", tmp_path, "--abandon"),
        ("copriv", "train", "--resume", tmp_path),
        ("copriv", "train", study, "--resume", tmp_path),
    ):
        said = typed(*command)
        assert said.returncode == 2
        assert "but no journal.sqlite: it is not the folder of a run" in said.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert typed("copriv", "train", study, "--out", run).returncode == 0
    (run / "journal.sqlite").unlink()
    assert typed("copriv", "train", "--resume", run).returncode == 0
    lost = typed("copriv", "close", run)
    assert lost.returncode == 2
    assert "journal.sqlite, which says who may hold epsilon, is gone" in lost.stderr
    assert not (run / "journal.sqlite").exists()


def _stops(*_):
    from common.errors import InputError  # noqa: PLC0415

    raise InputError("no room")


def test_the_officer_closes_a_study_whose_learner_does_not(
    owner_folder, serve_owner, make_terms, typed
):
    path = owner_folder()
    ledger = path.parent / "ledger.sqlite"
    running = serve_owner(path)
    running.owner.enroll(make_terms(), learner="ann")
    serving = typed("copriv-owner", "ledger", "close", ledger, "study-1")
    assert serving.returncode == 2
    assert "another process holds this ledger; stop it first" in serving.stderr
    running.owner.stop()
    unknown = typed("copriv-owner", "ledger", "close", ledger, "study-9")
    assert unknown.returncode == 2
    assert "no study 'study-9' was enrolled; give one of the open ones: study-1" in unknown.stderr
    closed = typed("copriv-owner", "ledger", "close", ledger, "study-1")
    assert closed.returncode == 0, closed.stderr
    assert "0 of 10 responses spent epsilon 0, 1 is back" in closed.stdout
    again = typed("copriv-owner", "ledger", "close", ledger, "study-1")
    assert (again.returncode, "was closed at" in again.stdout) == (0, True)
    unknown = typed("copriv-owner", "ledger", "close", ledger, "study-9")
    assert (unknown.returncode, "none is open, so there is nothing" in unknown.stderr) == (2, True)
    _, (entry,) = read_studies(ledger)
    assert entry.epsilon_held == 0
    assert verify_ledger(ledger) == []
    missing = typed("copriv-owner", "ledger", "close", ledger.with_name("none"), "study-1")
    assert missing.returncode == 2
    assert not ledger.with_name("none").exists()


def test_an_owners_log_tells_each_enrolment_and_closing(
    owner_folder, serve_owner, make_terms, caplog
):
    running = serve_owner(owner_folder())
    # Its start is told, too, where a command in this process has set what is.
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="copriv.owner"):
        for _ in range(2):
            running.owner.enroll(make_terms(epsilon=Fraction(1, 3)), learner="ann")
        for _ in range(2):
            running.owner.close("study-1", learner="ann")
    assert [record.getMessage() for record in caplog.records] == [
        "enrolled study study-1 of learner ann: epsilon 1/3 for 10 responses",
        "closed study study-1 of learner ann: 0 of 10 responses spent epsilon 0, 1/3 is back in "
        "the lifetime budget",
    ]
    # One learner, one name, and one response.
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="copriv.owner"):
        running.owner.enroll(make_terms(study_id="study-2", responses=1), learner="learner")
        running.owner.close("study-2", learner="learner")
    enrolled, closed = (record.getMessage() for record in caplog.records)
    assert enrolled.startswith("enrolled study study-2 of its learner: epsilon ")
    assert enrolled.endswith(" for 1 response")
    assert closed.startswith("closed study study-2 of its learner: 0 of 1 responses")


def test_an_owners_command_logs_at_level_info(typed, tmp_path, monkeypatch):
    levels = []
    monkeypatch.setattr(
        "owner.cli.start_logging", lambda form, level=logging.WARNING: levels.append(level)
    )
    Ledger(tmp_path / "ledger.sqlite", owner="a", fingerprint="f").close()
    assert typed("copriv-owner", "ledger", "verify", tmp_path / "ledger.sqlite").returncode == 0
    assert json.dumps(levels) == json.dumps([logging.INFO])
