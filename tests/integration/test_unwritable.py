"""A folder that cannot be written is one sentence, whatever was to be written there."""

import errno
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from forked import run as run_command

from common.errors import DiskError, DoubtWarning, InputError
from common.files import ANOTHER_USERS
from learner.cli import cli
from owner.cli import cli as owner_cli

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def deny(monkeypatch):
    """Let nobody make a file in a folder, not even who may write everywhere."""
    system_open = os.open

    def start(folder):
        def refusing(path, flags, *rest, **more):
            if flags & os.O_CREAT and Path(path).absolute().is_relative_to(folder.absolute()):
                raise PermissionError(13, "Permission denied", str(path))
            return system_open(path, flags, *rest, **more)

        monkeypatch.setattr(os, "open", refusing)

    return start


def refused(*typed):
    """The sentence of a command that ends with status 2."""
    result = CliRunner().invoke(cli, [str(word) for word in typed])
    assert isinstance(result.exception, InputError), result.exception
    assert "\n" not in str(result.exception)
    return str(result.exception)


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A study of two owners in the current folder."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(900, 3)), columns=["a", "b", "y"])
    table.round(3).to_csv("stays.csv", index=False)
    typed = ["init", "stays.csv", "--target", "y", "--owners", "2", "--yes", "--out", "made"]
    assert CliRunner().invoke(cli, typed).exit_code == 0
    return tmp_path / "made" / "study.toml"


@pytest.mark.parametrize("more", [[], ["--split"]])
def test_init_says_that_its_folder_cannot_be_written(study, deny, more):
    deny(study.parent.parent / "new")
    typed = ("init", "stays.csv", "--target", "y", "--owners", "2", "--yes", "--out", "new", *more)
    assert "cannot be written (Permission denied); check" in refused(*typed)


@pytest.mark.parametrize(
    "command",
    [
        ("simulate", "--yes"),
        ("simulate", "--each-learns", "--yes"),
        ("simulate", "--in-memory", "--yes"),
        ("sweep", "--grid", "privacy.epsilon=1,2", "--seeds", "1"),
    ],
)
def test_a_run_says_that_its_folder_cannot_be_written(study, deny, command):
    name, *more = command
    deny(study.parent.parent / "run")
    assert "cannot be written (Permission denied); check" in refused(
        name, study, "--out", "run", *more
    )


def with_addresses(study):
    ports = iter((1, 2))
    return re.sub(
        r"^\[\[owners\]\]$",
        lambda head: f'{head[0]}\naddress = "127.0.0.1:{next(ports)}"',
        study,
        flags=re.MULTILINE,
    )


def test_training_says_that_its_folder_cannot_be_written(study, deny):
    study.write_text(with_addresses(study.read_text()))
    (study.parent.parent / "file").touch()
    assert "file" in refused("train", study, "--resume", "file/run")
    deny(study.parent.parent / "run")
    told = refused("train", study, "--resume", "run")
    assert f"the run folder cannot be written (Permission denied); {ANOTHER_USERS}" in told


@pytest.mark.filterwarnings("ignore:this model is worse than the public:UserWarning")
def test_a_table_is_not_overwritten_by_its_predictions(study):
    run = study.parent.parent / "run"
    done = run_command("copriv", "simulate", study, "--out", run, "--yes", "--in-memory")
    assert done.returncode == 0, done.stderr
    before = Path("stays.csv").read_bytes()
    os.link("stays.csv", "same.csv")
    for out in ("stays.csv", "./stays.csv", "same.csv"):
        said = refused("predict", run, "--data", "stays.csv", "--out", out)
        assert "is the table itself" in said
    assert Path("stays.csv").read_bytes() == before
    # Nor is another table; predictions of before are.
    shutil.copy("stays.csv", "other.csv")
    said = refused("predict", run, "--data", "stays.csv", "--out", "other.csv")
    assert "has no column 'prediction', so it is left as it is" in said
    assert Path("other.csv").read_bytes() == before
    for _ in range(2):
        typed = ["predict", str(run), "--data", "stays.csv", "--out", "new.csv"]
        # Owners in memory have noise that protects nobody, which is said.
        with pytest.warns(DoubtWarning, match="INSECURE"):
            assert CliRunner().invoke(cli, typed).exit_code == 0


@pytest.mark.parametrize(("group", "out"), [(cli, "asked"), (owner_cli, "asked.toml")])
def test_a_question_where_nobody_types_is_one_sentence(study, group, out):
    assert study.is_file()
    result = CliRunner().invoke(group, ["init", "stays.csv", "--out", out], input="")
    assert isinstance(result.exception, InputError)
    assert "give --yes" in str(result.exception)
    assert not Path(out).exists()


def test_a_study_is_not_put_into_a_folder_that_is_called_as_its_file(study):
    assert study.is_file()
    typed = ["init", "stays.csv", "--yes", "--target", "los", "--out", "new.toml"]
    said = refused(*typed)
    assert "give the folder, such as --out new" in said
    assert not Path("new.toml").exists()


def test_a_request_that_cannot_be_written_sends_nobody_to_another_folder_for_settings(study, deny):
    """--out says where the other files go: the request goes where the invitation is."""
    names = ("ca", "certificate", "key")
    tls = "".join(f'{name} = "certs/learner/{name}.pem"\n' for name in names)
    study.write_text(f"{with_addresses(study.read_text())}\n[tls]\n{tls}")
    typed = ["invite", str(study), "--certs", "made/certs", "--out", "exchange"]
    assert CliRunner().invoke(cli, typed).exit_code == 0
    deny(Path("exchange"))
    invitation = next(Path("exchange").iterdir())
    typed = ["join", str(invitation), "--data", "stays.csv", "--out", "own"]
    result = CliRunner().invoke(owner_cli, [*typed, "--allow-private-bounds"])
    assert isinstance(result.exception, InputError), result.exception
    said = str(result.exception)
    assert "request: cannot be written (Permission denied); the request goes where the" in said
    assert "--out" not in said
    assert not list(Path("own").iterdir())


@pytest.mark.parametrize("command", ["invite", "admit"])
def test_nobody_is_sent_to_another_authority_than_that_of_another_user(study, monkeypatch, command):
    """Who typed it as another user was told to invite again, and then to take another folder."""
    names = ("ca", "certificate", "key")
    tls = "".join(f'{name} = "certs/learner/{name}.pem"\n' for name in names)
    study.write_text(f"{with_addresses(study.read_text())}\n[tls]\n{tls}")
    typed = ["invite", str(study), "--certs", "made/certs", "--out", "exchange"]
    assert CliRunner().invoke(cli, typed).exit_code == 0
    invitation = next(Path("exchange").iterdir())
    join = ["join", str(invitation), "--data", "stays.csv", "--out", "own"]
    result = CliRunner().invoke(owner_cli, [*join, "--allow-private-bounds"])
    assert result.exit_code == 0, result.output
    if command == "admit":
        request = next(Path("exchange").glob("*.request"))
        typed = ["admit", str(request), "--certs", "made/certs", "--yes"]
    system_open = os.open

    def refuse(path, flags, *rest, **more):
        if Path(path).name in {"key.pem", "invited.json"}:
            raise PermissionError(13, "Permission denied", str(path))
        return system_open(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    said = refused(*typed)
    # The list of guests may be shared; a CA's key is nobody else's.
    shared = ", or let this one read and write it" if command == "admit" else ""
    assert said.endswith(f"(Permission denied); {ANOTHER_USERS}{shared}")


@pytest.mark.parametrize(
    "typed",
    [
        ["simulate", "STUDY"],
        ["simulate", "STUDY", "--in-memory"],
        ["init", "TABLE", "--target", "y", "--owners", "2"],
        ["report", "RUN", "OTHER"],
        ["doctor", "STUDY"],
        ["forecast", "STUDY", "--quick"],
        ["sweep", "STUDY", "--grid", "privacy.epsilon=1,2", "--seeds", "1"],
    ],
    ids=" ".join,
)
def test_a_command_in_a_folder_of_another_user_ends_in_a_sentence(study, tmp_path, typed):
    """As with sudo -u, in the folder of whoever types it: Path.exists raised there."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("permissions do not stop root, and there is no setpriv")
    files = {"STUDY": study, "TABLE": tmp_path / "stays.csv"}
    if typed[0] == "report":
        for name in ("RUN", "OTHER"):
            files[name] = tmp_path / name
            run = ["simulate", str(study), "--in-memory", "--yes", "--out", str(files[name])]
            assert CliRunner().invoke(cli, run).exit_code == 0
    words = [str(files.get(word, word)) for word in typed]
    words += ["--yes"] * (typed[0] in {"simulate", "init"})
    command = [sys.executable, "-c", "from learner.cli import main; main()", *words]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    others = tmp_path / "others"
    others.mkdir()
    # Who types it is there before it is of another user.
    closing = f'chmod 0 "{others}"; exec "$@"'
    said = subprocess.run(
        ["sh", "-c", closing, "sh", *command],
        capture_output=True,
        text=True,
        cwd=others,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=100,
        check=False,
    )
    others.chmod(0o700)
    assert said.returncode == 2, said.stderr
    assert "Traceback" not in said.stderr
    assert "cannot be" in f"{said.stdout}{said.stderr}"


def test_certificates_that_find_no_room_say_where(tmp_path, monkeypatch):
    """The system names no file where one that is open cannot be written: it said "None"."""

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    typed = ["certs", "--owner", "bank=bank.example", "--out", str(tmp_path / "certs")]
    result = CliRunner().invoke(cli, typed)
    assert isinstance(result.exception, DiskError), result.exception
    assert str(result.exception).startswith(f"{tmp_path / 'certs'}: cannot be written or read (No")
