"""Whether further threads and processes may begin: libraries end a process where none may."""

from __future__ import annotations

import _thread
import errno
import os
import threading

# Python's own words and those of owner.threads, which begins threads by another way.
NO_THREAD = ("can't start new thread", "did not begin")
NO_MORE_THREADS = (
    "no further thread begins: the memory, or the number of processes that this user, container or "
    "unit may have, has run out; raise it (ulimit -u, pids limit, TasksMax) and start again"
)
# As of a crash: others may have room again when a supervisor starts it again.
NO_THREAD_STATUS = 1
# A command, and gRPC in one: those of libraries that read tables, and those that wait for calls.
FEWEST = 16
# Each waits and does nothing else; what libraries keep for each thread must fit, too.
STACK_BYTES = 2**19
END_SECONDS = 1.0


def need_threads(count: int = FEWEST) -> None:
    """See that so many threads may begin, before a library needs them.

    Where one does not, gRPC and Arrow end the process by a signal, and joblib waits for ever. Tried
    for all of them at once, it is an error. They end before this does.

    Args:
      count: How many threads and processes are about to begin.

    Raises:
      RuntimeError: They may not, as Python says it.

    >>> need_threads(4)
    """
    hold, ended = threading.Lock(), threading.Semaphore(0)

    def wait() -> None:
        with hold:
            pass
        ended.release()

    begun = 0
    before = threading.stack_size(STACK_BYTES)
    try:
        with hold:
            for _ in range(count):
                _thread.start_new_thread(wait, ())
                begun += 1
    finally:
        threading.stack_size(before)
        for _ in range(begun):
            # One for which memory ran out may never come.
            ended.acquire(timeout=END_SECONDS)


def none_begins(error: Exception) -> bool:
    """Whether an error says that no further thread or process begins.

    Output that takes no more at once is the same error number, in other words.

    >>> [none_begins(RuntimeError(said)) for said in ("can't start new thread", "no")]
    [True, False]
    """
    if isinstance(error, OSError):
        return error.errno == errno.EAGAIN and error.strerror == os.strerror(errno.EAGAIN)
    return isinstance(error, RuntimeError) and any(words in str(error) for words in NO_THREAD)
