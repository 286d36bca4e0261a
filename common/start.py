"""A command from its first moment: Ctrl-C while it is imported is no traceback."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module

from common.thread_limit import NO_MORE_THREADS, NO_THREAD_STATUS, need_threads

# What is said of a library that finds no room, by whatever error it tells of that.
NO_ROOM = ("failed to map segment", "annot allocate memory")
TOO_LITTLE = (
    "a library finds no room in the memory that this process may have; raise that (ulimit -v), or "
    "run it where there is more"
)
NO_LINUX = (
    "copriv runs on Linux: on Windows type this in WSL 2, on macOS and elsewhere in a container "
    "(docker compose)"
)


def start(command: str, module: str) -> None:
    """Import a command's module and run its ``main``; Ctrl-C before that ends it quietly, too.

    So does a library that finds no room, then or later: the largest are imported when needed.
    Nothing else is imported first, since imports take most of a second. OpenBLAS, whose threads
    begin as it is imported, presses Ctrl-C where they do not.

    Args:
      command: Its name.
      module: Where its ``main`` is.
    """
    if sys.platform != "linux":
        os.write(2, f"{command}: {NO_LINUX}\n".encode())
        sys.exit(2)
    stopped = f"{command}: stopped; type the same command again to start over\n".encode()

    def stop(*_: object) -> None:
        # At once: an exception may be lost among the imports, or become another one.
        try:
            need_threads(1)
        except RuntimeError:
            os.write(2, f"{command}: {NO_MORE_THREADS}\n".encode())
            os._exit(NO_THREAD_STATUS)
        os.write(2, stopped)
        os._exit(128 + signal.SIGINT)

    # Who started this may ignore the end of its processes, and hands that on: of ours it is told.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.getsignal(signal.SIGINT)
    # What a shell runs in the background ignores it.
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop)
    try:
        run = import_module(module).main
        signal.signal(signal.SIGINT, before)
        run()
    except Exception as error:
        if not isinstance(error, MemoryError) and not any(text in str(error) for text in NO_ROOM):
            raise
        os.write(2, f"{command}: {TOO_LITTLE}\n".encode())
        sys.exit(2)
