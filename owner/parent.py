"""The warm parent of many owners on one machine: it has imported what serving needs, and forks.

A process takes most of a second to import what it needs; a fork of one that has imported it begins
at once and shares its memory. Each owner is a process like any other: its own arguments, folder,
input, output, log, signals and exit status. ``copriv simulate`` starts its owners so.

The parent runs one thread, has begun no gRPC, opened no table and no ledger, and drawn no
randomness: a fork inherits nothing that one owner could share with another.

Usage: python -m owner.parent SOCKET, where requests arrive; it ends when the other side closes.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from common.thread_limit import NO_MORE_THREADS, NO_THREAD_STATUS

# What an owner imports until it serves, some of it only when it is needed.
PRELOADED = (
    "encodings.idna",
    "opendp.domains",
    "opendp.measurements",
    "owner.attaching",
    "owner.cli",
    "owner.server",
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
)
HANDLES = 4
LENGTH_BYTES = 4


def main() -> None:
    """Import, then fork for each request until there are no more."""
    # A Ctrl-C on the terminal reaches all: the learner says when its owners stop. It held this one
    # back for as long as it would have been a traceback among the imports.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    gc.disable()
    for module in PRELOADED:
        importlib.import_module(module)
    # Imported above, here only so that ``import owner.parent`` stays quick.
    from common.blas import one_blas_thread  # noqa: PLC0415
    from owner.mechanism import load_library  # noqa: PLC0415

    load_library()
    # Which libraries are loaded is looked up once, for all owners.
    with one_blas_thread():
        pass
    # What is here stays here: no search for garbage writes to pages that all share.
    gc.collect()
    gc.freeze()
    gc.enable()
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        request = fork_for_each(requests)
    if request is not None:
        _run(request)


def fork_for_each(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for each request; returns the request in the fork, and None where there are no more.

    A request is a length, a JSON text (arguments, folder) and four handles: the fork's input,
    output and log, and where its process number and then its exit status are written.
    """
    watchers: dict[int, int] = {}
    with _ends_told() as ended:
        told = select.poll()
        for each in (requests.fileno(), ended):
            told.register(each, select.POLLIN)
        while True:
            ready = [handle for handle, _ in told.poll()]
            if ended in ready:
                os.read(ended, select.PIPE_BUF)
                _report_ends(watchers)
            if requests.fileno() not in ready:
                continue
            size, handles, _, _ = socket.recv_fds(requests, LENGTH_BYTES, HANDLES)
            if len(size) < LENGTH_BYTES:
                return None
            content = _received(requests, int.from_bytes(size, "little"))
            if _forked(handles, watchers):
                request: dict[str, Any] = json.loads(content)
                return request


@contextmanager
def _ends_told() -> Iterator[int]:
    """A pipe that can be read when a fork has ended; the signal itself writes to it.

    One that comes just before a wait begins interrupts no wait. Python would look for it when the
    wait is over: of the last fork that ends that was never, and who had asked for it waited on.
    """
    ended, telling = os.pipe()
    os.set_blocking(telling, False)
    signal.set_wakeup_fd(telling, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        yield ended
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        for handle in (ended, telling):
            os.close(handle)


def _forked(handles: list[int], watchers: dict[int, int]) -> bool:
    """Fork, and note where its end is reported; whether this is the fork."""
    *own, status = handles
    try:
        pid = os.fork()
    except OSError:
        # To whoever asked for it, it has ended at once.
        _tell(own[-1], f"copriv-owner: {NO_MORE_THREADS}\n".encode())
        _tell(status, b"0\n%d\n" % NO_THREAD_STATUS)
        own = handles
    else:
        if pid == 0:
            for handle in (status, *watchers.values()):
                os.close(handle)
            for handle, number in zip(own, (0, 1, 2), strict=True):
                os.dup2(handle, number)
                os.close(handle)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            return True
        _tell(status, b"%d\n" % pid)
        watchers[pid] = status
    for handle in own:
        os.close(handle)
    return False


def _report_ends(watchers: dict[int, int]) -> None:
    """Write the exit status of each fork that has ended to its handle."""
    while watchers:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        handle = watchers.pop(pid)
        _tell(handle, b"%d\n" % os.waitstatus_to_exitcode(status))
        os.close(handle)


def _tell(handle: int, said: bytes) -> None:
    """Write to whoever asked for a fork, who may have been killed meanwhile."""
    with suppress(BrokenPipeError):
        os.write(handle, said)


def _received(requests: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = requests.recv(size - len(content))
        if not part:
            return b"{}"
        content += part
    return content


def _run(request: dict[str, Any]) -> None:
    """The owner's command, to the end of its process but for the freeing of what it shares."""
    # Imported above; only forks come here.
    from common.stopping import end_now  # noqa: PLC0415
    from owner import cli  # noqa: PLC0415

    code: object = 1
    try:
        os.chdir(request["folder"])
        sys.argv = ["copriv-owner", *request["arguments"]]
        cli.main()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
    end_now(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    main()
