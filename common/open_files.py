"""How many files and connections a process may have open."""

from __future__ import annotations

import os
import resource

from common.errors import InputError

# With fewer gRPC's threads end the process by a signal, and tables and ledgers cannot be opened.
FEWEST = 64


def allow_open_files() -> None:
    """Open as many files and connections as the system lets us; each owner takes a few.

    A shell gives a process fewer than it may have, and gRPC ends a process that has no more.

    Raises:
      InputError: The system lets us open too few for any command.

    >>> allow_open_files()
    >>> soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    >>> soft == hard
    True
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < FEWEST:
        raise InputError(
            f"a process may open {hard} files and connections here, and {FEWEST} are needed; "
            "raise that (ulimit -n, LimitNOFILE=)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def used_up() -> str:
    """A sentence if this process can open no further file or connection; "" if it can.

    gRPC says nothing of callers that it cannot let in: they wait.
    """
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            f"no further file or connection can be opened ({error.strerror}), so nobody else is "
            f"let in until one is closed; this process may have {most}: raise it (ulimit -n, "
            "LimitNOFILE=), or look who keeps connections open"
        )
    return ""
