"""Ctrl-C while a run goes: what is kept is said, and the run goes on from there."""

import signal
from typing import Annotated, Any

import click
import pytest
import tomli_w
from pydantic import BaseModel, PlainSerializer
from pydantic_core import PydanticSerializationError

import common.command
from common.command import stoppable
from common.errors import StoppedError
from learner.results.run_folder import Trace


def test_ctrl_c_says_how_to_go_on_and_it_does(
    tmp_path, owner_folder, serve_owner, typed, public_table, monkeypatch
):
    public_table.to_parquet(tmp_path / "public.parquet")
    folders = [owner_folder(name, seed=i) for i, name in enumerate(("a", "b"))]
    entries = [
        {"name": path.parent.name, "address": f"127.0.0.1:{serve_owner(path).port}"}
        for path in folders
    ]
    study = {
        "name": "s",
        "seed": 1,
        "profile": "published",
        "features": {"map": str(folders[0].parent / "features.json")},
        "model": {"theta_max": 2},
        "algorithm": {"horizon": 9, "rho": 1},
        "privacy": {"epsilon": 1},
        "owners": entries,
    }
    (tmp_path / "study.toml").write_text(tomli_w.dumps(study))
    append = Trace.append

    def interrupted(self, communication):
        append(self, communication)
        if communication.k == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Trace, "append", interrupted)
    run = tmp_path / "run"
    said = typed("copriv", "train", tmp_path / "study.toml", "--out", run)
    assert said.returncode == 130
    assert said.stderr.strip().splitlines()[-1] == (
        f"copriv: stopped at communication 4 of 9; `copriv train --resume {run}` goes on"
    )
    # Life before the first communication: what was done, and its seconds.
    for words in ("read a feature map of", "planned 9 communications of 2 owners", "enrolled the"):
        assert words in said.stdout
    monkeypatch.undo()
    said = typed("copriv", "train", "--resume", run)
    assert said.returncode == 0, said.stderr
    assert (run / "summary.json").is_file()


def test_a_command_that_is_stopped_early_ends_with_130(typed, monkeypatch, tmp_path):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("learner.cli.load_study", stop)
    said = typed("copriv", "simulate", tmp_path / "s.toml")
    assert said.returncode == 130
    assert said.stderr.strip() == "copriv: stopped; type the same command again to start over"


class Stopped:
    """Ctrl-C comes while pydantic writes this down."""

    def __str__(self):
        raise KeyboardInterrupt


def test_ctrl_c_that_pydantic_made_an_error_of_its_own_of_is_ctrl_c():
    class Written(BaseModel):
        path: Annotated[Any, PlainSerializer(str)]

    for sentence in ("one", "two"):
        with pytest.raises(StoppedError, match=sentence), stoppable(lambda said=sentence: said):
            Written(path=Stopped()).model_dump()

    class Broken:
        def __str__(self):
            raise ValueError("no text")

    with pytest.raises(PydanticSerializationError), stoppable(lambda: "one"):
        Written(path=Broken()).model_dump()


def test_ctrl_c_while_what_was_typed_is_read_is_status_130(typed, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Context, "__init__", interrupted)
    said = typed("copriv", "settings", "seed")
    assert said.returncode == 130
    assert said.stderr.strip() == "copriv: stopped; type the same command again to start over"


@pytest.mark.parametrize(
    ("number", "place"),
    [
        (signal.SIGINT, "limit_memory"),
        (signal.SIGINT, "need_threads"),
        (signal.SIGTERM, "need_threads"),
    ],
)
def test_a_signal_before_a_command_has_begun_is_no_traceback(typed, monkeypatch, number, place):
    """Of fifty that came while a command started one was."""
    monkeypatch.setattr(common.command, place, lambda: signal.raise_signal(number))
    said = typed("copriv-owner", "settings", "policy")
    assert said.returncode == 128 + number
    assert said.stderr.strip() == "copriv-owner: stopped; type the same command again to start over"
