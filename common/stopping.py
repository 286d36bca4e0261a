"""Waiting for the request to stop, by a signal or by another thread; and the end after it."""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import select
import signal
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn

from common.own_files import remove_private_folder

# What is under way may take so long to finish.
GRACE_SECONDS = 5.0
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# As of other programs that write where nobody reads.
UNREAD_STATUS = 128 + signal.SIGPIPE


class UnreadError(KeyboardInterrupt):
    """Whoever read what a command prints has gone; the command stops as by Ctrl-C."""


def jitter() -> float:
    """By what a wait is shortened: many programs should not knock at the same moment.

    >>> 0.5 <= jitter() <= 1.0
    True
    """
    return secrets.SystemRandom().uniform(0.5, 1.0)


def leave_unread() -> None:
    """What is still said must not fail where nobody reads it any more."""
    for number in (1, 2):
        asked = select.poll()
        # Only whether the other end is gone, which is told without being asked for.
        asked.register(number, 0)
        if asked.poll(0):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def leave_no_core() -> None:
    """Let no crash of this process write its memory to the disk.

    Records may be in it, and noise that was drawn ahead.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))


def told_to_end() -> list[int]:
    """Let SIGTERM, and a terminal that closes, stop a command as Ctrl-C; a second one kills it.

    Returns:
      The signals that came, as they come.
    """
    came: list[int] = []

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        came.append(number)
        leave_unread()
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    # Who typed nohup means to outlive the terminal.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, stop)
    return came


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold back what stops a command; for a process that is begun here, Ctrl-C until it takes it.

    A library's thread takes a signal that only this one blocks, and Python then tells this one.
    """
    came: list[int] = []
    # Python tells its main thread alone.
    is_told = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in STOPPING if is_told}
    # Who ignores a signal, as in the background, has processes that do.
    held = {number: handler for number, handler in before.items() if callable(handler)}
    for each in held:
        signal.signal(each, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for each, handler in held.items():
            signal.signal(each, handler)
        for number in came[:1]:
            signal.raise_signal(number)


def end_now(status: int) -> NoReturn:
    """End this process; threads that still work are not waited for, and nothing is freed."""
    remove_private_folder()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


class Stop:
    """Waits for SIGTERM, SIGINT, SIGHUP or a call of :meth:`set`.

    Guarantees:
      * No signal is missed. One that arrives just before a lock begins to wait is seen only when
        the lock is free; a pipe that the signal itself writes to has no such moment.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)

    def take_signals(self) -> None:
        """From here on signals request the stop; before, they end a command as anywhere else.

        Must be called in the main thread, once what may take long has been read: nobody waits yet
        who could see the request.
        """
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in STOPPING:
            # Who typed nohup means to outlive the terminal.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda *_: None)

    def set(self) -> None:
        """Request the stop."""
        with contextlib.suppress(BlockingIOError):  # of so many requests, one is seen
            os.write(self._writing, b"\0")

    def wait(self) -> None:
        """Wait until the stop is requested."""
        os.read(self._reading, 1)
