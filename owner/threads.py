"""Threads that do the work of calls, each kind for itself so that none waits for another kind."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

__all__ = ["QuickThread", "sharing", "to_its_end"]

T = TypeVar("T")

# A tenth of Python's own.
SWITCH_SECONDS = 0.0005

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class QuickThread:
    """A thread for work that takes about a millisecond, one piece after another.

    A ThreadPoolExecutor does the same with a tenth of a millisecond more for each call, which
    is a tenth of an answer.
    """

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

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
        while (job := self._jobs.get()) is not None:
            loop, future, work = job
            try:
                done, failure = work(), None
            except Exception as error:
                done, failure = None, error
            loop.call_soon_threadsafe(_resolve, future, done, failure)
            # Nothing of a call is kept while the next one is waited for.
            del job, future, work, done, failure


async def to_its_end(
    begin: Callable[[Callable[[], T | None]], asyncio.Future[T | None]],
    work: Callable[[], T | None],
) -> T | None:
    """What comes of work in a thread; who is cancelled meanwhile ends no sooner than the thread.

    What waits for a thread holds a call's message. If a call that is cancelled gave up its place
    before that, whoever calls and cancels again and again would fill the memory.

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
