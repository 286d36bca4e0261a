"""Threads that memory runs out for: nobody waits for them, and what needs them ends."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

import owner.mechanism
import owner.threads
from common.terms import Query
from owner.mechanism import DrawnAhead, SecureNoise, secure_noise
from owner.threads import LOST, LOST_STATUS, Workers, begun


class Deaf(threading.Thread):
    """A thread that ends before its first step; Python waits for that one."""

    def start(self):
        threading.Event().wait()


@pytest.fixture
def no_memory(monkeypatch):
    """No thread begins, until this is undone."""
    monkeypatch.setattr(owner.threads, "BEGIN_SECONDS", 0.1)
    monkeypatch.setattr(threading, "Thread", Deaf)
    return monkeypatch


def test_a_thread_that_does_not_begin_is_not_waited_for(no_memory):
    done = threading.Event()
    with pytest.raises(RuntimeError, match="'noise' did not begin, as where memory runs out"):
        begun(done.set, name="noise")
    with pytest.raises(RuntimeError, match="did not begin"):
        Workers("prepare", 2)
    no_memory.undo()
    begun(done.set, name="noise").join(10)
    assert done.is_set()


class Refused(threading.Thread):
    """A thread that the system does not let begin, as at a limit of processes."""

    def start(self):
        raise RuntimeError("can't start new thread")


def test_a_thread_that_may_not_begin_is_known_at_once(monkeypatch):
    """The learner whose enrolment needs it waited a quarter of a minute for its refusal."""
    monkeypatch.setattr(owner.threads, "BEGIN_SECONDS", threading.TIMEOUT_MAX)
    asked = ThreadPoolExecutor(1)
    # Its own thread begins before none may.
    asked.submit(list).result()
    monkeypatch.setattr(threading, "Thread", Refused)
    with pytest.raises(RuntimeError, match="'noise' did not begin"):
        asked.submit(begun, list, name="noise").result(60)


def test_an_enrolment_whose_noise_has_no_thread_is_refused_and_the_next_is_not(
    open_owner, make_terms, no_memory
):
    served = open_owner(options={"noise": secure_noise})
    with pytest.raises(RuntimeError, match="did not begin"):
        served.enroll(make_terms(), learner="l")
    assert served.epsilon_held() == 0
    no_memory.undo()
    assert served.enroll(make_terms(), learner="l").answered == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("vectors", [1, 16])
def test_nobody_waits_for_noise_of_a_thread_that_ended_without_a_word(vectors, monkeypatch):
    class Ends:
        def draw(self, count):
            raise SystemExit

        def epsilon(self, *, responses):
            return Fraction(responses)

    monkeypatch.setattr(owner.mechanism, "LOOK_SECONDS", 0.05)
    ahead = DrawnAhead(Ends(), vectors=vectors, block=1)
    ahead.wait()
    with pytest.raises(RuntimeError, match="the thread that draws noise has ended"):
        ahead.take()
    assert ahead.is_lost
    ahead.stop()
    assert not ahead.is_lost


def test_noise_that_failed_is_lost_before_its_thread_has_ended(monkeypatch):
    class Fails:
        def draw(self, count):
            raise MemoryError

        def epsilon(self, *, responses):
            return Fraction(responses)

    monkeypatch.setattr(DrawnAhead, "is_drawing", True)
    ahead = DrawnAhead(Fails(), vectors=1, block=1)
    ahead.wait()
    with pytest.raises(MemoryError):
        ahead.take()
    assert ahead.is_lost
    ahead.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("ending", [SystemExit, MemoryError])
def test_a_study_whose_noise_ended_is_made_ready_again(ending, open_owner, make_terms, monkeypatch):
    monkeypatch.setattr(owner.mechanism, "LOOK_SECONDS", 0.05)
    served = open_owner(options={"noise": secure_noise})
    draw = SecureNoise.draw

    def once(self, count):
        if count == 1:
            return draw(self, count)
        raise ending

    monkeypatch.setattr(SecureNoise, "draw", once)
    terms = make_terms()
    served.enroll(terms, learner="l")

    def query(sequence):
        return Query(study_id=terms.study_id, sequence=sequence, theta=np.zeros(4))

    def ask(sequence):
        return served.answer(query(sequence), learner="l").gradient

    given = []

    def ask_up_to(last):
        while len(given) < last:
            given.append(ask(len(given) + 1))

    # One vector is there, and nobody draws the next.
    with pytest.raises((RuntimeError, MemoryError)):
        ask_up_to(2)
    assert served.charges() == len(given)
    assert not served.noise(terms.study_id)
    monkeypatch.setattr(SecureNoise, "draw", draw)
    ask_up_to(3)
    assert served.charges() == 3
    assert len({one.tobytes() for one in given}) == 3
    # What was given before is repeated, not answered anew.
    assert ask(2).tobytes() == given[1].tobytes()


def test_an_owner_that_lost_a_thread_it_needs_ends_in_one_line():
    program = """
import logging, sys, time
from owner.threads import Workers
logging.basicConfig(format="%(message)s")
workers = Workers("prepare", 2)
# What a piece of work raises is told; that it cannot be told is not survived.
workers._jobs.put(("no loop", None, lambda: None))
time.sleep(20)
"""
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert (told.returncode, told.stderr) == (LOST_STATUS, LOST + "\n")


# As of an owner under `ulimit -v`, whose gRPC waited for ever for a thread of its own.
UNBEGUN = """
import asyncio, sys, threading
import owner.ports
owner.ports.BEGIN_SECONDS = 0.5
{waits}
from owner.cli import main
sys.argv = ["copriv-owner", "serve", sys.argv[1]]
main()
"""


@pytest.mark.parametrize(
    "waits",
    [
        "owner.ports._server = lambda options: threading.Event().wait()",
        "owner.ports._Core.start = lambda self: asyncio.Event().wait()",
    ],
    ids=["made", "started"],
)
def test_an_owner_whose_server_does_not_begin_ends_in_a_sentence(owner_folder, waits):
    ended = subprocess.run(
        [sys.executable, "-c", UNBEGUN.format(waits=waits), owner_folder()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith("copriv-owner: no further thread begins: the ")
    assert "Traceback" not in ended.stderr
