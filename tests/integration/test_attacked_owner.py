"""An owner that is killed, sent nonsense, or robbed of its ledger's files: short runs of tools.

`python tests/tools/kill_owner.py --kills 220`, `python tests/tools/fuzz_owner.py --messages
100000`, `python tests/tools/kill_all.py --kills 300` and `python tests/tools/rollback_ledger.py` do
the same for as long as an auditor likes.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import wait_until

TOOLS = Path(__file__).resolve().parents[1] / "tools"


def run_tool(name, *options):
    result = subprocess.run(
        [sys.executable, str(TOOLS / name), *options],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout)


@pytest.mark.long
def test_an_owner_killed_at_any_step_never_gives_more_than_it_promised():
    told = run_tool("kill_owner.py", "--kills", "24")
    assert told["kills"] == 24
    steps = {"before_charge", "in_transaction", "at_commit", "after_commit", "before_note"}
    steps |= {"in_note", "after_note", "before_send", "after_send", "random"}
    assert steps == set(told["by_step"])
    assert told["responses"] == told["charged"] == told["promised"]
    assert told["most_different_answers_to_one_number"] == 1


@pytest.mark.long
def test_an_owner_that_charges_in_blocks_loses_at_most_one_for_each_kill():
    told = run_tool("kill_owner.py", "--kills", "14", "--block", "64")
    assert told["kills"] == 14
    assert told["charged"] == told["promised"]
    assert 0 < told["lost"] == told["promised"] - told["responses"]
    assert told["most_different_answers_to_one_number"] == 1


@pytest.mark.long
def test_owners_and_learner_killed_while_owners_are_asked_ahead_lose_nothing():
    told = run_tool("kill_all.py", "--kills", "30")
    assert sum(told["kills"].values()) == 30
    assert set(told["kills"]) == {"owner", "learner"}
    # A tick that an absent owner missed is not made up for.
    assert told["held"] == told["charged"] <= told["promised"]
    assert told["lost"] == 0


@pytest.mark.long
def test_malformed_messages_crash_charge_and_leak_nothing():
    told = run_tool("fuzz_owner.py", "--messages", "3000")
    assert told["messages"] >= 3000
    assert set(told["statuses"]) == {
        "INVALID_ARGUMENT",
        "FAILED_PRECONDITION",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
    }
    # One leaked kilobyte for each message would be 1.4 MB; gRPC alone used to keep 16.
    assert told["megabytes_grown_spent"] < 12
    assert told["megabytes_grown_open"] < 24


@pytest.mark.long
def test_the_time_of_an_answer_does_not_tell_how_many_records_have_a_value():
    command = [sys.executable, str(TOOLS / "time_answers.py"), "--records", "10000"]
    # Ratios within a run; a number that is slow to compute with makes them 1.6 and more.
    command += ["--rounds", "15", "--limit", "1.5"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.long
def test_the_time_of_an_enrolment_does_not_tell_what_a_cell_is():
    command = [sys.executable, str(TOOLS / "time_enrolments.py"), "--rounds", "40"]
    command += ["--limit", "1.1"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


def test_no_replaced_record_moves_an_answer_further_than_the_sensitivity_counts():
    command = [sys.executable, str(TOOLS / "neighbours.py"), "--pairs", "4000"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


def descendants(pid):
    """The processes that a process began, and those that they began."""
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found |= {child} | descendants(child)
    return found


def threads(pid):
    """How many threads a process has; 0 for one that is dead."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if told[0] == "Z" else int(told[17])


def test_a_tool_that_fails_leaves_no_owner_behind():
    command = [sys.executable, str(TOOLS / "kill_owner.py"), "--kills", "100000"]
    tool = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        began = set()
        give_up = time.monotonic() + 60
        # Stopped while a life is serving: gRPC has begun its threads, and nobody kills it now.
        while not any(threads(pid) > 4 for pid in began):
            assert time.monotonic() < give_up
            os.kill(tool.pid, signal.SIGCONT)
            # Lives take about as long as each other: equal waits might meet none that serves.
            time.sleep(random.uniform(0.02, 0.3))
            os.kill(tool.pid, signal.SIGSTOP)
            began = descendants(tool.pid)
        time.sleep(0.1)
    finally:
        tool.kill()
        tool.wait()
    wait_until(lambda: not any(map(threads, began)))


@pytest.mark.long
def test_files_of_a_ledger_that_are_lost_or_older_give_no_budget_back():
    """Two ways for each proper subset of the files; the tool itself has sixteen."""
    told = run_tool("rollback_ledger.py", "--every", "16")
    assert told["cases"] == 30
    assert set(told["ways"]) == {"delete", "truncate", "replace", "roll_back"}
    refused = sum(n for found in told["ways"].values() for how, n in found.items() if "refu" in how)
    assert 0 < refused < 30
