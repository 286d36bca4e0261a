"""The commands in processes of their own that begin at once: forks of one that has imported all.

A process takes most of a second to import what it needs. Here one process does that once, and
each command is a fork of it, with its own arguments, folder, environment, output and signals, and
an exit status like any other. What begins an interpreter, and what is typed in a shell, is for
the tests that run the documents' commands.
"""

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import NamedTuple

LONGEST_REQUEST = 2**20
COMMANDS = {"copriv": "learner.cli", "copriv-owner": "owner.cli"}
PRELOADED = (
    "learner.commands.each_learns",
    "learner.commands.forecast",
    "learner.commands.study",
    "learner.network.connections",
    "learner.results.report",
    "owner.attaching",
    "owner.server",
)


class Ended(NamedTuple):
    """What a command that has ended said; in the order of `subprocess`'s own fields."""

    returncode: int
    stdout: str
    stderr: str


class Forked:
    """A command that runs; what it can do is a part of what `subprocess.Popen` can."""

    def __init__(self, name, *arguments, cwd=None, **environment):
        pipes = [os.pipe() for _ in range(3)]
        self.stdout, self.stderr, self._status = (os.fdopen(reads) for reads, _ in pipes)
        request = {
            "name": name,
            "arguments": [str(one) for one in arguments],
            "cwd": str(cwd or Path.cwd()),
            "environment": {**os.environ, **environment},
        }
        writes = [handle for _, handle in pipes]
        with _lock:
            content = json.dumps(request).encode()
            socket.send_fds(_origin(), [len(content).to_bytes(4, "little")], writes)
            _origin().sendall(content)
        for handle in writes:
            os.close(handle)
        self.returncode = None
        self.pid = int(self._status.readline())

    def poll(self):
        """The exit status, if it has ended; below 0 for a signal."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout=None):
        """The exit status, when it has ended."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked command", timeout or 0.0)
            self.returncode = int(self._status.readline())
            self._status.close()
        return self.returncode

    def communicate(self, timeout=None):
        """All that it says from now on; it has ended then."""
        said = ["", ""]

        def read(index, stream):
            said[index] = stream.read()
            stream.close()

        threads = [
            threading.Thread(target=read, args=(index, stream), daemon=True)
            for index, stream in enumerate((self.stdout, self.stderr))
            if not stream.closed
        ]
        for thread in threads:
            thread.start()
        self.wait(timeout)
        for thread in threads:
            thread.join(timeout)
        return said[0], said[1]

    def send_signal(self, number):
        """Send it a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self):
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self):
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def run(name, *arguments, timeout=600, **more):
    """A whole command, from its arguments to its exit status."""
    process = Forked(name, *arguments, **more)
    try:
        out, err = process.communicate(timeout)
    finally:
        process.kill()
    return Ended(process.wait(), out, err)


_lock = threading.Lock()
_begun = []


def _origin():
    """The line to the process that all commands are forks of; it ends with this process."""
    if not _begun:
        here, there = socket.socketpair()
        # Streams as a command wants them: whose handles were replaced cannot be changed any more.
        printed = {"PYTHONIOENCODING": "utf-8:backslashreplace"}
        process = subprocess.Popen(
            [sys.executable, __file__, str(there.fileno())],
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
            env={"GRPC_VERBOSITY": "NONE", "OPENBLAS_NUM_THREADS": "1", **os.environ, **printed},
        )
        there.close()
        _begun.append((here, process))
    return _begun[0][0]


def _commands(requests):
    """Fork for each request; returns the request, in the process that shall run it."""
    while True:
        size, handles, _, _ = socket.recv_fds(requests, 4, 3)
        if len(size) < 4:
            sys.exit()
        content = b""
        while len(content) < int.from_bytes(size, "little"):
            content += requests.recv(LONGEST_REQUEST)
        # A process between, which is the command's parent: it learns how the command ends.
        keeper = os.fork()
        if keeper == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            pid = os.fork()
            if pid == 0:
                os.close(handles[2])
                for handle, number in zip(handles, (1, 2), strict=False):
                    os.dup2(handle, number)
                    os.close(handle)
                return json.loads(content)
            os.close(handles[0])
            os.close(handles[1])
            os.write(handles[2], b"%d\n" % pid)
            _, status = os.waitpid(pid, 0)
            os.write(handles[2], b"%d\n" % os.waitstatus_to_exitcode(status))
            os._exit(0)
        for handle in handles:
            os.close(handle)


def main():
    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()
    # Nobody waits for the processes between.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        request = _commands(requests)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.argv = [request["name"], *request["arguments"]]
    _end(importlib.import_module(COMMANDS[request["name"]]).main)


def _end(command):
    """Run a command to the end of its process, but for the freeing of all that was imported."""
    code = 0
    try:
        command()
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    assert isinstance(code, int), code
    os._exit(code)


if __name__ == "__main__":
    main()
