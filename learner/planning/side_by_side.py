"""What depends on nothing but what is known by now, computed in copies of this process.

Simulated studies are many small steps, at which threads would wait for each other, and a new
process would import for as long as a decision takes. A fork of this one begins at once.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn, TypeVar

from common.trials import end_copy, end_with, fork
from learner.simulated.united import own_processors

Result = TypeVar("Result")

# A copy that uses no processor time for so many seconds waits for what never comes: for a lock,
# perhaps, that another thread held as the copy was made.
LOOK_SECONDS = 10.0
# One that uses it may spin on such a lock. This process did about as much while it worked, so it is
# done long before this is over.
LONGEST_SECONDS = 1800.0
# Input, output and errors stay open in a copy.
FIRST_CLOSED = 3


@contextmanager
def side_by_side(works: Sequence[Callable[[], Result]]) -> Iterator[Callable[[], list[Result]]]:
    """Begin each of these beside what is done within; the call that it gives returns the results.

    Each has a copy of this process, which hands its result back pickled. What a copy does not
    bring, because it failed, was killed or hangs, is done by the call itself, so that this raises
    whatever it raises. So is all of it where there is one processor, and where this process is one
    of many that others begun side by side.

    Args:
      works: What is to be done, which comes to the same wherever it is.

    >>> with side_by_side([lambda: 2 * 3, lambda: 2 * 4]) as results:
    ...     results()
    [6, 8]
    """
    if own_processors() == 1:
        yield lambda: [work() for work in works]
        return
    with ExitStack() as stack:
        copies = [stack.enter_context(_copied(work)) for work in works]
        yield lambda: [copy() for copy in copies]


@contextmanager
def _copied(work: Callable[[], Result]) -> Iterator[Callable[[], Result]]:
    """A copy that does this; the call waits for its result."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with receiver:
        with sender:
            parent, copy = os.getpid(), fork()
            if copy == 0:
                _do(work, sender, parent)
        if copy is None:
            yield work
            return

        def result() -> Result:
            # Without a word it is the one, in the middle of its result the other.
            with suppress(EOFError, OSError):
                if _tells(copy, receiver):
                    told: Result = receiver.recv()
                    return told
            return work()

        try:
            yield result
        finally:
            end_copy(copy)


def _do(work: Callable[[], object], sender: Connection, parent: int) -> NoReturn:
    """Be the copy: do this, hand its result over, and end, whatever happens."""
    try:
        end_with(parent)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        # What this copy did not make is not its to clean up: a library's files are closed here.
        gc.freeze()
        # Else a lock, a socket or an owner's input would stay open as long as this copy does.
        own = sender.fileno()
        os.closerange(FIRST_CLOSED, own)
        os.closerange(own + 1, os.sysconf("SC_OPEN_MAX"))
        sender.send(work())
    finally:
        os._exit(0)


def _tells(copy: int, receiver: Connection) -> bool:
    """Wait until the copy tells something, or has ended; False if it hangs."""
    used: list[str] | None = None
    give_up = time.monotonic() + LONGEST_SECONDS
    while not receiver.poll(LOOK_SECONDS):
        before, used = used, _processor_time(copy)
        if used == before or time.monotonic() > give_up:
            return False
    return True


def _processor_time(process: int) -> list[str]:
    """What a process has used of processors, as the system counts it."""
    # Behind its name, which may hold anything: the 12th and 13th value.
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
