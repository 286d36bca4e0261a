"""The learner's own port: owners come to it, and are asked on the streams that they opened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import NoReturn, TypeVar

import grpc

from common.channels import bind, peer_of
from common.pb import copriv_pb2 as pb
from common.pb import copriv_pb2_grpc as pb_grpc
from common.tls import Identity
from learner.network.attached_owner import AttachedOwner, OwnerStream
from learner.network.grpc_owner import LARGEST_MESSAGE

__all__ = ["ListeningLearner"]

T = TypeVar("T")

OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    ("grpc.so_reuseport", 0),
    # Owners check every ten seconds that we are there, even when nothing else is sent.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]
STOP_SECONDS = 5.0


class ListeningLearner:
    """A server for the owners of one study; also the queue of their requests.

    Guarantees:
      * An owner that the study does not name is turned away, with a sentence.
      * With an identity, owners are known by their certificates, and nobody else is let in.
      * Owners are asked one at a time, by whoever runs the loop.

    Args:
      names: The owners of the study, in its order.
      address: HOST:PORT to listen on; port 0 takes a free one.
      deadline: Seconds that one answer may take.
      patience: Seconds to wait for owners to come for the first time.
      tokens: A token for each owner, or None for none.
      identity: Our certificate; None for plain text.

    Raises:
      InputError: The address cannot be used.
    """

    def __init__(
        self,
        names: Sequence[str],
        address: str,
        *,
        deadline: float,
        patience: float,
        tokens: Sequence[str | None] | None = None,
        identity: Identity | None = None,
    ) -> None:
        self._changed = threading.Condition()
        self._deadline = deadline
        # When a request was last taken, monotonic.
        self._taken = time.monotonic()
        self.owners = [
            AttachedOwner(
                name, changed=self._changed, deadline=deadline, patience=patience, token=token
            )
            for name, token in zip(names, tokens or [None] * len(names), strict=True)
        ]
        # A stream holds a thread for as long as it is open; strangers must not take them all.
        workers = 4 * len(names) + 4
        self._server = grpc.server(
            ThreadPoolExecutor(max_workers=workers, thread_name_prefix="attached"),
            options=OPTIONS,
            maximum_concurrent_rpcs=workers,
        )
        pb_grpc.add_LearnerServicer_to_server(  # type: ignore[no-untyped-call]
            _Service(
                {owner.name: owner for owner in self.owners},
                self._changed,
                deadline,
                certified=identity is not None,
            ),
            self._server,
        )
        self.port = bind(self._server, "network.listen", address, identity)
        self._server.start()

    def __enter__(self) -> ListeningLearner:
        """Listening."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop listening; owners that got no goodbye will try to come back."""
        for stream in self._streams():
            stream.end()
        self._server.stop(STOP_SECONDS).wait(2 * STOP_SECONDS)

    def anybody(self) -> bool:
        """Whether any owner is attached."""
        return bool(self._streams())

    def next_request(
        self, *, now: float, time_scale: float, ready: Callable[[int], bool], timeout: float
    ) -> tuple[int, float] | None:
        """The next owner that asked, and when its clock ticked; see ``Requests``.

        In virtual time every attached owner that is ready is waited for: only then is the
        smallest time the next one.
        """
        until = time.monotonic() + timeout
        with self._changed:
            while True:
                present = self._present(ready, now, time_scale)
                asked = {i: s for i, s in present.items() if s.request is not None}
                if asked and (time_scale > 0 or len(asked) == len(present)):
                    self._taken = time.monotonic()
                    return _first(asked, by_arrival=time_scale > 0)
                if asked and time.monotonic() - self._taken > self._deadline:
                    self._cut_off(present)
                if not self._changed.wait(until - time.monotonic()):
                    return None

    def _cut_off(self, present: dict[int, OwnerStream]) -> None:
        """In virtual time all wait for an owner that is attached but silent: end its stream."""
        for stream in present.values():
            if stream.request is None:
                stream.end()

    def _streams(self) -> list[OwnerStream]:
        """The streams of the owners that are attached."""
        return [owner.stream for owner in self.owners if owner.stream is not None]

    def _present(
        self, ready: Callable[[int], bool], now: float, time_scale: float
    ) -> dict[int, OwnerStream]:
        """The streams of owners that can be asked, their clocks started."""
        present = {}
        for index, owner in enumerate(self.owners):
            stream = owner.stream
            if stream is not None and ready(index):
                if not stream.started:
                    stream.started = True
                    start = pb.ClockStart(time=now, time_scale=time_scale)
                    stream.send(pb.LearnerMessage(start=start))
                present[index] = stream
        return present


def _first(asked: dict[int, OwnerStream], *, by_arrival: bool) -> tuple[int, float]:
    """The owner whose request comes first, and its time; the request is taken."""

    def order(index: int) -> float:
        stream = asked[index]
        return stream.arrived if by_arrival or stream.request is None else stream.request.time

    first = min(asked, key=order)
    request, asked[first].request = asked[first].request, None
    return first, request.time if request is not None else 0.0


class _Service(pb_grpc.LearnerServicer):
    """The Learner service of ``protos/copriv.proto``."""

    def __init__(
        self,
        owners: dict[str, AttachedOwner],
        changed: threading.Condition,
        deadline: float,
        *,
        certified: bool,
    ) -> None:
        self._owners = owners
        self._certified = certified
        self._changed = changed
        self._deadline = deadline

    def Attach(  # noqa: N802
        self, request_iterator: Iterator[pb.OwnerMessage], context: grpc.ServicerContext
    ) -> Iterable[pb.LearnerMessage]:
        """An owner's stream, from its hello to our goodbye."""
        name = self._name(request_iterator, context)
        if self._certified:
            _check_certificate(context, name)
        owner = self._owners.get(name)
        if owner is None:
            _turn_away(
                context,
                "this study names no such owner; give the owner the name that the study knows",
            )
        context.send_initial_metadata(owner.metadata)
        stream = OwnerStream(self._changed)
        threading.Thread(
            target=_listen, args=(request_iterator, stream), name="listen", daemon=True
        ).start()
        owner.attach(stream)
        return stream.messages()

    def _name(
        self, request_iterator: Iterator[pb.OwnerMessage], context: grpc.ServicerContext
    ) -> str:
        """The name in the hello; a silent stream is cancelled, or it would hold a thread."""
        patience = threading.Timer(self._deadline, context.cancel)
        patience.daemon = True
        patience.start()
        try:
            return next(request_iterator).hello.name
        except StopIteration:
            return ""
        finally:
            patience.cancel()


def _check_certificate(context: grpc.ServicerContext, name: str) -> None:
    """An owner attaches under the name in its certificate, and a learner's is none."""
    peer = peer_of(context)
    if peer is None or peer.role == "learner":
        _turn_away(
            context,
            "an owner's certificate is needed; make one with copriv certs --owner NAME",
        )
    if peer.name != name:
        _turn_away(
            context,
            f"the certificate is {peer.name}'s, so its owner cannot attach as {name}; give it "
            f"the files that copriv certs made for {name}, or set its name right",
        )


def _turn_away(context: grpc.ServicerContext, sentence: str) -> NoReturn:
    context.abort(grpc.StatusCode.PERMISSION_DENIED, sentence)
    raise AssertionError("abort returned")  # pragma: no cover


def _listen(request_iterator: Iterator[pb.OwnerMessage], stream: OwnerStream) -> None:
    """Take an owner's messages until its stream ends."""
    try:
        for message in request_iterator:
            stream.take(message)
    except Exception:  # noqa: S110 (gRPC raises a bare Exception when the owner is gone)
        pass
    finally:
        stream.end()
