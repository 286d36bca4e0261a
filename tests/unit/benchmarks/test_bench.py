"""`make bench` tells every row that its modules measure, and goes on where one fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
# Run by interpreters that have what copriv is compared with.
FOREIGN = {"diffprivlib_models", "peers_appfl", "peers_flower"}


@pytest.fixture
def bench(benchmark):
    return benchmark("bench")


def test_rows_are_told_and_a_module_that_fails_is_left_out(bench, tmp_path, monkeypatch, capsys):
    rows = [("a / b", 1.25, 1.6), ("c / d", 3.0, 2.0), ("e / f", 5.0, 0.0)]
    (tmp_path / "good.py").write_text(f"def rows(): return {rows}")
    (tmp_path / "bad.py").write_text("raise ModuleNotFoundError('no such extra')")
    monkeypatch.setattr(bench, "HERE", tmp_path)
    monkeypatch.setattr(bench, "MODULES", ("bad", "gone", "good"))
    out = tmp_path / "runs" / "bench.json"
    bench.main(["--out", str(out)])
    said = capsys.readouterr().out
    assert "bad: left out, ModuleNotFoundError: no such extra" in said
    assert "| a / b | 1.25 | 1.6 | met |" in said
    assert "| c / d | 3 | 2 | missed |" in said
    assert "| e / f | 5 | | |" in said
    assert json.loads(out.read_text()) == [
        {"name": "a / b", "ratio": 1.25, "bar": 1.6},
        {"name": "c / d", "ratio": 3.0, "bar": 2.0},
        {"name": "e / f", "ratio": 5.0, "bar": None},
    ]
    with pytest.raises(SystemExit):
        bench.main(["gone", "--out", str(out)])


def test_every_benchmark_finds_what_it_imports():
    names = sorted({path.stem for path in BENCHMARKS.glob("*.py")} - FOREIGN)
    program = "import importlib, sys; [*map(importlib.import_module, sys.argv[1:])]"
    places = {"PYTHONPATH": f"{BENCHMARKS.parent}:{BENCHMARKS}"}
    subprocess.run([sys.executable, "-c", program, *names], check=True, env=os.environ | places)
