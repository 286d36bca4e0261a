"""Whoever waits for noise of long responses holds up nobody else, and no refusal of its own."""

import hashlib
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import owner.calls
import owner.mechanism
from common.errors import MalformedError, OrderError
from common.terms import Query
from learner.network.grpc_owner import GrpcOwner
from owner.mechanism import SecureNoise
from owner.open_study import StudyMaker

TOKENS = {name: f"copriv_{name * 12}" for name in ("ann", "ben")}
PATIENCE = 10.0
# Noise of ann's study is drawn once and then no more until a test says so.
DRAWN = 1


class Gate:
    """Whether noise is drawn of studies of as many responses as ann's."""

    def __init__(self, responses):
        self.responses = responses
        self.open = threading.Event()
        self.reached = threading.Event()

    def wait(self, source, count):
        if source._plan.responses == self.responses and count > DRAWN:
            self.reached.set()
            assert self.open.wait(3 * PATIENCE)


@pytest.fixture
def gate(monkeypatch):
    gate, draw = Gate(responses=9), SecureNoise.draw

    def gated(self, count):
        gate.wait(self, count)
        return draw(self, count)

    monkeypatch.setattr(SecureNoise, "draw", gated)
    yield gate
    gate.open.set()


@pytest.fixture
def served(owner_folder, serve_owner, gate):
    digests = {n: f"sha256:{hashlib.sha256(t.encode()).hexdigest()}" for n, t in TOKENS.items()}
    return serve_owner(owner_folder(tokens=digests, calls_per_learner=8))


@pytest.fixture
def called(served):
    with ExitStack() as stack:

        def call(learner):
            address = f"127.0.0.1:{served.port}"
            caller = GrpcOwner("owner-a", address, deadline=PATIENCE, token=TOKENS[learner])
            stack.callback(caller.disconnect)
            return caller

        yield call


def query(sequence, *, study="study-1", at=0.0):
    return Query(study_id=study, sequence=sequence, theta=np.full(4, at))


@pytest.mark.parametrize("by", ["the event loop", "a thread"])
def test_a_learner_that_waits_for_noise_keeps_no_other_waiting(
    served, called, gate, make_terms, monkeypatch, by
):
    if by == "a thread":
        monkeypatch.setattr(served.calls, "_long_until", math.inf)
    ann, ben = called("ann"), called("ben")
    ann.enroll(make_terms(responses=9, horizon=9))
    first = ann.answer(query(1)).gradient
    assert gate.reached.wait(PATIENCE)
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(called("ann").answer, query(2)) for _ in range(5)]
        # More of them than there are threads: others are still enrolled, answered and told.
        ben.enroll(make_terms(study_id="bens"))
        for sequence in range(1, 4):
            ben.answer(query(sequence, study="bens"))
        with grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
        # What ann gets without noise, she gets now.
        assert ann.answer(query(1)).gradient.tobytes() == first.tobytes()
        with pytest.raises(MalformedError, match="leaves the box"):
            ann.answer(query(2, at=9.0))
        with pytest.raises(OrderError, match="2"):
            ann.answer(query(3))
        assert not any(future.done() for future in waiting)
        assert served.owner.charges() == 4
        gate.open.set()
        given = [future.result(PATIENCE).gradient.tobytes() for future in waiting]
    # One of them was charged, and the others got the same again.
    assert len(set(given)) == 1
    assert served.owner.charges() == 5


def test_long_answers_that_wait_for_noise_are_given_by_a_thread_after_a_few(
    owner_folder, serve_owner, make_terms, monkeypatch, slow_answers
):
    by_the_loop, draw = slow_answers(0.012), SecureNoise.draw

    def late(self, count):
        time.sleep(0.05)
        return draw(self, count)

    monkeypatch.setattr(SecureNoise, "draw", late)
    # One response's at a time: each of them is waited for.
    monkeypatch.setattr(owner.mechanism, "BLOCK_DRAWS", 1)
    for name in ("MUCH_LONGER_SECONDS", "LONG_AGAIN_SECONDS"):
        monkeypatch.setattr(owner.calls, name, 60.0)
    caller = GrpcOwner(
        "owner-a", f"127.0.0.1:{serve_owner(owner_folder()).port}", deadline=PATIENCE
    )
    caller.enroll(make_terms())
    for sequence in range(1, 11):
        caller.answer(query(sequence))
    caller.disconnect()
    assert len(by_the_loop) == owner.calls.LONG_IN_A_ROW


def test_a_study_that_is_closed_while_noise_is_waited_for_answers_no_more(
    served, called, gate, make_terms, monkeypatch
):
    ann = called("ann")
    ann.enroll(make_terms(responses=9, horizon=9))
    ann.answer(query(1))
    assert gate.reached.wait(PATIENCE)
    made, prepare = [], StudyMaker.prepare

    def counted(self, terms):
        made.append(terms.study_id)
        return prepare(self, terms)

    monkeypatch.setattr(StudyMaker, "prepare", counted)
    looked = threading.Event()
    monkeypatch.setattr(served.owner, "noise", _told(served.owner.noise, looked))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(called("ann").answer, query(2))
        assert looked.wait(PATIENCE)
        ann.close("study-1")
        # It is refused at once, though its noise is still being drawn, and is not made ready again.
        with pytest.raises(OrderError, match="closed"):
            waiting.result(PATIENCE)
    assert not gate.open.is_set()
    assert not made
    assert served.owner.charges() == 1


def _told(noise, looked):
    """The same look at a study's noise, which tells that somebody looked."""

    def look(study_id):
        looked.set()
        return noise(study_id)

    return look


@pytest.mark.parametrize("by", ["the event loop", "a thread"])
def test_a_study_that_is_closed_while_its_noise_is_drawn_keeps_no_other_waiting(
    served, called, gate, make_terms, monkeypatch, by
):
    if by == "a thread":
        monkeypatch.setattr(served.calls, "_long_until", math.inf)
    ann, ben = called("ann"), called("ben")
    ann.enroll(make_terms(responses=9, horizon=9))
    ben.enroll(make_terms(study_id="bens"))
    assert gate.reached.wait(PATIENCE)
    ann.close("study-1")
    ben.answer(query(1, study="bens"))
    ben.describe()
    ben.close("bens")
    assert not gate.open.is_set()
    # The owner's end waits for the noise: what draws it must not be torn down meanwhile.
    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(served.owner.stop)
        with pytest.raises(TimeoutError):
            ending.result(0.5)
        gate.open.set()
        ending.result(PATIENCE)
    assert not any(thread.name == "noise" for thread in threading.enumerate())
