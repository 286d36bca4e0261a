"""Stopping: no word of it is missed, whenever it comes."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from calls import methods

from common import codec
from learner.network.attachment_server import AttachmentServer
from owner.ledger_reading import read_studies

PROGRAM = """
import os, signal, threading
from common.stopping import Stop
# The tests may have been started by nohup.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
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
        "os.kill(os.getpid(), signal.SIGHUP)",
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


def test_a_terminal_that_closes_does_not_stop_what_nohup_started():
    said = "os.kill(os.getpid(), signal.SIGHUP); print('there', flush=True); stop.set()"
    program = PROGRAM.format(said=said) + "print(signal.getsignal(signal.SIGHUP).name)\n"
    command = [sys.executable, "-c", program.replace("SIG_DFL", "SIG_IGN")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (0, "there\nover\nSIG_IGN\n"), result.stderr


# Whatever is made ready takes a minute, whoever asks for it.
SLOW_OWNER = """
import sys, time
import owner.cli, owner.ports, owner.open_study
owner.cli.GRACE_SECONDS = owner.ports.CUT_OFF_SECONDS = 0.3
def slow(*_):
    # In one piece, whoever else prints.
    sys.stdout.write("making ready\\n")
    sys.stdout.flush()
    time.sleep(60)
owner.open_study.StudyMaker.prepare = slow
sys.argv = ["copriv-owner", *sys.argv[1:]]
owner.cli.main()
"""


@contextmanager
def slow_owner(*arguments):
    """A process of an owner that does not end what it makes ready."""
    command = [sys.executable, "-c", SLOW_OWNER, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def is_stopped(process):
    """What it makes ready does not keep it, and its ledger is released."""
    assert process.stdout.readline() == "making ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=15) == 0


def test_an_owner_that_stops_does_not_wait_for_what_it_makes_ready(owner_folder, make_terms):
    settings = owner_folder()
    with slow_owner("serve", settings) as process:
        port = process.stdout.readline().removeprefix("serving on port ").strip()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = methods("DataOwner", channel)
            calls = [
                stub.Enroll.future(codec.terms_to_pb(make_terms()), timeout=50) for _ in range(4)
            ]
            is_stopped(process)
            assert all(call.exception() for call in calls)
    # What it was asked for is reserved nowhere, and whoever serves next holds the ledger.
    assert read_studies(settings.parent / "ledger.sqlite")[1] == []


def test_an_owner_that_attaches_and_stops_does_not_wait_for_what_it_makes_ready(
    owner_folder, make_terms
):
    settings = owner_folder()
    with AttachmentServer(["owner-a"], "127.0.0.1:0", deadline=50, patience=20) as learner:
        there = f"127.0.0.1:{learner.port}"
        with (
            slow_owner("attach", settings, "--learner", there) as process,
            ThreadPoolExecutor(1) as asking,
        ):
            assert process.stdout.readline().startswith("attaching to the learner")
            asked = asking.submit(learner.owners[0].enroll, make_terms())
            is_stopped(process)
            assert asked.exception(timeout=20) is not None
    assert read_studies(settings.parent / "ledger.sqlite")[1] == []


def test_who_waits_for_an_owner_to_attach_is_woken_by_the_end():
    with (
        AttachmentServer(["owner-a"], "127.0.0.1:0", deadline=50, patience=50) as learner,
        ThreadPoolExecutor(1) as asking,
    ):
        asked = asking.submit(learner.owners[0].describe)
        time.sleep(0.2)
        learner.owners[0].disconnect()
        assert "is not attached" in str(asked.exception(timeout=5))
