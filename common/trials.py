"""What may end a process, tried in a copy of it first."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from common.stopping import leave_no_core

# A copy that takes longer may wait for a lock that another thread held as it was made.
LONGEST_SECONDS = 60.0
# How a process ends for which a library gives up.
CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
ERRORS = 2
# Of prctl: which signal a process gets when the thread that made it has ended.
SET_DEATH_SIGNAL = 1


def fork() -> int | None:
    """As os.fork; None where the system has no room for another process, or a signal came.

    Python 3.12 and later warn of locks that other threads hold. A copy that waits for one is given
    up.
    """
    with warnings.catch_warnings(), _signals_waiting() as came:
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        try:
            copy = os.fork()
        except OSError:
            return None
        if copy == 0:
            came.clear()
        elif came:
            end_copy(copy)
            return None
        return copy


@contextmanager
def _signals_waiting() -> Iterator[list[int]]:
    """Let the signals that stop a command come when this is over; gives those that wait.

    What Python and its libraries do around a fork drops exceptions. A Ctrl-C that came then was
    lost, and the lock of all logging stayed held. The system takes long to fork, so many come then.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}
    raising = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in raising:
            signal.signal(number, lambda number, _: came.append(number))
        yield came
    finally:
        for number, handler in raising.items():
            signal.signal(number, handler)
    for missed in came:
        signal.raise_signal(missed)


def end_copy(copy: int) -> int | None:
    """End a copy of this process, and return its status.

    None where whoever uses this program in its own process ignores the end of others (SIGCHLD): it
    is gone without a word then.
    """
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(copy, signal.SIGKILL)
        return os.waitpid(copy, 0)[1]
    return None


def end_with(parent: int) -> None:
    """Let this process be killed when the one that made it has ended, however it ends.

    Args:
      parent: That process, which may have ended by now.
    """
    ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def ends_the_process(work: Callable[[], object]) -> bool:
    """Whether some work would end this process, as a copy of it shows.

    Libraries in other languages end it where a file is damaged in a way that they do not expect.
    An exception is none of that, and says what it says when the work is done here. Where no copy
    can be made, or it does not end, nothing is known: False.

    Args:
      work: What is tried; nothing of it is seen here.

    >>> ends_the_process(os.abort), ends_the_process(lambda: 1 / 0)
    (True, False)
    """
    receiver, sender = os.pipe()
    try:
        copy = fork()
        if copy == 0:
            _try(work)
    finally:
        # The copy alone holds it: its end is the end of the copy.
        os.close(sender)
    try:
        if copy is None:
            return False
        try:
            # Not select, which takes no handle beyond 1,023.
            waiting = select.poll()
            waiting.register(receiver, select.POLLIN)
            waiting.poll(1000 * LONGEST_SECONDS)
        finally:
            status = end_copy(copy) or 0
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) in CRASHES
    finally:
        os.close(receiver)


def _try(work: Callable[[], object]) -> NoReturn:
    """Be the copy: do this, say nothing, leave nothing, and end, whatever happens."""
    try:
        leave_no_core()
        os.dup2(os.open(os.devnull, os.O_WRONLY), ERRORS)
        for number in (*CRASHES, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        # Should this process be killed meanwhile: what the copy holds, such as locks, is let go.
        signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
        work()
    finally:
        os._exit(0)
