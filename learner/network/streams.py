"""One stream of queries to an owner, and an answer to each within a deadline.

gRPC's own face for such a stream wakes three threads for one answer: one sends, one waits for
whatever arrives, and one of ours reads, because a read of that face has no time limit. Below that
face gRPC has the kind of call that its own single calls are made of: its events are taken from the
socket by the thread that waits for them, and no other thread is needed. That halves the time of an
echo (docs/performance.md). It is not a public part of gRPC, so if a version lacks it, the stream is
the public one.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc

from common.wire import NUMBERED

try:
    from grpc._cython import cygrpc  # type: ignore[attr-defined]
except ImportError:  # another version of gRPC
    cygrpc = None

LOOK_SECONDS = 0.1
_NEEDED = (
    "OperationType",
    "ReceiveInitialMetadataOperation",
    "ReceiveMessageOperation",
    "ReceiveStatusOnClientOperation",
    "SendInitialMetadataOperation",
    "SendMessageOperation",
)

Metadata = tuple[tuple[str, str], ...]


class StreamEndedError(TimeoutError):
    """The owner has ended the stream and found nothing wrong."""


class Channels:
    """Channels to one address, one at a time: who has failed leaves a new one to the next call.

    A channel that has failed looks for the other side only now and then while nobody waits in a
    call, and meanwhile says at once that nobody is there. An owner that had come was found after
    10 to 60 seconds.

    Args:
      opened: Opens one; it connects with its first call.
    """

    def __init__(self, opened: Callable[[], grpc.Channel]) -> None:
        self._opened = opened
        self.now = opened()
        self._changing = threading.Lock()
        self._is_over = False

    def renew(self) -> None:
        """Let the next call try again; whoever waits in a call of the channel is woken."""
        with self._changing:
            if not self._is_over:
                failed, self.now = self.now, self._opened()
                failed.close()

    def close(self) -> None:
        """Close the channel, and open no more."""
        with self._changing:
            self._is_over = True
            self.now.close()


class Stream(Protocol):
    """One stream of queries, one of them unanswered at a time; one thread asks."""

    def send(self, query: bytes) -> None:
        """Ask; what is wrong is raised when the answer is waited for."""

    def answer(self) -> bytes:
        """The answer to the query, as it arrived.

        Raises:
          TimeoutError: There is none after this many seconds, or the stream is over.
          StreamEndedError: The owner ended the stream.
          grpc.RpcError: The owner's status.
        """

    def end(self) -> None:
        """End the stream, and whoever waits in :meth:`answer`."""


def open_stream(channel: grpc.Channel, path: str, *, metadata: Metadata, deadline: float) -> Stream:
    """A stream of messages to a method, by the shortest way that this version of gRPC has.

    Args:
      channel: The connection.
      path: /SERVICE/METHOD.
      metadata: Headers of the call.
      deadline: Seconds that one answer may take.

    Raises:
      ValueError: The channel is closed.
    """
    core = getattr(channel, "_channel", None)
    if hasattr(core, "segregated_call") and all(hasattr(cygrpc, name) for name in _NEEDED):
        return DirectStream(core, path, metadata=metadata, deadline=deadline)
    method: Any = channel.stream_stream(path)
    return ThreadStream(lambda queries: method(queries, metadata=metadata), deadline=deadline)


class _OverError(grpc.RpcError):
    """The status with which a call ended."""

    def __init__(self, code: grpc.StatusCode, details: str, trailing: Any) -> None:
        super().__init__(code, details)
        self._status = code, details, trailing

    def code(self) -> grpc.StatusCode:
        """Its code."""
        return self._status[0]

    def details(self) -> str:
        """What the far side said."""
        return self._status[1]

    def trailing_metadata(self) -> Any:
        """What it sent with it."""
        return self._status[2]


class DirectStream:
    """A stream whose answers are read from the socket by the thread that asks.

    One answer is read for each query, so an owner that sends more fills its own buffers.
    """

    def __init__(self, core: Any, path: str, *, metadata: Metadata, deadline: float) -> None:
        self._deadline = deadline
        # When the answer that is waited for is overdue; read by another thread.
        self.due = float("inf")
        self._ended = False
        self._status: _OverError | None = None
        # The call's completion queue is gone with its last event, and must not be asked again.
        self._events = 2
        self._taking = threading.Lock()
        begin = (
            cygrpc.SendInitialMetadataOperation(metadata, 0),
            cygrpc.ReceiveStatusOnClientOperation(0),
        )
        first = (cygrpc.ReceiveInitialMetadataOperation(0),)
        self._call = core.segregated_call(
            cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS,
            path.encode(),
            None,
            None,
            metadata,
            None,
            ((begin, None), (first, None)),
            None,
        )
        _WATCH.add(self)

    def send(self, query: bytes) -> None:
        """Ask; see :class:`Stream`."""
        with self._taking:
            asked = self._events and self._call.operate(
                (cygrpc.SendMessageOperation(query, 0), cygrpc.ReceiveMessageOperation(0)), None
            )
            if asked:
                self._events += 1
        self._drain()

    def answer(self) -> bytes:
        """The answer to the query, as it arrived; see :class:`Stream`."""
        self.due = time.monotonic() + self._deadline
        try:
            with self._taking:
                return self._received()
        finally:
            self.due = float("inf")
            self._drain()

    def end(self) -> None:
        """End the stream, and whoever waits in :meth:`answer`."""
        self._ended = True
        _WATCH.discard(self)
        self.cancel()
        self._drain()

    def cancel(self) -> None:
        """Have the call end, wherever it is waited for."""
        self._call.cancel(grpc.StatusCode.CANCELLED.value[0], "no answer came in time")

    def _received(self) -> bytes:
        while self._events:
            for done in self._next():
                if done.type() == cygrpc.OperationType.receive_message:
                    answer = done.message()
                    if answer is not None:
                        return bytes(answer)
        if self._status is None or time.monotonic() > self.due or self._ended:
            raise TimeoutError
        if self._status.code() is grpc.StatusCode.OK:
            raise StreamEndedError
        raise self._status

    def _next(self) -> Any:
        """The operations of the next event; waits for it."""
        try:
            event = self._call.next_event()
        except BaseException:
            # Interrupted: gRPC has ended the call.
            self._events = 0
            raise
        self._events -= 1
        for done in event.batch_operations:
            if done.type() == cygrpc.OperationType.receive_status_on_client:
                code = NUMBERED.get(done.code(), grpc.StatusCode.UNKNOWN)
                self._status = _OverError(code, done.details() or "", done.trailing_metadata())
        return event.batch_operations

    def _drain(self) -> None:
        """Take what is left of a call that was ended: its memory is freed with its last event.

        A thread that still waits in :meth:`answer` does so itself.
        """
        while self._ended and self._events and self._taking.acquire(blocking=False):
            try:
                while self._events:
                    self._next()
            finally:
                self._taking.release()


class _Watch:
    """Cancels streams whose answers are overdue: one thread for all, while there are any."""

    def __init__(self) -> None:
        self._streams: set[DirectStream] = set()
        self._is_looking = False
        self._lock = threading.Lock()

    def add(self, stream: DirectStream) -> None:
        """Watch a stream."""
        with self._lock:
            # The thread of streams that are gone may not have noticed yet.
            if not self._is_looking:
                threading.Thread(target=self._look, name="overdue", daemon=True).start()
                # Not before it has begun: one that does not is begun with the next stream.
                self._is_looking = True
            self._streams.add(stream)

    def discard(self, stream: DirectStream) -> None:
        """Watch it no longer."""
        with self._lock:
            self._streams.discard(stream)

    def _look(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            now = time.monotonic()
            with self._lock:
                if not self._streams:
                    self._is_looking = False
                    return
                overdue = [stream for stream in self._streams if stream.due < now]
            for stream in overdue:
                stream.cancel()


_WATCH = _Watch()


class ThreadStream:
    """A stream by gRPC's public face.

    Answers are read by a thread of their own: its wait for the next one has no time limit, and
    not even a cancelled stream always ends it. One is read for each query.
    """

    def __init__(self, method: Callable[[Iterator[bytes]], grpc.Call], *, deadline: float) -> None:
        self._queries: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._asked = threading.Semaphore(0)
        self._over = False
        self._call = method(iter(self._queries.get, None))
        self._deadline = deadline
        threading.Thread(target=self._read, name="answers", daemon=True).start()

    def send(self, query: bytes) -> None:
        """Ask; see :class:`Stream`."""
        self._queries.put(query)
        self._asked.release()

    def answer(self) -> bytes:
        """The answer to the query, as it arrived; see :class:`Stream`."""
        due = time.monotonic() + self._deadline
        is_live = True
        # A check now and then: the reader may not learn that the stream is over.
        while is_live and (left := due - time.monotonic()) > 0:
            is_live = self._call.is_active()
            try:
                answer = self._answers.get(timeout=min(left, LOOK_SECONDS))
            except queue.Empty:
                continue
            if isinstance(answer, Exception):
                raise answer
            return bytes(answer)
        if not is_live and self._call.code() is grpc.StatusCode.OK:
            raise StreamEndedError
        raise TimeoutError

    def _read(self) -> None:
        answers = iter(self._call)  # type: ignore[call-overload]
        while self._asked.acquire() and not self._over:
            try:
                self._answers.put(next(answers))
            except grpc.RpcError as error:
                self._answers.put(error)
                return
            except StopIteration:
                self._answers.put(StreamEndedError())
                return

    def end(self) -> None:
        """End the stream and its reader."""
        self._over = True
        self._asked.release()
        self._queries.put(None)
        self._call.cancel()
