"""Told to stop: by a signal, or by another thread."""

from __future__ import annotations

import os
import signal

__all__ = ["Stop"]


class Stop:
    """Waits until SIGTERM, SIGINT or somebody says stop.

    Guarantees:
      * No signal is missed. One that arrives just before a lock begins to wait is seen only when
        the lock is free; a pipe that the signal itself writes to has no such moment.

    Must be made in the main thread.
    """

    def __init__(self) -> None:
        self._told, self._tell = os.pipe()
        os.set_blocking(self._tell, False)
        signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)

    def set(self) -> None:
        """Say stop."""
        os.write(self._tell, b"\0")

    def wait(self) -> None:
        """Wait until somebody has said so."""
        os.read(self._told, 1)
