"""Linear algebra by one thread, so that products have the same bits on every machine."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread"]

_LOCK = threading.RLock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Linear algebra within is computed by the calling thread alone; it may be nested.

    How a library shares one product among threads changes its last bits, and its threads wait for
    each other: of many small matrices much longer than the work takes, of large ones where a
    machine is busy. The limit is the whole process's, so threads that ask for it take turns. It
    takes 20 microseconds.

    >>> import numpy as np
    >>> with one_blas_thread():
    ...     np.eye(2) @ np.ones(2)
    array([1., 1.])
    """
    # scipy brings a library of its own, often after an outer limit began.
    libraries = _libraries("scipy.linalg" in sys.modules)
    with _LOCK, libraries.limit(limits=1, user_api="blas"):
        yield


@cache
def _libraries(has_scipy: bool) -> ThreadpoolController:
    """The libraries that are loaded, with scipy's or without."""
    del has_scipy
    return ThreadpoolController()
