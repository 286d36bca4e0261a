"""A stream of queries ends as the owner says or when the deadline says, however gRPC is asked."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import grpc
import pytest
from waiting import wait_until

from common.wire import retry_after
from learner.network.streams import (
    DirectStream,
    StreamEndedError,
    ThreadStream,
    open_stream,
)

LONG = 20.0


def serving(answer):
    """A server that answers streams of queries in this way, and its address."""

    def handle(queries, context):
        context.set_trailing_metadata((("retry-after-ms", "250"),))
        try:
            yield from answer(queries)
        except PermissionError as refusal:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, str(refusal))

    server = grpc.server(ThreadPoolExecutor(8))
    handlers = {"Answer": grpc.stream_stream_rpc_method_handler(handle)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"


@pytest.fixture(params=["direct", "thread"])
def opened(request, monkeypatch):
    """Streams of either kind to a server that answers in some way."""
    if request.param == "thread":
        monkeypatch.setattr("learner.network.streams.cygrpc", None)
    with ExitStack() as stack:

        def open_to(answer, *, deadline=LONG):
            server, address = serving(answer)
            stack.callback(server.stop, None)
            channel = grpc.insecure_channel(address)
            stack.callback(channel.close)
            stream = open_stream(channel, "/s/Answer", metadata=(), deadline=deadline)
            kind = DirectStream if request.param == "direct" else ThreadStream
            assert isinstance(stream, kind)
            stack.callback(stream.end)
            return stream

        yield open_to


def ask(stream, query):
    """The answer to one query."""
    stream.send(query)
    return stream.answer()


def echo(queries):
    """Answers with the query."""
    yield from queries


def silence(queries):
    """Answers nothing, and does not end before the caller does."""
    for _ in queries:
        pass
    yield from ()


def test_each_query_is_answered_in_turn(opened):
    stream = opened(echo)
    sizes = [0, 1, 10_000, 3_000_000]
    assert [len(ask(stream, bytes(size))) for size in sizes] == sizes


def test_streams_that_are_sent_a_query_answer_while_nobody_waits(opened):
    both = threading.Barrier(2)

    def together(queries):
        for query in queries:
            # Neither answers before both are asked.
            both.wait(LONG)
            yield query

    first, second = opened(together), opened(together)
    for number in (b"1", b"2"):
        first.send(number)
        second.send(number)
        assert first.answer() == second.answer() == number


def test_an_answer_that_does_not_come_is_given_up(opened):
    stream, began = opened(silence, deadline=0.3), time.monotonic()
    with pytest.raises(TimeoutError) as given_up:
        ask(stream, b"")
    assert not isinstance(given_up.value, StreamEndedError)
    assert 0.25 < time.monotonic() - began < LONG / 2


def test_a_stream_that_the_owner_ends_is_told_from_one_that_fails(opened):
    def once(queries):
        yield next(queries)

    stream = opened(once)
    assert ask(stream, b"a") == b"a"
    with pytest.raises(StreamEndedError):
        ask(stream, b"b")
    with pytest.raises(StreamEndedError):
        ask(stream, b"c")


def test_a_refusal_keeps_its_status_sentence_and_headers(opened):
    def refuse(queries):
        yield next(queries)
        raise PermissionError("not for you")

    stream = opened(refuse)
    assert ask(stream, b"a") == b"a"
    with pytest.raises(grpc.RpcError) as refused:
        ask(stream, b"b")
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert refused.value.details() == "not for you"
    assert retry_after(refused.value.trailing_metadata()) == 0.25


def test_nobody_there_is_unavailable(opened):
    opened(echo)
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        stream = open_stream(channel, "/s/Answer", metadata=(), deadline=LONG)
        with pytest.raises(grpc.RpcError) as refused:
            ask(stream, b"a")
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        stream.end()


def test_who_waits_is_let_go_of_when_the_stream_ends(opened):
    stream, ended = opened(silence), threading.Event()

    def wait():
        with pytest.raises((TimeoutError, grpc.RpcError)):
            ask(stream, b"a")
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    time.sleep(0.1)
    stream.end()
    assert ended.wait(LONG)
    stream.end()


def test_a_stream_is_not_asked_once_its_channel_is_closed(opened):
    opened(echo)
    server, address = serving(echo)
    channel = grpc.insecure_channel(address)
    stream = open_stream(channel, "/s/Answer", metadata=(), deadline=LONG)
    assert ask(stream, b"a") == b"a"
    channel.close()
    with pytest.raises((TimeoutError, grpc.RpcError)):
        ask(stream, b"b")
    stream.end()
    with pytest.raises(ValueError, match="closed"):
        open_stream(channel, "/s/Answer", metadata=(), deadline=LONG)
    server.stop(None)


def test_streams_that_follow_each_other_are_watched_by_one_thread():
    """An owner that ends its stream after each answer would have us keep a thread for each."""
    server, address = serving(echo)
    with grpc.insecure_channel(address) as channel:
        for _ in range(20):
            stream = open_stream(channel, "/s/Answer", metadata=(), deadline=LONG)
            assert ask(stream, b"a") == b"a"
            stream.end()
    server.stop(None)
    assert sum(thread.name == "overdue" for thread in threading.enumerate()) <= 1


def is_watched():
    return any(thread.name == "overdue" for thread in threading.enumerate())


def is_given_up(channel, server):
    """Whether who never answers is given up in time."""
    stream = open_stream(channel, "/s/Answer", metadata=(), deadline=0.3)
    began = time.monotonic()
    # Whom nobody gives up is ended otherwise, by its server.
    ended = threading.Timer(LONG / 2, server.stop, [None])
    ended.start()
    with pytest.raises(TimeoutError):
        ask(stream, b"a")
    ended.cancel()
    in_time = time.monotonic() - began < LONG / 2
    stream.end()
    return in_time


def test_streams_are_watched_again_after_a_while_without_any():
    """Or an owner that never answers would not be given up."""
    server, address = serving(silence)
    with grpc.insecure_channel(address) as channel:
        for _ in range(2):
            began = time.monotonic()
            assert is_given_up(channel, server)
            while is_watched() and time.monotonic() - began < LONG:
                time.sleep(0.05)
            assert not is_watched()
    server.stop(None)


def test_a_watch_that_found_no_thread_is_begun_with_the_next_stream(monkeypatch):
    """Or no owner that is silent would ever be given up in this process."""

    start = threading.Thread.start

    def no_thread(thread):
        # Another thread of gRPC's server that does not begin ends it, and its stop waits for ever.
        if thread.name == "overdue":
            raise RuntimeError("can't start new thread")
        start(thread)

    server, address = serving(silence)
    with grpc.insecure_channel(address) as channel:
        wait_until(lambda: not is_watched())
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", no_thread)
            with pytest.raises(RuntimeError, match="new thread"):
                open_stream(channel, "/s/Answer", metadata=(), deadline=0.3)
            # The server takes the call meanwhile.
            time.sleep(0.5)
        assert is_given_up(channel, server)
        # Nor is the one that was not opened watched for ever.
        wait_until(lambda: not is_watched(), seconds=10.0)
    server.stop(None)
