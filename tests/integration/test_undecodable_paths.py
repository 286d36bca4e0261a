"""A path that is not UTF-8 is one sentence, and nothing is made."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from common.config import Settings, load_settings, with_absolute_paths
from common.errors import InputError
from common.files import write_or_refuse
from common.places import Place, SecretPlace
from learner import simulate

BAD = os.fsdecode(b"\xff\xfebad")
NAMED = r"\xff\xfebad"


class Example(Settings):
    """Settings with paths."""

    path: Place | None = None
    secret: SecretPlace | None = None


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a study, and in it another one whose name is not UTF-8."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(600, 3)).round(3), columns=["a", "b", "y"])
    table["y"] = (table["a"] + 0.1 * table["y"]).round(3)
    (tmp_path / BAD).mkdir()
    for folder in (tmp_path, tmp_path / BAD):
        table.to_csv(folder / "stays.csv", index=False)
        (folder / "study.toml").write_text(
            'name = "s"\nprofile = "published"\n[data]\npath = "stays.csv"\n[features]\n'
            'public = { rows = "-60:" }\ntarget = "y"\n[model]\ntheta_max = 2\n[algorithm]\n'
            'horizon = 4\nrho = 1\n[privacy]\nepsilon = 1\n[[owners]]\nname = "a"\n'
            'data = { rows = ":540" }\naddress = "127.0.0.1:1"\n'
        )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def everything(folder):
    return set(folder.rglob("*"))


@pytest.mark.parametrize(
    "command",
    [
        "copriv init BAD/stays.csv --target y --owners 2 --yes --out made",
        "copriv init stays.csv --target y --owners 2 --yes --split --out BAD/made",
        "copriv-owner init BAD/stays.csv --name a --yes --out OWNER.toml",
        "copriv-owner init stays.csv --name a --yes --out BAD/OWNER.toml",
        "copriv simulate BAD/study.toml --in-memory --out run",
        "copriv simulate study.toml --in-memory --data BAD/stays.csv --out run",
        "copriv simulate study.toml --in-memory --set data.path=BAD/stays.csv --out run",
        "copriv train BAD/study.toml --out run",
        "copriv train study.toml --data BAD/stays.csv --out run",
        "copriv sweep study.toml --grid privacy.epsilon=1 --data BAD/stays.csv --out swept",
        "copriv report BAD/run run",
    ],
)
def test_a_typed_path_that_is_not_utf8_is_one_sentence_and_leaves_nothing(place, typed, command):
    before = everything(place)
    said = typed(*command.replace("BAD", BAD).split())
    assert said.returncode == 2
    (sentence,) = said.stderr.splitlines()
    assert NAMED in sentence
    assert sentence.endswith("expected a path in UTF-8; rename the file or folder")
    assert everything(place) == before


@pytest.mark.parametrize(("locale", "is_at_fault"), [("C", True), ("C.UTF-8", False)])
def test_a_locale_that_knows_no_letters_beyond_ascii_is_the_fault(place, locale, is_at_fault):
    said = subprocess.run(
        [sys.executable, "-m", "learner.cli", "init", "st\u00e4dte.csv", "--yes"],
        env=os.environ | {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert said.returncode == 2
    told = "'st\u00e4dte.csv': expected a locale that takes letters beyond ASCII"
    assert (told in said.stderr) == is_at_fault
    assert len(said.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["simulate study.toml --in-memory", "train study.toml"])
def test_the_folder_that_we_are_in_counts_as_well(place, typed, monkeypatch, command):
    monkeypatch.chdir(place / BAD)
    before = everything(place)
    said = typed("copriv", *command.split())
    assert said.returncode == 2
    assert f"{NAMED}/stays.csv': expected a path in UTF-8" in said.stderr
    assert everything(place) == before


def test_from_python_it_is_the_same_sentence(place):
    before = everything(place)
    with pytest.raises(InputError, match=r"data\.path: got .*, expected a path in UTF-8; rename"):
        simulate("study.toml", data=Path(BAD) / "stays.csv", out="run")
    assert everything(place) == before


def test_where_a_link_leads_is_looked_at_as_settings_are_read(place):
    (place / "link").symlink_to(BAD)
    for key, value in (("path", "link/x"), ("secret", "file:link/x")):
        (place / "a.toml").write_text(f'{key} = "{value}"')
        with pytest.raises(InputError, match="expected a path in UTF-8"):
            load_settings(Example, place / "a.toml")
        with pytest.raises(InputError, match="expected a path in UTF-8"):
            with_absolute_paths(Example.model_validate({key: value}), place)


def test_what_cannot_be_written_as_utf8_is_one_sentence_and_leaves_nothing(place):
    before = everything(place)
    with pytest.raises(InputError, match=r"page\.html: cannot be written \(a name in it is not"):
        write_or_refuse(place / "page.html", f"about {BAD}")
    assert everything(place) == before
