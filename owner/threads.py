"""Threads that do the work of calls, each kind for itself so that none waits for another kind.

Where memory runs out, a thread may end at any step, and who waits for it would wait for ever. So
all that wait here wait for a thread that is known to have begun, and if a thread that serves calls
cannot go on, neither can the owner, which ends.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

log = logging.getLogger("copriv.owner")

T = TypeVar("T")

# A tenth of Python's own.
SWITCH_SECONDS = 0.0005
# A thread begins at once, or within a second or two where hundreds of others wait for a core.
BEGIN_SECONDS = 15.0
# Of an owner that ends since it cannot go on: who supervises it starts it again.
LOST_STATUS = 1
LOST = "a thread that this owner needs has ended, as where memory runs out; start it again"

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


def begun(work: Callable[[], object], *, name: str) -> threading.Thread:
    """A new thread that has begun to do some work.

    ``Thread.start`` waits for ever for a thread that finds no memory for its first step. Another
    thread does that here, and only that one waits then.

    Args:
      work: What the thread does; it does not keep the process from ending.
      name: What the thread is called.

    Raises:
      RuntimeError: It did not begin; if it still does, it ends at once.
    """
    is_there, taken = threading.Lock(), threading.Lock()

    def run() -> None:
        if taken.acquire(blocking=False):
            is_there.release()
            work()

    thread = threading.Thread(target=run, name=name, daemon=True)

    def start() -> None:
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            # Whoever waits is told at once that it did not begin.
            refused.append(True)
            with contextlib.suppress(RuntimeError):
                is_there.release()

    refused: list[bool] = []
    is_there.acquire()
    _thread.start_new_thread(start, ())
    is_late = not is_there.acquire(timeout=BEGIN_SECONDS)
    if (is_late or refused) and taken.acquire(blocking=False):
        raise RuntimeError(f"the thread {name!r} did not begin, as where memory runs out")
    return thread


def needed(work: Callable[[], object]) -> Callable[[], None]:
    """Work of a thread without which calls would wait for ever: if it fails, the process ends.

    Nothing is lost by that: a response is charged before it leaves, and repeated if it is asked
    for again.
    """

    def run() -> None:
        try:
            work()
        except BaseException:
            _end_lost()

    return run


def _end_lost() -> NoReturn:
    """End this process in one line; what needs memory may fail."""
    try:
        log.critical(LOST)
    finally:
        os._exit(LOST_STATUS)


class Workers:
    """Threads that do one piece of work after another; they begin when this is made.

    A ThreadPoolExecutor does the same with a tenth of a millisecond more for each call, which
    is a tenth of an answer; it starts threads where memory may have run out, and one that ends
    then leaves its caller to wait for ever.

    Args:
      name: What the threads are called.
      count: How many there are.

    Raises:
      RuntimeError: They did not begin.
    """

    def __init__(self, name: str, count: int = 1) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        for _ in range(count):
            begun(needed(self._work), name=name)

    def begin(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        """Have the work done; what comes of it is told to this event loop, which goes on."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._jobs.put((loop, future, work))
        return future

    def stop(self) -> None:
        """Do what is waiting, and no more."""
        self._jobs.put(None)

    def _work(self) -> None:
        """Take one piece after another; the end is for all threads."""
        while (job := self._jobs.get()) is not None:
            loop, future, work = job
            try:
                done, failure = work(), None
            except Exception as error:
                done, failure = None, error
            loop.call_soon_threadsafe(_resolve, future, done, failure)
            # Nothing of a call is kept while the next one is waited for.
            del job, future, work, done, failure
        self._jobs.put(None)


async def to_its_end(
    begin: Callable[[Callable[[], T | None]], asyncio.Future[T | None]],
    work: Callable[[], T | None],
) -> T | None:
    """The result of work in a thread; a caller cancelled meanwhile ends no sooner than the thread.

    A task that waits for a thread holds a call's message. If a cancelled call gave up its place
    before that, whoever calls and cancels in a loop would fill the memory.

    Args:
      begin: Has work done by a thread.
      work: It is not begun for a caller that is gone.
    """
    is_wanted = True
    future = begin(lambda: work() if is_wanted else None)
    try:
        await asyncio.wait([future])
    except asyncio.CancelledError:
        is_wanted = False
        await asyncio.wait([future])
        if not future.cancelled():
            # Nobody else hears of an error.
            future.exception()
        raise
    try:
        return future.result()
    finally:
        # An error holds what is here, and the future it: a cycle, with a call's message in it.
        del future


def _resolve(future: asyncio.Future[Any], done: Any, failure: Exception | None) -> None:
    """Hand over what came of some work."""
    if future.done():
        return
    if failure is None:
        future.set_result(done)
    else:
        future.set_exception(failure)


class _Sharing:
    """How many threads compute for long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._usual = sys.getswitchinterval()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """While this lasts the thread lets others in sooner than it would otherwise."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    def _change(self, more: int) -> None:
        with self._lock:
            self._count += more
            sys.setswitchinterval(SWITCH_SECONDS if self._count else self._usual)


sharing = _Sharing()
