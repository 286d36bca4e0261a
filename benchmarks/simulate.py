"""A whole simulation, as it is typed: python benchmarks/simulate.py

Seconds are of this machine; the bars are those that were set on two cores that did nothing else.
Beside them is what the run does after its last communication, against the training itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

STUDY = Path(__file__).resolve().parents[1] / "examples" / "hospitals.toml"
REPEATS = 3
# Seconds of 3,000 ticks of three owners, and of the demo, all included.
WHOLE_BAR, DEMO_BAR = 5.0, 2.2
LONG = ("--set", "algorithm.horizon=3000")
# As it is installed, with compiled modules: some environments tell Python to keep none.
INSTALLED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Took(NamedTuple):
    """Seconds of a simulation: all of it, its training, and what came after that."""

    whole: float
    training: float
    after: float


def simulate(*changes: str) -> Took:
    """One simulation, in a process of its own."""
    with tempfile.TemporaryDirectory() as made:
        out = Path(made) / "run"
        command = [sys.executable, "-m", "learner.cli", "simulate", str(STUDY), "--out", str(out)]
        began = time.perf_counter()
        subprocess.run([*command, *changes], check=True, capture_output=True, env=INSTALLED)
        whole = time.perf_counter() - began
        training = json.loads((out / "summary.json").read_text())["wall_seconds"]
        # The journal is closed when the owners have closed the study, before anything is measured.
        ended = (out / "journal.sqlite").stat().st_mtime
        return Took(whole, training, (out / "summary.json").stat().st_mtime - ended)


def rows() -> list[tuple[str, float, float]]:
    """(name, ratio, bar): seconds over the bar's, and what comes after the training against it."""
    long, demo = [], []
    for _ in range(REPEATS):
        long.append(simulate(*LONG))
        demo.append(simulate())
    whole = float(np.median([one.whole for one in long]))
    return [
        ("simulate: 3,000 ticks, 3 owners, seconds / 5", whole / WHOLE_BAR, 1.0),
        (
            "simulate: after the training / training",
            float(np.median([one.after / one.training for one in long])),
            1.0,
        ),
        (
            "simulate: the demo, seconds / 2.2",
            float(np.median([one.whole for one in demo])) / DEMO_BAR,
            1.0,
        ),
    ]


def main() -> None:
    """Print what each took."""
    for name, changes in (("3,000 ticks", LONG), ("the demo", ())):
        for _ in range(REPEATS):
            took = simulate(*changes)
            print(f"{name}: {took.whole:.2f} s, training {took.training:.2f} s, after it", end=" ")
            print(f"{took.after:.2f} s")


if __name__ == "__main__":
    main()
