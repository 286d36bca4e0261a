"""How much of the machine's memory a command may take: beyond it is an error, not a kill."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

__all__ = ["available_bytes", "limit_memory"]

# Threads and libraries ask for some memory that they never touch.
LEAST_LIMIT = 2**32


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """How much memory is left on this machine; None where the system does not say.

    Args:
      meminfo: The system's file about it.
    """
    try:
        text = meminfo.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None
    found = re.search(r"^MemAvailable:\s+([0-9]+) kB$", text, re.MULTILINE)
    return None if found is None else int(found[1]) * 1024


def limit_memory() -> None:
    """Let this process have what is left of the machine's memory, and at least half of all.

    A few kilobytes of Parquet may stand for more cells than any memory holds. Beyond the limit a
    ``MemoryError`` is raised; without one the kernel kills this process, or an owner beside it. A
    lower limit that somebody set stays.
    """
    left = available_bytes()
    if left is None:
        return
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    given = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    limit = min([max(left, half, LEAST_LIMIT), *given])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
