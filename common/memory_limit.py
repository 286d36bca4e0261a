"""How much memory a command may take: beyond it is an error, not a kill."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

# Threads and libraries ask for some memory that they never touch: no limit is less than the first,
# nor than the second where there is so much.
LEAST_LIMIT, USUAL_LIMIT = 2**31, 2**32
ROOT = Path("/")
# Of control groups of version 2 and 1, by what /proc/self/cgroup calls them: where they are, their
# limit, what they use, and how the lines begin that say how much of it are files read before.
GROUPS = {
    "": ("", "memory.max", "memory.current", ""),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
}


def memory_bytes(root: Path = ROOT) -> int:
    """All memory that this process could have: the machine's, in a container what that may take.

    Args:
      root: Where the system's own files are.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *(limit for limit, _ in _groups(root))])


def available_bytes(root: Path = ROOT) -> int | None:
    """How much of that is left; None where the system does not say.

    Args:
      root: As of :func:`memory_bytes`.
    """
    found = re.search(r"^MemAvailable:\s+([0-9]+) kB$", _text(root / "proc/meminfo"), re.MULTILINE)
    if found is None:
        return None
    return min([int(found[1]) * 1024, *(max(0, left) for _, left in _groups(root))])


def limit_memory() -> None:
    """Let this process have the memory that is left, and at least half of all.

    A few kilobytes of Parquet may stand for more cells than any memory holds. Beyond the limit a
    ``MemoryError`` is raised; without one the kernel kills this process, or an owner beside it. A
    lower limit that somebody set stays.
    """
    left = available_bytes()
    if left is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    given = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    limit = min([share_of(left, memory_bytes()), *given])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def share_of(left: int, total: int) -> int:
    """How many bytes a command may have where so many are left, of so many in all.

    >>> [share_of(left << 30, total << 30) >> 30 for left, total in ((20, 24), (7, 24), (1, 6))]
    [20, 12, 4]
    >>> [share_of(total // 2, total) >> 20 for total in (3 << 30, 1 << 30)]
    [3072, 2048]
    """
    return max(left, total // 2, LEAST_LIMIT, min(total, USUAL_LIMIT))


def _groups(root: Path) -> Iterator[tuple[int, int]]:
    """The limit, and what is left of it, of each control group with one that this process is in."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, kind, name = line.split(":", 2)
        if kind not in GROUPS:
            continue
        folder, limit, used, prefix = GROUPS[kind]
        own = Path(name.lstrip("/"))
        # A container may see its own group as the uppermost, whatever its name is.
        for group in (own, *own.parents):
            place = root / "sys/fs/cgroup" / folder / group
            most, taken = _text(place / limit).strip(), _text(place / used).strip()
            if most.isdecimal() and taken.isdecimal():
                # The kernel drops what it keeps of files before it refuses memory.
                files = rf"^{prefix}(?:in)?active_file ([0-9]+)$"
                kept = re.findall(files, _text(place / "memory.stat"), re.MULTILINE)
                yield int(most), int(most) - int(taken) + sum(map(int, kept))


def _text(path: Path) -> str:
    """A file of the system's; empty where there is none."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
