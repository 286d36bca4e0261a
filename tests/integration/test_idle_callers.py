"""Callers that say nothing: they hold no thread, and nobody who has something to ask waits."""

import gc
import json
import math
import queue
import socket
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from calls import methods
from free_ports import free_port
from full_disk_owner import serves
from grpc_health.v1 import health_pb2, health_pb2_grpc
from listening import Listening
from waiting import seconds_computed, wait_until

from common.errors import OrderError
from common.pb import copriv_pb2 as pb
from common.terms import Query
from learner.network import attachment_server
from learner.network.attachment_server import MOST_CALLS, AttachmentServer
from learner.network.grpc_owner import GrpcOwner
from owner.probes import OPEN_PROBES
from owner.server import start_owner

TOOL = Path(__file__).resolve().parents[1] / "tools" / "crowd_owner.py"
SERVICE = "copriv.v1.DataOwner"
MAX_CONCURRENT_STREAMS = 3
# The beginning of a connection of HTTP/2, with no settings of ours.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@contextmanager
def silent_calls(running, method, count):
    """Calls that are open and never send a message."""
    with ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{running.port}"))
        opened = []
        for _ in range(count):
            never = stack.enter_context(_never())
            opened.append(channel.stream_stream(f"/{method}")(never, timeout=60))
            stack.callback(opened[-1].cancel)
        yield opened


class StandingLine(Listening):
    """A line to a port of this machine that stands still once its caller has said so much."""

    def __init__(self, port):
        self.far_port = port
        self.left = 10**9
        self.stood = False
        self.moving = threading.Event()
        super().__init__()

    def treat(self, near):
        with socket.create_connection(("127.0.0.1", self.far_port)) as far:
            back = threading.Thread(target=self.pump, args=(far, near), kwargs={"stands": False})
            back.start()
            self.pump(near, far, stands=True)
            back.join()

    def pump(self, source, target, *, stands):
        with suppress(OSError):
            while piece := source.recv(65536):
                now = piece[: self.left] if stands else piece
                self.left -= len(now) if stands else 0
                target.sendall(now)
                if len(now) < len(piece):
                    self.stood = True
                    self.moving.wait(20)
                    target.sendall(piece[len(now) :])
            target.shutdown(socket.SHUT_WR)

    def go_on(self):
        self.left = 10**9
        self.moving.set()


@contextmanager
def _never():
    """Messages that do not come until the end."""
    over = threading.Event()

    def messages():
        over.wait()
        yield from ()

    try:
        yield messages()
    finally:
        over.set()


def calls_taken(port):
    """How many calls of a connection a port takes at once: the first thing that it says."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as line,
        line.makefile("rb") as said,
    ):
        line.sendall(PREFACE)
        length = int.from_bytes(said.read(9)[:3])
        settings = dict(struct.iter_unpack(">HI", said.read(length)))
        return settings[MAX_CONCURRENT_STREAMS]


def test_a_connection_holds_few_calls_at_once(serve_owner, owner_folder):
    """Each may hold 16 MB of headers before it is known who calls, for 4 kB that were sent."""
    path = owner_folder(calls_per_learner=3, also={"health": "127.0.0.1:0"})
    running = serve_owner(path)
    assert calls_taken(running.probes.number) == OPEN_PROBES
    # A learner that asks for more than it may is told so.
    assert 3 < calls_taken(running.port) < 100
    with AttachmentServer(["owner-a"], "127.0.0.1:0", deadline=5, patience=5) as learner:
        assert calls_taken(learner.port) == MOST_CALLS


@pytest.mark.parametrize("said", [b"", PREFACE], ids=["nothing", "no call"])
def test_a_connection_to_a_learner_that_says_nothing_is_closed(said, monkeypatch):
    """As one to an owner: strangers could have held as many as they liked for ever."""
    quick = [(name, 300) for name, _ in attachment_server.QUIET_OPTIONS]
    monkeypatch.setattr(attachment_server, "QUIET_OPTIONS", quick)
    with (
        AttachmentServer(["owner-a"], "127.0.0.1:0", deadline=5, patience=5) as learner,
        socket.create_connection(("127.0.0.1", learner.port), timeout=15) as line,
    ):
        line.sendall(said)
        while line.recv(1000):
            pass


@pytest.mark.long
def test_a_crowd_of_silent_strangers_keeps_no_learner_waiting():
    options = ["--idle", "60", "--silent", "200", "--studies", "24", "--rounds", "3", "--enough"]
    result = subprocess.run(
        [sys.executable, str(TOOL), *options],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    told = json.loads(result.stdout)
    assert told.pop("faults") == {"no_identity": [], "unlisted_certificate": []}
    for found in told.values():
        assert found["studies_finished"] == 24


def test_who_is_not_known_is_refused_before_a_message_is_waited_for(owner_folder, serve_owner):
    running = serve_owner(owner_folder(tokens={"bank-a": "sha256:" + "0" * 64}))
    for name in ("Answer", "AnswerOnce", "Enroll", "Describe", "Close", "Offer"):
        with silent_calls(running, f"{SERVICE}/{name}", 1) as (call,):
            assert call.code() is grpc.StatusCode.UNAUTHENTICATED
            assert "token" in call.details()


def test_a_call_whose_message_never_comes_ends(owner_folder, serve_owner):
    running = serve_owner(owner_folder(also={"idle_seconds": 0.2}))
    with silent_calls(running, f"{SERVICE}/AnswerOnce", 1) as (call,):
        assert call.code() is grpc.StatusCode.UNAVAILABLE
        assert "no whole message came within 0.2 seconds" in call.details()
        assert int(dict(call.trailing_metadata())["retry-after-ms"]) > 0
    with silent_calls(running, f"{SERVICE}/Answer", 1) as (stream,):
        assert stream.code() is grpc.StatusCode.OK


def test_who_is_gone_before_its_message_came_is_not_refused(owner_folder, serve_owner, caplog):
    """As where a line breaks within a long feature map: the owner's log blamed its learner."""
    running = serve_owner(owner_folder())
    for _ in range(3):
        with silent_calls(running, f"{SERVICE}/Enroll", 3):
            time.sleep(0.2)
    with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        call = channel.stream_stream(f"/{SERVICE}/Enroll")(iter(()), timeout=20)
        assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "no message came with the call" in call.details()
    refused = [r for r in caplog.records if "no message came with the call" in r.getMessage()]
    assert len(refused) == 1


def test_a_learner_whose_line_stood_still_within_a_message_is_not_refused_for_good(
    owner_folder, serve_owner, make_terms
):
    running = serve_owner(owner_folder(also={"idle_seconds": 0.3}))
    line = StandingLine(running.port)
    caller = GrpcOwner("owner-a", line.address, deadline=20)
    caller.describe()
    # The headers of the next call pass, and not all of its message.
    line.left = 200
    going_on = threading.Timer(1.0, line.go_on)
    going_on.start()
    try:
        assert caller.enroll(make_terms(study_id="s" * 60)).num_records == 200
        assert line.stood
    finally:
        going_on.join()
        caller.disconnect()
        line.stop()


def test_an_owner_that_stops_refuses_nobody_for_good(owner_folder):
    running = start_owner(owner_folder(), listen=None, insecure_noise_seed=None)
    with silent_calls(running, f"{SERVICE}/AnswerOnce", 5) as calls:
        with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
            stub = methods("DataOwner", channel)
            # Those that were opened before it have come as well.
            stub.Describe(pb.DescribeRequest(), timeout=10)
            time.sleep(0.2)
        running.drain(grace=0.5)
        for call in calls:
            assert call.code() is grpc.StatusCode.UNAVAILABLE
            assert "is stopping" in call.details()
            assert int(dict(call.trailing_metadata())["retry-after-ms"]) > 0


def test_a_learner_does_not_notice_that_its_quiet_stream_was_ended(
    owner_folder, serve_owner, make_terms
):
    running = serve_owner(owner_folder(also={"idle_seconds": 0.1}))
    caller = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=20)
    caller.enroll(make_terms())
    for sequence in range(1, 6):
        # Now and then the query meets the stream as it ends.
        time.sleep(0.1 if sequence % 2 else 0.4)
        query = Query(study_id="study-1", sequence=sequence, theta=np.zeros(4))
        assert caller.answer(query).sequence == sequence
    caller.disconnect()


def test_answers_that_take_long_keep_no_other_caller_waiting(
    owner_folder, serve_owner, make_terms, slow_answers
):
    """The event loop gives the first of them; a thread all others, while the loop serves others."""
    by_the_loop = slow_answers(0.05)
    running = serve_owner(owner_folder())
    caller = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=20)
    caller.enroll(make_terms())
    for sequence in range(1, 11):
        caller.answer(Query(study_id="study-1", sequence=sequence, theta=np.zeros(4)))
    caller.disconnect()
    assert len(by_the_loop) == 1


def test_one_learner_holds_so_many_calls_open_and_no_more(owner_folder, serve_owner):
    running = serve_owner(owner_folder(calls_per_learner=3))
    ended = queue.SimpleQueue[Any]()
    with silent_calls(running, f"{SERVICE}/Answer", 4) as opened:
        for call in opened:
            call.add_done_callback(ended.put)
        refused = ended.get(timeout=20)
        assert refused.code() is grpc.StatusCode.UNAVAILABLE
        assert "no more calls of this learner" in refused.details()
        assert int(dict(refused.trailing_metadata())["retry-after-ms"]) > 0
        with pytest.raises(queue.Empty):
            ended.get(timeout=0.2)
    patient = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=20)
    assert patient.describe().num_records == 200
    patient.disconnect()


@pytest.mark.parametrize(("method", "threads"), [("AnswerOnce", 1), ("Enroll", 2), ("Offer", 3)])
def test_a_call_that_is_cancelled_keeps_its_place_until_its_work_is_over(
    owner_folder, serve_owner, monkeypatch, method, threads
):
    """Else whoever calls and cancels again and again would fill the memory with messages."""
    running = serve_owner(owner_folder(calls_per_learner=3))
    over, begun = threading.Event(), queue.SimpleQueue[None]()

    def slow(called, *_, if_quick=False):
        if if_quick and called.request is pb.StudyTerms:
            return
        begun.put(None)
        over.wait(20)
        raise OrderError("it took too long")

    monkeypatch.setattr(running.calls._service, "reply", slow)
    # A thread gives answers, as after any that took long.
    monkeypatch.setattr(running.calls, "_long_until", math.inf)
    calls = running.calls

    def waiting():
        workers = (calls._answering, calls._preparing, calls._pausing)
        return sum(each._jobs.qsize() for each in workers if each is not None)

    with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        call = partial(channel.unary_unary(f"/{SERVICE}/{method}").future, b"", timeout=20)
        cancelled = [call() for _ in range(3)]
        wait_until(lambda: begun.qsize() == threads and waiting() == 3 - threads)
        for one in cancelled:
            one.cancel()
        time.sleep(0.3)
        refused = call().exception()
        assert refused.code() is grpc.StatusCode.UNAVAILABLE
        assert "no more calls of this learner" in refused.details()
        over.set()
        wait_until(lambda: not running.calls._places._taken)
        # What waited for a thread is not begun for a caller that is gone.
        assert begun.qsize() == threads
        assert "it took too long" in call().exception().details()


# Bytes that no message has a meaning for.
LARGE = b"\xa2\x06\x80\x80\x80\x01" + bytes(2**21)


@contextmanager
def kept(most):
    """What is done takes no more memory for long, not even until Python looks for cycles.

    That comes after hundreds of large messages.
    """
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
        time.sleep(0.5)
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert left < most


@pytest.mark.parametrize("cancelled", [False, True])
@pytest.mark.parametrize("method", ["Enroll", "Offer", "AnswerOnce"])
def test_a_call_that_is_over_leaves_nothing_of_its_message(
    owner_folder, serve_owner, monkeypatch, method, cancelled
):
    running = serve_owner(owner_folder())
    # A thread gives answers, as after any that took long.
    monkeypatch.setattr(running.calls, "_long_until", math.inf)
    with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        call = partial(channel.unary_unary(f"/{SERVICE}/{method}").future, LARGE, timeout=20)

        def many(count):
            for one in (call() for _ in range(count)):
                time.sleep(0.02)
                if cancelled:
                    one.cancel()
                with suppress(grpc.FutureCancelledError):
                    one.exception()

        many(3)
        with kept(2 * len(LARGE)):
            many(20)


def test_probes_that_never_ask_keep_no_other_from_being_told(owner_folder, serve_owner):
    running = serve_owner(owner_folder())
    for method in ("Check", "Watch"):
        with silent_calls(running, f"grpc.health.v1.Health/{method}", 80):
            time.sleep(0.2)
            with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
                health = health_pb2_grpc.HealthStub(channel)
                told = health.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=10)
                watched = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=10)
                assert told.status == next(watched).status == health_pb2.HealthCheckResponse.SERVING
                watched.cancel()


def test_an_owner_whose_connections_are_all_taken_says_so(owner_folder, tmp_path):
    """Whoever calls meanwhile waits, and is let in as soon as others have gone; no core is kept."""
    metrics = free_port()
    settings = owner_folder(also={"metrics": f"127.0.0.1:{metrics}"})
    log = tmp_path / "owner.log"
    code = "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (64, 64)); import owner.cli as c"
    with log.open("w") as lines:
        owner = subprocess.Popen(
            [sys.executable, "-c", f"{code}; c.main()", "serve", str(settings)],
            stdout=subprocess.PIPE,
            stderr=lines,
            text=True,
        )
    try:
        port = int(owner.stdout.readline().split()[-1])
        with ExitStack() as crowd:
            for _ in range(100):
                crowd.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            wait_until(lambda: "no further file or connection can be opened" in log.read_text())
            crowd.enter_context(socket.create_connection(("127.0.0.1", metrics), timeout=20))
            before = seconds_computed(owner.pid)
            time.sleep(1.0)
            assert seconds_computed(owner.pid) - before < 0.2
        wait_until(lambda: serves(port))
        assert log.read_text().count("this process may have 64: raise it") == 1
    finally:
        owner.terminate()
        owner.communicate(timeout=30)
    assert owner.returncode == 0
