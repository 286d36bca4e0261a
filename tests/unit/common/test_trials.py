"""What would end this process is tried in a copy of it, whose end says so and nothing else."""

import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from common import trials
from common.trials import ends_the_process, fork

# Started by a program that ignores the end of others, a command tries what would end it.
IGNORED = """
import signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from common.start import start
start("copriv", "tries")
"""
TRIES = """
import os
from common.trials import ends_the_process
def main():
    print(ends_the_process(os.abort))
"""
# A signal comes while the process is copied: in what Python does just before, or just after. The
# copy has a second to stop, too, as it must not.
STOPPED = """
import os, signal, time
from common.trials import fork
os.register_at_fork(**{"WHEN": lambda: signal.raise_signal(signal.SIGINT)})
os.register_at_fork(after_in_parent=lambda: time.sleep(1.0))
try:
    copy = fork()
    os._exit(0) if copy == 0 else print("not stopped")
except KeyboardInterrupt:
    print("stopped", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("no copy left")
"""


@pytest.mark.parametrize("when", ["before", "after_in_parent"])
def test_a_signal_that_comes_while_a_process_is_copied_stops_it(when):
    command = [sys.executable, "-c", STOPPED.replace("WHEN", when)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == ("stopped True\nno copy left\n", "")


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS])
def test_what_ends_a_copy_is_known_and_says_nothing(number, capfd):
    def give_up():
        os.write(2, b"as libraries say before they end a process")
        os.kill(os.getpid(), number)

    assert ends_the_process(give_up)
    assert capfd.readouterr() == ("", "")


def test_a_copy_ends_whatever_its_program_does_with_signals(monkeypatch):
    monkeypatch.setattr(trials, "LONGEST_SECONDS", 0.1)
    before = signal.signal(signal.SIGABRT, lambda *_: None)
    try:
        assert ends_the_process(lambda: os.kill(os.getpid(), signal.SIGABRT))
    finally:
        signal.signal(signal.SIGABRT, before)


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
    asleep = SimpleNamespace(register=lambda *_: None, poll=lambda _: time.sleep(5))
    monkeypatch.setattr(trials.select, "poll", lambda: asleep)
    monkeypatch.setattr(trials, "CRASHES", [signal.SIGALRM])
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        assert ends_the_process(lambda: time.sleep(60))
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_process_with_many_open_files_may_try_too():
    """An owner of many callers has handles beyond those that select takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
    with ExitStack() as opened:
        while opened.enter_context(Path(os.devnull).open()).fileno() < 1100:
            pass
        assert ends_the_process(os.abort)
        assert not ends_the_process(lambda: None)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_room_for_a_copy_nothing_is_known(monkeypatch):
    def refuse():
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    assert not ends_the_process(os.abort)


def test_no_copy_and_no_handle_is_left(monkeypatch):
    copies = []

    def counted_fork():
        copies.append(fork())
        return copies[-1]

    monkeypatch.setattr(trials, "fork", counted_fork)
    before = len(os.listdir("/proc/self/fd"))
    assert ends_the_process(os.abort)
    assert len(os.listdir("/proc/self/fd")) == before
    # This process may have others, of tests before this one.
    [copy] = copies
    with pytest.raises(ChildProcessError):
        os.waitpid(copy, os.WNOHANG)


def test_whoever_started_a_command_it_is_told_how_its_copies_end(tmp_path):
    (tmp_path / "tries.py").write_text(TRIES)
    told = subprocess.run(
        [sys.executable, "-c", IGNORED],
        env={**os.environ, "PYTHONPATH": f"{os.getcwd()}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.stdout, told.stderr) == ("True\n", "")


def test_in_a_program_that_ignores_the_end_of_others_nothing_is_known():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert not ends_the_process(os.abort)
    finally:
        signal.signal(signal.SIGCHLD, before)
