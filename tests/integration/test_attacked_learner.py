"""Owners that lie to a learner, and learners that lie to an owner: the tools beside this, whole.

`python tests/tools/attack_learner.py --table` and `python tests/tools/attack_attachment.py --table`
show every mode and what became of it.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[1] / "tools"


def run_tool(name):
    result = subprocess.run(
        [sys.executable, str(TOOLS / name)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert "Traceback" not in result.stderr
    return json.loads(result.stdout)


@pytest.mark.long
def test_whatever_an_owner_says_the_run_ends_in_a_sentence_or_goes_on_without_it():
    told = run_tool("attack_learner.py")
    assert told["modes"] >= 110
    assert told["runs"] == 2 * told["modes"]
    assert all(told["ended"].values())
    assert told["faults"] == []


@pytest.mark.long
def test_whoever_lies_on_an_attached_stream_the_other_side_goes_on_or_says_why_not():
    told = run_tool("attack_attachment.py")
    assert told["owners"] >= 32
    assert told["learners"] >= 35
    assert all(told["ended"].values())
    assert told["faults"] == []
