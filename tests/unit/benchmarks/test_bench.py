"""`make bench` tells every row that its modules measure, and goes on where one fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from owner.ledger_reading import verify_ledger

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


# A name that is gone would end a run of hours where it is needed first.
ALL_THERE = """
import ast, importlib, inspect, sys

for name in sys.argv[1:]:
    module = importlib.import_module(name)
    for each in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            holder = vars(module).get(each.value.id)
            if inspect.ismodule(holder):
                getattr(holder, each.attr)
"""


def test_every_benchmark_finds_what_it_imports_and_takes_of_that():
    names = sorted({path.stem for path in BENCHMARKS.glob("*.py")} - FOREIGN)
    places = {"PYTHONPATH": f"{BENCHMARKS.parent}:{BENCHMARKS}"}
    subprocess.run([sys.executable, "-c", ALL_THERE, *names], check=True, env=os.environ | places)


def test_a_history_of_years_is_a_sound_ledger(benchmark, owner_folder, serve_owner, monkeypatch):
    ledger_start = benchmark("ledger_start")
    monkeypatch.setattr(ledger_start, "RESPONSES", 3)
    path = owner_folder()
    serve_owner(path).drain(grace=0)
    ledger = path.parent / "ledger.sqlite"
    ledger_start.fill(ledger, 200_000)
    assert verify_ledger(ledger) == []
