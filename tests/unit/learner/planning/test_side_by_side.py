"""What copies of this process compute is what this process would, and they leave nothing."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
from waiting import is_there, wait_until

from common.errors import InputError
from learner.planning import side_by_side as module
from learner.planning.side_by_side import side_by_side

HERE = os.getpid()
PATIENCE = 60.0
# A process that works side by side with a copy which never ends, until it is killed.
KILLED = """
import os, sys, time
from pathlib import Path
os.sched_getaffinity = lambda _: {0, 1}
from learner.planning.side_by_side import side_by_side
def endless():
    Path(sys.argv[1]).write_text(str(os.getpid()))
    time.sleep(600)
with side_by_side([endless]):
    time.sleep(600)
"""
# A copy that is made while this process serves by gRPC: how many threads are its own.
SERVING = """
import os, time
from concurrent.futures import ThreadPoolExecutor
os.sched_getaffinity = lambda _: {0, 1}
from learner.planning.side_by_side import side_by_side
import grpc
server = grpc.server(ThreadPoolExecutor(1))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
channel = grpc.insecure_channel(f"127.0.0.1:{port}")
grpc.channel_ready_future(channel).result(60)
def threads():
    time.sleep(0.5)
    return os.getpid(), len(os.listdir("/proc/self/task"))
with side_by_side([threads]) as results:
    ((copy, count),) = results()
print(copy != os.getpid(), count, flush=True)
os._exit(0)
"""


@pytest.fixture(autouse=True)
def two_processors(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


def test_each_work_has_a_process_of_its_own():
    with side_by_side([os.getpid, os.getpid]) as results:
        here = os.getpid()
        one, other = results()
    assert len({here, one, other}) == 3
    assert not is_there(one)
    assert not is_there(other)


@pytest.mark.parametrize("why", ["one processor", "worker"])
def test_where_others_have_the_processors_all_is_done_here(monkeypatch, why):
    if why == "worker":
        monkeypatch.setattr(multiprocessing, "parent_process", lambda: "its parent")
    else:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    with side_by_side([os.getpid]) as results:
        assert results() == [os.getpid()]


def test_a_copy_cleans_up_nothing_that_it_did_not_make(tmp_path):
    class Library:
        """Something that is thrown away, and then closes a file that a copy has closed."""

        def __init__(self):
            self.itself = self

        def __del__(self):
            (tmp_path / str(os.getpid())).touch()

    def collects():
        gc.collect()
        return os.getpid()

    gc.disable()
    try:
        Library()
        with side_by_side([collects]) as results:
            [copy] = results()
    finally:
        gc.enable()
    assert copy != os.getpid()
    assert not (tmp_path / str(copy)).exists()


def test_where_the_system_has_no_room_for_a_copy_all_is_done_here(monkeypatch):
    def full():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", full)
    with side_by_side([os.getpid]) as results:
        assert results() == [os.getpid()]


def test_what_a_work_raises_is_raised_here():
    def fails():
        raise InputError(f"no records in {os.getpid()}")

    with side_by_side([fails]) as results, pytest.raises(InputError, match=f"in {os.getpid()}"):
        results()


def killed():
    if os.getpid() != HERE:
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def cannot_be_told():
    return lambda: "done"


def test_what_a_killed_copy_had_to_do_is_done_here():
    with side_by_side([killed]) as results:
        assert results() == ["done"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_copy_does_not_do_what_its_program_does_when_it_is_stopped(number):
    """Each copy would else tell people what to type next."""

    def stopped():
        if os.getpid() != HERE:
            os.kill(os.getpid(), number)
        return os.getpid()

    before = signal.signal(number, lambda *_: None)
    try:
        with side_by_side([stopped]) as results:
            assert results() == [HERE]
    finally:
        signal.signal(number, before)


def test_a_copy_that_is_killed_while_it_hands_its_result_over_is_not_believed(monkeypatch):
    copies, fork = [], os.fork

    def noted():
        copies.append(fork())
        return copies[-1]

    def tells(copy, receiver):
        # More than a pipe holds is under way.
        assert receiver.poll(PATIENCE)
        os.kill(copy, signal.SIGKILL)
        return True

    monkeypatch.setattr(os, "fork", noted)
    monkeypatch.setattr(module, "_tells", tells)
    with side_by_side([lambda: (os.getpid(), bytes(10**7))]) as results:
        assert results()[0][0] == HERE
    assert len(copies) == 1


def test_a_result_that_cannot_be_handed_over_is_made_here():
    with side_by_side([cannot_be_told]) as results:
        assert results()[0]() == "done"


def test_a_copy_that_waits_for_ever_for_a_lock_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.2)
    lock = threading.Lock()

    def locked():
        with lock:
            return os.getpid()

    lock.acquire()
    with side_by_side([locked]) as results:
        lock.release()
        assert results() == [os.getpid()]


def test_a_copy_that_spins_for_ever_on_a_lock_is_not_waited_for(monkeypatch):
    """It uses processor time as one at work does; it was waited for until somebody killed it."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 2.0)
    monkeypatch.setattr(module, "LONGEST_SECONDS", 1.0)

    def spins():
        # That it ends at last is for this test alone.
        end = time.monotonic() + PATIENCE / 2
        while os.getpid() != HERE and time.monotonic() < end:
            pass
        return os.getpid()

    with side_by_side([spins]) as results:
        assert results() == [HERE]


def test_nothing_is_said_of_other_threads():
    ends = threading.Event()
    thread = threading.Thread(target=ends.wait)
    thread.start()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with side_by_side([os.getpid]) as results:
            assert results() != [os.getpid()]
    ends.set()
    thread.join()
    assert not said


def test_a_program_may_ignore_the_end_of_others():
    """Whoever started it may have: there is no status to be read then, and nobody to be ended."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with side_by_side([os.getpid, os.getpid]) as results:
            assert len({HERE, *results()}) == 3
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_copy_at_work_is_waited_for(monkeypatch):
    monkeypatch.setattr(module, "LOOK_SECONDS", 1.0)

    def at_work():
        end = time.process_time() + 2.2
        while time.process_time() < end:
            sum(range(1000))
        return os.getpid()

    with side_by_side([at_work]) as results:
        assert results() != [os.getpid()]


def test_copies_that_nobody_asks_are_ended(tmp_path):
    def endless():
        (tmp_path / "copy").write_text(str(os.getpid()))
        time.sleep(600)

    with side_by_side([endless]):
        wait_until(lambda: (tmp_path / "copy").exists() and (tmp_path / "copy").read_text())
    assert not is_there(int((tmp_path / "copy").read_text()))


def test_a_copy_keeps_nothing_open_that_this_process_closes():
    reader, writer = os.pipe()
    with side_by_side([lambda: time.sleep(600)]), open(reader, "rb") as received:
        os.close(writer)
        assert received.read() == b""


def test_copies_end_with_a_process_that_is_killed(tmp_path):
    noted = tmp_path / "copy"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(noted)])
    wait_until(lambda: noted.exists() and noted.read_text())
    process.kill()
    process.wait()
    wait_until(lambda: not is_there(int(noted.read_text())))


def test_in_a_copy_of_a_learner_that_serves_grpc_does_nothing():
    """Its threads would write on the lines of attached owners, beside this process."""
    made = subprocess.run(
        [sys.executable, "-c", SERVING],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
        env=os.environ | {"GRPC_ENABLE_FORK_SUPPORT": "1"},
    )
    assert made.stdout.split() == ["True", "1"]
