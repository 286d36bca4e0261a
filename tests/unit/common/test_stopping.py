"""What stops a command comes when it can."""

import os
import signal
import threading
import time

import pytest

from common.stopping import STOPPING, interrupts_held


@pytest.fixture
def another_thread():
    """One that holds no signal back, as libraries have them."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.mark.usefixtures("another_thread")
@pytest.mark.parametrize("number", STOPPING)
def test_what_stops_a_command_is_held_back_whichever_thread_takes_it(number):
    """Where processes began, Ctrl-C left one that was told nothing, and copriv waited for it."""

    def stop(*_):
        raise KeyboardInterrupt

    before, done = signal.signal(number, stop), []
    try:
        with pytest.raises(KeyboardInterrupt), interrupts_held():
            _work_while_it_comes_twice(number, done)
        assert signal.getsignal(number) is stop
    finally:
        signal.signal(number, before)
    assert done == [number, number]


def _work_while_it_comes_twice(number, done):
    for _ in range(2):
        os.kill(os.getpid(), number)
        time.sleep(0.05)
        done.append(number)


def test_who_ignores_a_signal_has_processes_that_do():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_held():
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_thread_may_begin_processes_too():
    failed = []

    def begin():
        try:
            with interrupts_held():
                pass
        except ValueError as error:
            failed.append(error)

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    assert not failed
