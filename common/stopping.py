"""Waiting for the request to stop, by a signal or by another thread; and the end after it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import NoReturn

from common.files import remove_private_folder

__all__ = ["GRACE_SECONDS", "Stop", "end_now"]

# What is under way may take so long to finish.
GRACE_SECONDS = 5.0


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
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
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
