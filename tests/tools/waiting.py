"""Waiting for what comes about by itself, and what a process does meanwhile."""

import os
import time
from pathlib import Path


def wait_until(holds, *, seconds=60.0):
    """Return as soon as it holds.

    Raises:
      AssertionError: It does not come about in time.
    """
    assert comes_about(holds, seconds=seconds), f"it did not come about in {seconds:g} s"


def comes_about(holds, *, seconds):
    """Whether it holds before so many seconds are over; returns as soon as it does."""
    give_up = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.01)
    return True


def is_there(process):
    """Whether a process runs; one that only waits for its status to be read does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def seconds_computed(process):
    """How long a process has used a core."""
    times = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
