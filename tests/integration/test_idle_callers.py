"""Callers that say nothing: they hold no thread, and nobody who has something to ask waits."""

from __future__ import annotations

import asyncio
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tomli_w
from grpc_health.v1 import health_pb2, health_pb2_grpc

import owner.answering
from common.config import read_toml
from common.pb import copriv_pb2 as pb
from common.pb import copriv_pb2_grpc as pb_grpc
from common.terms import Query
from learner.network.grpc_owner import GrpcOwner
from owner.server import RunningOwner, start_owner

TOOL = Path(__file__).resolve().parents[1] / "tools" / "crowd_owner.py"
SERVICE = "copriv.v1.DataOwner"
TOKEN = "a-token-for-the-tests-only"  # noqa: S105
Serve = Callable[..., RunningOwner]
Folder = Callable[..., Path]


def settings_with(path: Path, **more: Any) -> Path:
    path.write_text(tomli_w.dumps(read_toml(path) | more))
    return path


@contextmanager
def silent_calls(running: RunningOwner, method: str, count: int) -> Iterator[list[grpc.Call]]:
    """Calls that are open and never send a message."""
    with ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{running.port}"))
        opened = []
        for _ in range(count):
            never = stack.enter_context(_never())
            opened.append(channel.stream_stream(f"/{method}")(never, timeout=60))
            stack.callback(opened[-1].cancel)
        yield opened


@contextmanager
def _never() -> Iterator[Iterator[bytes]]:
    """Messages that do not come until the end."""
    over = threading.Event()

    def messages() -> Iterator[bytes]:
        over.wait()
        yield from ()

    try:
        yield messages()
    finally:
        over.set()


@pytest.mark.long
def test_a_crowd_of_silent_strangers_keeps_no_learner_waiting():
    options = ["--idle", "60", "--silent", "200", "--studies", "24", "--rounds", "3", "--enough"]
    result = subprocess.run(
        [sys.executable, str(TOOL), *options],
        capture_output=True,
        text=True,
        timeout=170,
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
    running = serve_owner(settings_with(owner_folder(), idle_seconds=0.2))
    with silent_calls(running, f"{SERVICE}/AnswerOnce", 1) as (call,):
        assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "no message came with the call or within 0.2 seconds" in call.details()
    with silent_calls(running, f"{SERVICE}/Answer", 1) as (stream,):
        assert stream.code() is grpc.StatusCode.OK


def test_an_owner_that_stops_refuses_nobody_for_good(owner_folder):
    running = start_owner(owner_folder(), listen=None, insecure_noise_seed=None)
    with silent_calls(running, f"{SERVICE}/AnswerOnce", 5) as calls:
        with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
            stub = pb_grpc.DataOwnerStub(channel)  # type: ignore[no-untyped-call]
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
    running = serve_owner(settings_with(owner_folder(), idle_seconds=0.1))
    caller = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=20)
    caller.enroll(make_terms())
    for sequence in range(1, 6):
        # Now and then the query meets the stream as it ends.
        time.sleep(0.1 if sequence % 2 else 0.4)
        query = Query(study_id="study-1", sequence=sequence, theta=np.zeros(4))
        assert caller.answer(query).sequence == sequence
    caller.disconnect()


def test_answers_that_take_long_keep_no_other_caller_waiting(
    owner_folder, serve_owner, make_terms, monkeypatch
):
    """The event loop gives the first of them; a thread all others, while the loop serves others."""
    by_the_loop: list[bool] = []
    exact = owner.answering.exact_answer

    def slow(*given: Any) -> Any:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            by_the_loop.append(True)
        time.sleep(0.05)
        return exact(*given)

    monkeypatch.setattr(owner.answering, "exact_answer", slow)
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
