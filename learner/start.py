"""The command copriv from its first moment: Ctrl-C while it is imported is no traceback."""

from __future__ import annotations

import os
import signal
from importlib import import_module
from typing import NoReturn

__all__ = ["main"]

STOPPED = b"copriv: stopped; type the same command again to start over\n"


def main() -> None:
    """Import and run the command; nothing is imported before Ctrl-C ends it as quietly as later."""
    before = signal.getsignal(signal.SIGINT)
    # What a shell runs in the background ignores it.
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    run = import_module("learner.cli").main
    signal.signal(signal.SIGINT, before)
    run()


def _stop(*_: object) -> NoReturn:
    """End at once: an exception may be lost among the imports, or become another one."""
    os.write(2, STOPPED)
    os._exit(128 + signal.SIGINT)
