"""Linear algebra by one thread, so that products have the same bits on every machine."""

from __future__ import annotations

import sys
import threading
from contextlib import ContextDecorator
from functools import cache
from typing import Any

from threadpoolctl import OpenBLASController, ThreadpoolController


def one_blas_thread() -> _Limited:
    """Linear algebra within is computed by the calling thread alone; it may be nested.

    How a library shares one product among threads changes its last bits, and its threads wait for
    each other: of many small matrices much longer than the work takes, of large ones where a
    machine is busy. The limit is the whole process's: it ends with the last who asked for it, and
    nobody waits for others. It takes 20 microseconds, and one where it holds already.

    >>> import numpy as np
    >>> with one_blas_thread():
    ...     np.eye(2) @ np.ones(2)
    array([1., 1.])
    """
    return _LIMITED


class _Limited(ContextDecorator):
    """Work under the limit; one object for all of it, since it has no state of its own."""

    def __enter__(self) -> None:
        """Begin."""
        _LIMIT.begin()

    def __exit__(self, *_: object) -> None:
        """End."""
        _LIMIT.end()


class _Limit:
    """The limit that all threads of the process share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        # By whether scipy was loaded: it brings a library of its own, often after a limit began.
        self._limited: dict[bool, Any] = {}

    def begin(self) -> None:
        """Limit what is loaded by now."""
        with self._lock:
            self._count += 1
            has_scipy = "scipy.linalg" in sys.modules
            if has_scipy not in self._limited:
                _release_control()
                self._limited[has_scipy] = _libraries(has_scipy).limit(limits=1, user_api="blas")

    def end(self) -> None:
        """Give back what was there before, where nobody else needs the limit."""
        with self._lock:
            self._count -= 1
            if self._count:
                return
            _release_control()
            while self._limited:
                _, limited = self._limited.popitem()
                limited.restore_original_limits()
            _release_control()


def _release_control() -> None:
    """Let whichever thread comes next change limits: some versions let only the first one."""
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@cache
def _libraries(has_scipy: bool) -> ThreadpoolController:
    """The libraries that are loaded, with scipy's or without."""
    del has_scipy
    return ThreadpoolController()


_LIMIT, _LIMITED = _Limit(), _Limited()
