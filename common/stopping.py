"""Waiting for the request to stop, by a signal or by another thread."""

from __future__ import annotations

import os
import signal

__all__ = ["Stop"]


class Stop:
    """Waits for SIGTERM, SIGINT or a call of :meth:`set`.

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
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)

    def set(self) -> None:
        """Request the stop."""
        os.write(self._writing, b"\0")

    def wait(self) -> None:
        """Wait until the stop is requested."""
        os.read(self._reading, 1)
