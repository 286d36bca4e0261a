"""Owners that are not there yet as a training starts: who is waited for, and for how long."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from common.texts import named
from learner.results.verdict_words import NAMED

log = logging.getLogger("copriv.learner")

# Owners that answer within this many seconds are not named.
WARN_AFTER = 1.0


class Arrivals:
    """Says who is waited for at the start, who still is as others come, and when all have come.

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
        # Who was named last; None before anybody was.
        self._warned_of: list[str] | None = None

    @contextmanager
    def expected(self, name: str) -> Iterator[None]:
        """While an owner is asked for the first time; one that does not answer is still missing."""
        with self._changing:
            if self._warned_of is None and self._patience > WARN_AFTER:
                self._warn_soon()
        yield
        with self._changing:
            was_missing = name in self._missing
            self._missing.pop(name, None)
            is_last = was_missing and not self._missing and bool(self._warned_of)
            if was_missing and self._missing and self._warned_of:
                self._warn_soon()
        if is_last:
            self._on_all()

    def close(self) -> None:
        """Nobody is waited for any more."""
        with self._changing:
            self._missing = {}
            if self._timer is not None:
                self._timer.cancel()

    def _warn_soon(self) -> None:
        """Owners that arrive together are named together."""
        if self._timer is None:
            self._timer = threading.Timer(WARN_AFTER, self._warn)
            self._timer.daemon = True
            self._timer.start()

    def _warn(self) -> None:
        with self._changing:
            before, self._warned_of, self._timer = self._warned_of, list(self._missing), None
            names = named(self._warned_of, NAMED)
        if before:
            if names:
                log.warning("still waiting for %s", names)
        elif names:
            log.warning("waiting for %s; gives up after %g s", names, self._patience)
