"""Owners that are not there yet as a training starts: who is waited for, and for how long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

__all__ = ["Arrivals"]

log = logging.getLogger("copriv.learner")

# Owners that answer within so many seconds are not spoken of.
TOLD_AFTER = 1.0
NAMED = 6


class Arrivals:
    """Says once who is waited for at the start, and when all have come.

    Args:
      names: The owners.
      patience: Seconds after which the start is given up.
      on_all: Called when the last has come, if it was said that it was waited for.
    """

    def __init__(
        self, names: Iterable[str], *, patience: float, on_all: Callable[[], None]
    ) -> None:
        self._missing = dict.fromkeys(names)
        self._patience, self._on_all = patience, on_all
        self._changing = threading.Lock()
        self._timer: threading.Timer | None = None
        self._is_told = False

    @contextmanager
    def expected(self, name: str) -> Iterator[None]:
        """While an owner is asked for the first time; one that does not answer is still missing."""
        with self._changing:
            if self._timer is None and self._patience > TOLD_AFTER:
                self._timer = threading.Timer(TOLD_AFTER, self._tell)
                self._timer.daemon = True
                self._timer.start()
        yield
        with self._changing:
            was_missing = name in self._missing
            self._missing.pop(name, None)
            is_last = was_missing and not self._missing and self._is_told
        if is_last:
            self._on_all()

    def close(self) -> None:
        """Nobody is waited for any more."""
        with self._changing:
            self._missing = {}
            if self._timer is not None:
                self._timer.cancel()

    def _tell(self) -> None:
        with self._changing:
            missing = list(self._missing)
            self._is_told = bool(missing)
        if missing:
            more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
            names = ", ".join(missing[:NAMED])
            log.warning("waiting for %s%s; gives up after %g s", names, more, self._patience)
