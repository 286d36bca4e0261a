"""Columns may be called whatever they are called: no command reads a name as its own signs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from forked import run

ODD = "y[/b] :smile:"


def test_a_target_that_looks_like_markup_is_learnt_reported_and_judged(tmp_path: Path) -> None:
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
