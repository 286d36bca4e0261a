"""A command from its first moment: Ctrl-C while it is imported is no traceback."""

from __future__ import annotations

import os
import signal
from importlib import import_module

__all__ = ["start"]


def start(command: str, module: str) -> None:
    """Import a command's module and run its ``main``; Ctrl-C before that ends it quietly, too.

    Nothing else is imported first, since imports take most of a second.

    Args:
      command: Its name.
      module: Where its ``main`` is.
    """
    stopped = f"{command}: stopped; type the same command again to start over\n".encode()

    def stop(*_: object) -> None:
        # At once: an exception may be lost among the imports, or become another one.
        os.write(2, stopped)
        os._exit(128 + signal.SIGINT)

    # Who started this may ignore the end of its processes, and hands that on: of ours it is told.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.getsignal(signal.SIGINT)
    # What a shell runs in the background ignores it.
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop)
    run = import_module(module).main
    signal.signal(signal.SIGINT, before)
    run()
