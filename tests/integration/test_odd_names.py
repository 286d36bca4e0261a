"""Columns may be called whatever they are called: no command reads a name as its own signs."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from forked import run

ODD = "y[/b] :smile:"


def test_a_target_that_looks_like_markup_is_learnt_reported_and_judged(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(900, 3)).round(3), columns=["a", "[bold]b", ODD])
    data, made, kept = tmp_path / "stays.csv", tmp_path / "made", tmp_path / "run"
    table.to_csv(data, index=False)
    owner = tmp_path / "owner.toml"
    commands = (
        ("copriv", "init", data, "--target", ODD, "--owners", "2", "--yes", "--out", made),
        ("copriv", "simulate", made / "study.toml", "--out", kept, "--in-memory", "--yes"),
        ("copriv", "report", kept),
        ("copriv", "evaluate", kept, "--data", data),
        ("copriv-owner", "init", data, "--name", "a", "--yes", "--out", owner),
        ("copriv-owner", "evaluate", owner, kept),
    )
    told = []
    for name, *typed in commands:
        done = run(name, *typed)
        assert done.returncode == 0, (typed, done.stderr)
        told.append(done.stdout)
    assert ODD in told[2]
    assert ODD in told[3]


# What a terminal would take for its own: red text, and a line that seems to be another one.
HOSTILE = "y\x1b[31mRED\nall is well"


def is_plain(text):
    """Whether it is lines of text, and nothing that moves a cursor, under a name that is known."""
    return all(line.isprintable() for line in text.split("\n")) and "\nall is well" not in text


def test_a_name_that_would_move_a_cursor_reaches_no_terminal_and_no_page(
    tmp_path, typed, monkeypatch
):
    # As on a terminal: into a pipe click lets no such signs pass.
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_, **__: False)
    rng = np.random.default_rng(0)
    names = ["a\x1b[2J", "b\x07", HOSTILE]
    table = pd.DataFrame(rng.normal(size=(900, 3)).round(3), columns=names)
    data, made, kept = tmp_path / "stays.csv", tmp_path / "made", tmp_path / "run"
    table.to_csv(data, index=False)
    owner, page = tmp_path / "owner.toml", tmp_path / "comparison.html"
    again = tmp_path / "again\x1b[31m\nall is well"
    commands = (
        ("copriv", "init", data, "--owners", "2", "--yes", "--out", made),
        ("copriv", "init", data, "--target", HOSTILE, "--owners", "2", "--yes", "--out", made),
        ("copriv", "simulate", made / "study.toml", "--out", kept, "--in-memory", "--yes"),
        ("copriv", "report", kept),
        ("copriv", "report", kept, again, "--out", page),
        ("copriv", "evaluate", kept, "--data", data),
        ("copriv-owner", "init", data, "--name", "a", "--yes", "--out", owner),
        ("copriv-owner", "check", owner, "--features", kept / "features.json"),
        ("copriv-owner", "evaluate", owner, kept),
    )
    told = []
    for number, (name, *given) in enumerate(commands):
        if again in given:
            shutil.copytree(kept, again)
        said = typed(name, *given)
        told.append(said.stdout)
        # The first says which columns there are.
        assert said.returncode == (0 if number else 2), (given, said.stderr)
        assert is_plain(said.stdout + said.stderr), given
    for index in (3, 5):
        assert "y [31mRED all is well" in told[index]
    for path in (kept / "report.html", kept / "MODEL_CARD.md", page):
        assert "\x1b" not in path.read_text()


@pytest.mark.parametrize(
    ("said_of_it", "words"),
    [
        ("[features.missing]\na = [{}]", "stays.csv has y [31mRED all is well"),
        ("[features.public.where]\na = {}", "rows :, a = y [31mRED all is well"),
    ],
)
def test_settings_from_elsewhere_say_nothing_that_would_move_a_cursor(
    said_of_it, words, tmp_path, typed, monkeypatch
):
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_, **__: False)
    pd.DataFrame({"a": range(60), "b": range(60)}).to_csv(tmp_path / "stays.csv", index=False)
    study = tmp_path / "study.toml"
    study.write_text(
        'name = "s"\nmodel = { theta_max = 1 }\nprivacy = { epsilon = 1 }\n'
        'owners = [{ name = "a", data = { rows = ":9" } }]\n[data]\npath = "stays.csv"\n'
        '[features]\ntarget = "b"\n[features.public]\nrows = ":"\n'
        + said_of_it.format(json.dumps(HOSTILE))
    )
    said = typed("copriv", "features", "fit", study, "--out", tmp_path / "map.json")
    assert words in said.stderr
    assert is_plain(said.stdout + said.stderr)


def test_what_is_typed_from_elsewhere_moves_no_cursor(typed, monkeypatch):
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_, **__: False)
    said = typed("copriv", "settings", "y\x1b[31mRED" + "x" * 100_000)
    assert is_plain(said.stderr)
    assert len(said.stderr) < 30_000


def test_a_summary_from_elsewhere_says_nothing_that_would_move_a_cursor(
    summary_table, tmp_path, typed
):
    forecast = {"forecast_relative_fitness": 0.1, "low": 0.1, "high": 0.2}
    quality = {
        "measure": "rmse",
        "target": HOSTILE,
        "on": "public",
        "records": 9,
        "guess": 2.0,
        "common": {"value": 1.0},
        "intervals": HOSTILE,
    }
    told = summary_table | {
        "quality": quality,
        "way": HOSTILE,
        "ways": {HOSTILE: forecast},
        "forecast_relative_fitness_public": 0.3,
        "validation_missing": {"south": HOSTILE},
    }
    (tmp_path / "summary.json").write_text(json.dumps(told))
    said = typed("copriv", "report", tmp_path)
    assert said.returncode == 0, said.stderr
    assert is_plain(said.stdout)
    assert said.stdout.count("y [31mRED all is well") >= 3
    assert "\x1b" not in (tmp_path / "report.html").read_text()
    for changes in ({"validation_missing": {HOSTILE: "away"}}, {"way": None}):
        (tmp_path / "summary.json").write_text(json.dumps(told | changes))
        said = typed("copriv", "report", tmp_path)
        assert said.returncode == 2
        assert is_plain(said.stderr)


LONG = "a long name " * 80


def test_a_long_name_hides_nothing_of_what_is_said_of_it(tmp_path, typed):
    """Neither a line without an end nor one that is cut before it says what is wrong."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.integers(0, 99, 900), LONG: rng.integers(0, 4, 900)})
    table[f"{LONG}1"], table[f"{LONG}2"] = "same", rng.permutation(900)
    table[f"{LONG}3\x1b[31m"] = [f"{i % 90 + 1}.{i:03}" if i % 9 else "7" for i in range(900)]
    table["y"] = rng.integers(0, 30, 900)
    data, made, owner = tmp_path / "stays.csv", tmp_path / "made", tmp_path / "owner.toml"
    table.to_csv(data, index=False)
    arguments = ("--target", "y", "--owners", "3", "--yes", "--out", made)
    said = typed("copriv", "init", data, *arguments)
    assert said.returncode == 0, said.stderr
    for words in (
        "few whole numbers, taken for amounts",
        "left out: it says the same of every record",
        "left out: it names records (an identifier)",
        "are read as decimals; if the point groups thousands, say so",
    ):
        assert words in said.stdout
    assert max(map(len, said.stdout.splitlines())) < 1000
    assert said.stdout.replace("\n", " ").isprintable()
    said = typed("copriv-owner", "init", data, "--name", "a", "--yes", "--out", owner)
    assert said.returncode == 0, said.stderr
    assert "not shown to learners" in said.stdout
    assert "are read as decimals; if the point groups thousands, say so" in said.stdout
    assert max(map(len, said.stdout.splitlines())) < 1000
    longer = LONG * 100
    data.write_text(f"{longer},y,{longer}\n1,2,3\n")
    said = typed("copriv", "init", data, *arguments[:-1], tmp_path / "another")
    assert said.returncode == 2
    assert "occurs twice; rename one" in said.stderr
    assert len(said.stderr) < 1000
