"""The line to the warm parent of a simulation's owners, and the owners that it starts."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from common.command import ESCAPED
from common.open_files import allow_open_files
from common.stopping import interrupts_held


class StartedOwner:
    """An owner's process, as its starter sees it.

    Args:
      output: What it prints.
      status: Where its process number and, once it has ended, its exit status arrive.
    """

    def __init__(self, output: int, status: int) -> None:
        self.stdout = os.fdopen(output, encoding="utf-8")
        self._status = os.fdopen(status, encoding="ascii")
        self._ended: int | None = None
        self._waiting = threading.Lock()

    @cached_property
    def pid(self) -> int:
        """Its process number; the parent sends it once it has imported everything."""
        return int(self._status.readline() or 0)

    def poll(self) -> int | None:
        """The exit status, if it has ended; below 0 for a signal."""
        return self.wait(0)

    def wait(self, seconds: float | None = None) -> int | None:
        """The exit status when it has ended; None if it has not after this many seconds."""
        with self._waiting:
            if self._ended is None:
                # Not select, which takes no handle beyond 1,023: each owner has two.
                told = select.poll()
                told.register(self._status, select.POLLIN)
                if self.pid and not told.poll(None if seconds is None else 1000 * seconds):
                    return None
                # Without a line the parent itself has ended, and its owners with it.
                self._ended = int(self._status.readline() or -signal.SIGKILL)
                self._status.close()
            return self._ended

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def stop(self, seconds: float) -> None:
        """Wait for its end, and end it after this many seconds."""
        if self.wait(seconds) is None:
            self.send_signal(signal.SIGKILL)
            self.wait()
        self.stdout.close()


class WarmParent:
    """A process that has imported what owners need, and forks one for each request."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        # What owners print is read here as UTF-8, whatever this terminal's encoding; forks cannot
        # change how they print once their output is another one. The parent runs one thread, or
        # Python 3.12 and later warn of each fork: pyarrow would begin another as it is imported.
        fixed = {
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONIOENCODING": f"utf-8:{ESCAPED}",
        }
        environment = {"GRPC_VERBOSITY": "NONE", **os.environ, **fixed}
        with there, interrupts_held():
            self._process = subprocess.Popen(  # noqa: S603
                # -P: no file of the folder where this was typed is imported by accident.
                [sys.executable, "-P", "-m", "owner.parent", str(there.fileno())],
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
            )
        self._line = here
        # All owners wait for the end of this one input: it ends with this process.
        self._waits, self._alive = os.pipe()

    def start(self, arguments: Sequence[str], *, folder: Path, log: Path) -> StartedOwner:
        """Start ``copriv-owner`` with these arguments in a folder; its log is appended to."""
        content = json.dumps({"arguments": list(arguments), "folder": str(folder)}).encode()
        with log.open("ab") as errors:
            output, its_output = os.pipe()
            status, its_status = os.pipe()
            try:
                handles = [self._waits, its_output, errors.fileno(), its_status]
                socket.send_fds(self._line, [len(content).to_bytes(4, "little")], handles)
                self._line.sendall(content)
            except BrokenPipeError:
                pass  # the parent has ended: so has the owner, as its two pipes will say
            finally:
                os.close(its_output)
                os.close(its_status)
        return StartedOwner(output, status)

    def close(self) -> None:
        """Fork no more; owners that are left end by themselves."""
        for handle in (self._alive, self._waits):
            os.close(handle)
        self._line.close()
        # It holds nothing, and may still be importing.
        self._process.kill()
        self._process.wait()


@contextmanager
def warm_parent() -> Iterator[WarmParent]:
    """A warm parent; it imports while this process does something else."""
    allow_open_files()
    parent = WarmParent()
    try:
        yield parent
    finally:
        parent.close()
