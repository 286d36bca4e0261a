"""How many files and connections a process may have open."""

from __future__ import annotations

import resource

__all__ = ["allow_open_files"]


def allow_open_files() -> None:
    """Open as many files and connections as the system lets us; each owner takes a few.

    A shell gives a process fewer than it may have, and gRPC ends a process that has no more.

    >>> allow_open_files()
    >>> soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    >>> soft == hard
    True
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
