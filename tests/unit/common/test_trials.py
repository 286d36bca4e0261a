"""What would end this process is tried in a copy of it, whose end says so and nothing else."""

from __future__ import annotations

import os
import signal
import time

import pytest

from common import trials
from common.trials import ends_the_process


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS])
def test_what_ends_a_copy_is_known_and_says_nothing(number, capfd):
    assert ends_the_process(lambda: os.kill(os.getpid(), number))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("work", [lambda: None, lambda: 1 / 0, lambda: os._exit(7)])
def test_work_that_fails_or_goes_well_ends_no_process(work, capfd):
    assert not ends_the_process(work)
    assert capfd.readouterr() == ("", "")


def test_of_a_copy_that_somebody_ends_or_that_hangs_nothing_is_known(monkeypatch):
    assert not ends_the_process(lambda: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(trials, "LONGEST_SECONDS", 0.1)
    assert not ends_the_process(lambda: time.sleep(60))


def test_a_copy_that_hangs_ends_by_itself_where_nobody_is_left_to_end_it(monkeypatch):
    monkeypatch.setattr(trials, "LONGEST_SECONDS", 0.1)
    monkeypatch.setattr(trials.select, "select", lambda *_: time.sleep(5))
    monkeypatch.setattr(trials, "CRASHES", [signal.SIGALRM])
    assert ends_the_process(lambda: time.sleep(60))


def test_without_room_for_a_copy_nothing_is_known(monkeypatch):
    def refuse():
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    assert not ends_the_process(os.abort)


def test_no_copy_and_no_handle_is_left():
    before = len(os.listdir("/proc/self/fd"))
    assert ends_the_process(os.abort)
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
