"""The table of `make bench`: what things cost, as ratios, each against its bar.

    .venv/bin/python benchmarks/bench.py [NAME ...] [--out runs/bench.json]

NAME is one of MODULES; without one, all of them. Each of these modules has
``rows() -> [(name, ratio, bar)]``: a cost against what it is measured beside, in turns within one
run, as a median. A ratio is met where it is at most its bar; a bar of 0 is none. Each module runs
in a process of its own, so that none warms another's caches, and one that fails says why while the
others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULES = ("tick", "gradient", "many_owners", "replicates", "sweep", "simulate", "peers")
LONGEST = 1_800.0

Rows = list[tuple[str, float, float]]


def measure(module: str) -> Rows:
    """The rows of one module; none where it fails, which is printed."""
    code = f"import json, {module}; print(json.dumps({module}.rows()))"
    began = time.monotonic()
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"{module}: left out, it takes more than {LONGEST:.0f} s", flush=True)
        return []
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        print(f"{module}: left out, {lines[-1]}", flush=True)
        return []
    found: Rows = [
        (name, ratio, bar) for name, ratio, bar in json.loads(done.stdout.splitlines()[-1])
    ]
    print(f"{module}: {len(found)} rows, {time.monotonic() - began:.0f} s", flush=True)
    return found


def table(rows: Rows) -> str:
    """The rows for people, and for a document.

    >>> print(table([("a / b", 1.25, 1.6), ("c / d", 3.0, 0.0)]))
    | what | ratio | bar | |
    |---|---|---|---|
    | a / b | 1.25 | 1.6 | met |
    | c / d | 3 | | |
    """
    lines = ["| what | ratio | bar | |", "|---|---|---|---|"]
    for name, ratio, bar in rows:
        met = "met" if ratio <= bar else "missed"
        cells = [name, f"{ratio:.3g}", f"{bar:g}", met] if bar else [name, f"{ratio:.3g}", "", ""]
        lines.append("| " + " | ".join(cells).replace(" |  | ", " | | ").rstrip() + " |")
    return "\n".join(lines)


def main(typed: Sequence[str] | None = None) -> None:
    """Measure, print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    there = [name for name in MODULES if (HERE / f"{name}.py").is_file()]
    parser.add_argument("modules", nargs="*", metavar="NAME", help=", ".join(there))
    parser.add_argument("--out", type=Path, default=Path("runs/bench.json"))
    asked = parser.parse_args(typed)
    unknown = set(asked.modules) - set(there)
    if unknown:
        parser.error(f"{min(unknown)}: expected one of {', '.join(there)}")
    rows = [row for module in asked.modules or there for row in measure(module)]
    print(table(rows))
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    told = [{"name": name, "ratio": ratio, "bar": bar or None} for name, ratio, bar in rows]
    asked.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(asked.out)


if __name__ == "__main__":
    main()
