"""Stopping: no word of it is missed, whenever it comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, threading
from common.stopping import Stop
stop = Stop()
stop.take_signals()
{said}
stop.wait()
print("over")
"""


@pytest.mark.parametrize(
    "said",
    [
        "os.kill(os.getpid(), signal.SIGTERM)",
        "os.kill(os.getpid(), signal.SIGINT)",
        "stop.set()",
        "threading.Timer(0.2, stop.set).start()",
        "threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()",
        # A signal that another thread takes does not wake the one that waits, but the pipe does.
        "def other():\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "threading.Timer(0.2, other).start()",
    ],
)
def test_no_word_is_missed(said):
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(said=said)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, "over\n"), result.stderr
