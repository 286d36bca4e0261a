"""Ctrl-C while a run goes: what is kept is said, and the run goes on from there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tomli_w

from learner.results.run_folder import Trace
from owner.server import RunningOwner


def test_ctrl_c_says_how_to_go_on_and_it_does(
    tmp_path: Path,
    owner_folder: Callable[..., Path],
    serve_owner: Callable[..., RunningOwner],
    typed: Callable[..., Any],
    public_table: pd.DataFrame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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

    def interrupted(self: Trace, communication: Any) -> None:
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


def test_a_command_that_is_stopped_early_ends_with_130(
    typed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("learner.cli.load_study", stop)
    said = typed("copriv", "simulate", tmp_path / "s.toml")
    assert said.returncode == 130
    assert said.stderr.strip() == "copriv: stopped; type the same again to start anew"
