"""Waiting for what comes about by itself, and what a process does meanwhile."""

import gc
import os
import signal
import time
from pathlib import Path

from common.trials import end_copy, fork


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


def killed_at_its_end(work, *, seconds=60.0):
    """Do this in a copy of this process, which is killed then and leaves what a kill leaves.

    A copy may wait for ever for a lock that another thread held as it was made.

    Raises:
      AssertionError: It ended otherwise, or not in time.
    """
    copy, ended = fork(), []
    if copy == 0:
        try:
            # What it did not make is not its to clean up.
            gc.freeze()
            work()
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)

    def has_ended():
        done, status = os.waitpid(copy, os.WNOHANG)
        ended.extend([status] if done else [])
        return done

    if not comes_about(has_ended, seconds=seconds):
        end_copy(copy)
        raise AssertionError(f"a copy of this process did not end in {seconds:g} s")
    assert ended == [signal.SIGKILL]


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
