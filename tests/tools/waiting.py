"""Waiting for what comes about by itself."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], object], *, seconds: float = 60.0) -> None:
    """Return as soon as it holds.

    Raises:
      AssertionError: It does not come about in time.
    """
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up, f"it did not come about in {seconds:g} s"
        time.sleep(0.01)
