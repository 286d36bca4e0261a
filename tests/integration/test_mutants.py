"""Every line that privacy rests on is still where its mutants break it.

`python tests/tools/mutants.py` breaks them all, and shows which test notices.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[1] / "tools" / "mutants.py"
# A line that no test is asked about, changed to what means the same.
HARMLESS = {"name": "the same", "old": "(1.0 - self._left)", "new": "(1 - self._left)"}


def run(*options):
    command = [sys.executable, str(TOOL), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture
def table(tmp_path):
    def write(function="RateLimit.wait", **changes):
        tests = ["tests/unit/owner/test_calls.py"]
        mutants = [HARMLESS | changes]
        path = tmp_path / "mutants.json"
        path.write_text(json.dumps([{"function": function, "tests": tests, "mutants": mutants}]))
        return str(path)

    return write


def test_every_mutant_applies():
    result = run("--check")
    assert result.returncode == 0, result.stdout
    assert int(result.stdout.split()[0]) > 300


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"old": "no such line"}, "the snippet stands 0 times, not once"),
        ({"old": "self._at"}, "the snippet stands 2 times, not once"),
        ({"function": "RateLimit.wait_no_more"}, "the function stands 0 times, not once"),
        ({"function": "_accounts"}, "the function stands 2 times, not once"),
        ({"new": "(1 - self._left"}, "was never closed"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--check",)])
def test_a_mutant_that_does_not_apply_ends_the_run(table, changes, words, options):
    result = run("--table", table(**changes), *options)
    assert result.returncode == 2
    assert words in result.stdout


@pytest.mark.long
def test_a_mutant_that_no_test_notices_fails_the_run(table):
    result = run("--table", table(), "--jobs", "1")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "SURVIVED" in result.stdout
