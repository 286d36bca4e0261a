"""Log lines reach who reads them, and wait for nobody."""

import logging
import os
import threading
from contextlib import contextmanager

import pytest

from common.logs import LONGEST_TRACEBACK, start_logging

LOG = logging.getLogger("copriv.test")


@contextmanager
def logged_to_a_pipe(monkeypatch):
    """Standard error is a pipe, which is handed over to be read."""
    receiver, sender = os.pipe()
    os.set_blocking(receiver, False)
    with os.fdopen(receiver, "rb") as read, os.fdopen(sender, "w") as written:
        monkeypatch.setattr("sys.stderr", written)
        start_logging("text")
        yield read
        logging.getLogger("copriv").handlers.clear()


@pytest.mark.parametrize("length", [10, LONGEST_TRACEBACK])
def test_lines_that_nobody_reads_hold_nobody_up_and_are_counted(monkeypatch, length):
    lines = 2 * 65536 // length

    def say():
        for _ in range(lines):
            LOG.warning("x" * length)

    with logged_to_a_pipe(monkeypatch) as pipe:
        saying = threading.Thread(target=say, daemon=True)
        saying.start()
        saying.join(20)
        waits, said = saying.is_alive(), pipe.read()
        while saying.is_alive():
            pipe.read()
        assert not waits
        lost = lines - said.count(b"\n")
        LOG.warning("last")
        *_, told, last = pipe.read().decode().splitlines()
    assert told.endswith(f"WARNING {lost:,} lines left out before this one: nobody read them")
    assert last.endswith("WARNING last")


def test_lines_that_are_read_are_all_there(monkeypatch):
    with logged_to_a_pipe(monkeypatch) as pipe:
        for number in range(100):
            LOG.warning("%s %d", "y" * 300, number)
        said = pipe.read().decode().splitlines()
    assert [line.rpartition(" ")[2] for line in said] == [str(number) for number in range(100)]


def test_a_line_that_was_cut_begins_no_other(monkeypatch):
    with logged_to_a_pipe(monkeypatch) as pipe:
        for _ in range(4):
            LOG.warning("x" * LONGEST_TRACEBACK)
        pipe.read()
        LOG.warning("last")
        rest, told, last = pipe.read().decode().split("\n")[:3]
    assert not rest.strip("x")
    assert " WARNING 1 line left out" in told
    assert told[:4].isdigit()
    assert last.endswith("WARNING last")
