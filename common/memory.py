"""Memory that is free is kept for what comes next, or given back, where the C library can do it."""

from __future__ import annotations

import ctypes
from functools import cache

# Names of the GNU C library's settings.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# Larger arrays go back to the system at once, and no more than this is kept.
LARGEST_BYTES, KEPT_BYTES = 2**26, 2**28


@cache
def reuse_memory() -> None:
    """Keep up to 256 MiB of freed memory in this process from now on.

    Simulated studies make and free arrays of many megabytes thousands of times. Given back to the
    system, each comes again as empty pages, which takes as long as what is computed in them. Other
    C libraries than GNU's are left as they are.

    >>> reuse_memory()
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, LARGEST_BYTES)
        set_option(_TRIM_THRESHOLD, KEPT_BYTES)


def give_back_memory() -> None:
    """Give free memory back to the system now: what callers took at once would stay for ever.

    Takes milliseconds; other C libraries than GNU's are left as they are.

    >>> give_back_memory()
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
