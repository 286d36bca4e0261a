"""A path that the system does not look at is one sentence, wherever it is typed."""

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from common.errors import InputError
from common.typed_paths import A_FOLDER
from learner.cli import cli
from owner.cli import cli as owner_cli

LONG = "x" * 300
STUDY = """name = "s"
features = { public = { path = "public.csv" }, target = "b" }
model = { theta_max = 1 }
privacy = { epsilon = 1 }
owners = [{ name = "bank", address = "127.0.0.1:1" }]

[tls]
ca = "certs/learner/ca.pem"
certificate = "certs/learner/certificate.pem"
key = "certs/learner/key.pem"
"""
TYPED = {
    cli: (
        *(f"simulate {LONG}", f"init {LONG}.csv --target a --yes", f"report {LONG}"),
        *(f"predict run --data {LONG} --out p.csv", f"predict run --data a.csv --out {LONG}.csv"),
        *(f"evaluate {LONG} --data a.csv", f"export run --to sql --out {LONG}", f"close {LONG}"),
        *(f"train --resume {LONG}", f"forecast s.toml --out {LONG}", f"sweep s.toml --out {LONG}"),
        *(f"certs --owner a --out {LONG}", f"invite s.toml --out {LONG}", f"admit {LONG}"),
        *(f"doctor {LONG}", f"check {LONG}", f"reproduce A4 --data {LONG}"),
        *(f"reproduce A4 --loans {LONG}", f"features fit s.toml --out {LONG}"),
    ),
    owner_cli: (
        *(f"init {LONG}.csv --yes", f"serve {LONG}", f"doctor {LONG}", f"ledger show {LONG}"),
        *(f"check {LONG}", f"join {LONG} --data a.csv", f"join a --data {LONG}"),
        *(f"token a --out {LONG}", f"evaluate {LONG} run", f"personalise {LONG} run"),
    ),
}


@pytest.mark.parametrize(
    ("root", "typed"), [(root, typed) for root, all_typed in TYPED.items() for typed in all_typed]
)
def test_a_name_that_is_too_long_is_one_sentence(root, typed, tmp_path, monkeypatch):
    """It was a traceback of every command."""
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(root, typed.split())
    assert said.exit_code == 2 or isinstance(said.exception, Exception)
    assert not isinstance(said.exception, OSError), said.exception
    assert "Traceback" not in said.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("root", "typed"),
    [
        (cli, "init NONE --target a --yes"),
        (cli, "predict run --data NONE --out p.csv"),
        (cli, "simulate study.toml --data NONE"),
        (cli, "simulate study.toml --out NONE"),
        (cli, "forecast study.toml --public NONE"),
        (cli, "train --resume NONE"),
        (owner_cli, "init NONE --yes"),
        (owner_cli, "join a --data NONE"),
        (owner_cli, "check owner.toml --public NONE"),
    ],
)
def test_a_path_of_no_letters_is_one_sentence(root, typed, tmp_path, monkeypatch):
    """A shell's variable without a value was a traceback, or every table of the folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("study.toml", "owner.toml", "a"):
        Path(name).write_text(STUDY)
    Path("a.csv").write_text("a,b\n1,2\n")
    said = CliRunner().invoke(root, ["" if word == "NONE" else word for word in typed.split()])
    told = said.output if said.exception is None else f"{said.output} {said.exception}"
    assert "got '', as of a shell's variable that has no value; give a path" in told


@pytest.mark.parametrize(
    ("root", "typed"),
    [
        (cli, "simulate STUDY --data loop --out run"),
        (cli, "sweep STUDY --data loop --out run"),
        (cli, "forecast STUDY --public loop --out run"),
        (cli, "invite STUDY --certs loop --out run"),
        (owner_cli, "join INVITATION --data loop --out run"),
    ],
)
def test_links_that_go_in_a_circle_are_one_sentence(root, typed, tmp_path, monkeypatch):
    """It was a traceback of commands that say where a table is."""
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("back")
    Path("back").symlink_to("loop")
    rows = "".join(f"{i % 7},{i % 7 + i % 3}\n" for i in range(60))
    Path("public.csv").write_text(f"a,b\n{rows}")
    Path("study.toml").write_text(STUDY)
    invite = ["invite", "study.toml", "--out", "files", "--certs", "certs"]
    assert CliRunner().invoke(cli, invite, catch_exceptions=False).exit_code == 0
    typed = typed.replace("STUDY", "study.toml").replace("INVITATION", "files/bank.invitation")
    said = CliRunner().invoke(root, typed.split())
    assert isinstance(said.exception, InputError), said.exception
    assert not Path("run").exists()


def test_a_folder_that_may_not_be_looked_into_is_named(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(
        click.BadParameter,
        match=re.escape("runs/a: Permission denied; type this as the user that it belongs to"),
    ):
        A_FOLDER.convert("runs/a", None, None)
