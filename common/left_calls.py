"""Calls of a library that sees no signals: a thread makes them, and who waits for it sees them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")

# Between two looks for a signal.
LOOK_SECONDS = 0.5
# A library that can be told to end a call does so within some hundredths.
END_SECONDS = 10.0


class LeftCalls:
    """Calls to one connection, one after another; a signal ends the wait for one.

    Args:
      end: Makes the library end a call; None where it cannot, and the call goes on by itself.

    >>> LeftCalls().run(pow, 2, 3)
    8
    """

    def __init__(self, end: Callable[[], object] | None = None) -> None:
        self._end = end
        # Whether somebody else uses the connection still, perhaps for ever.
        self.are_left = False

    def run(self, call: Callable[..., T], *arguments: object) -> T:
        """What a call of the library returns; the main thread sees signals meanwhile."""
        if threading.current_thread() is not threading.main_thread():
            return call(*arguments)
        future: Future[T] = Future()
        thread = threading.Thread(target=_settle, args=(future, call, *arguments), daemon=True)
        thread.start()
        try:
            # A signal just before a lock begins to wait is seen only when that ends.
            while not future.done() and thread.is_alive():
                wait([future], timeout=LOOK_SECONDS)
        except BaseException:
            self.are_left = True
            if self._end is not None:
                self._end()
                wait([future], timeout=END_SECONDS)
                self.are_left = not future.done()
            raise
        if not future.done():
            raise MemoryError("the thread that made a call has ended")
        return future.result()


def _settle(future: Future[T], call: Callable[..., T], *arguments: object) -> None:
    """Make a call, and say what came of it.

    The thread holds all that the call uses: nothing of it is freed before the call is over.
    """
    try:
        future.set_result(call(*arguments))
    except BaseException as error:
        future.set_exception(error)
