"""The learner's own port: owners come to it, and are asked on the streams that they opened."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import grpc

from common import codec
from common.channels import bind, need_grpc, peer_of
from common.pb import copriv_pb2 as pb
from common.texts import claimed
from common.tls import Identity
from common.wire import QUIET_OPTIONS, SERVER_OPTIONS, calls_at_once, size_options
from learner.network.attached_owner import AttachedOwner, OwnerStream

_Message = pb.OwnerMessage | codec.Unreadable

STOP_SECONDS = 5.0
# Of one owner at once: those that a broken line left behind, and one that is new.
MOST_STREAMS = 4
# Of one connection at once: an owner needs one.
MOST_CALLS = 16
# In units of virtual time: no clock that takes part in a study is slower.
LONGEST_GAP = 1e9


class AttachmentServer:
    """A server for the owners of one study; also the queue of their requests.

    Guarantees:
      * An owner that the study does not name is turned away, with a sentence.
      * With an identity, owners are known by their certificates, and nobody else is let in.
      * Owners are asked one at a time, by the thread that runs the loop.

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
        self.owners = [
            AttachedOwner(
                name, changed=self._changed, deadline=deadline, patience=patience, token=token
            )
            for name, token in zip(names, tokens or [None] * len(names), strict=True)
        ]
        # A stream holds a thread for as long as it is open; strangers must not take them all.
        workers = MOST_STREAMS * len(names) + 4
        need_grpc()
        self._server = grpc.server(
            ThreadPoolExecutor(max_workers=workers, thread_name_prefix="attached"),
            options=[*SERVER_OPTIONS, *QUIET_OPTIONS, *size_options(), *calls_at_once(MOST_CALLS)],
            maximum_concurrent_rpcs=workers,
        )
        service = _Service(
            {owner.name: owner for owner in self.owners},
            self._changed,
            deadline,
            certified=identity is not None,
        )
        self._server.add_generic_rpc_handlers((_handlers(service),))
        self.port = bind(self._server, "network.listen", address, identity)
        self._server.start()

    def __enter__(self) -> AttachmentServer:
        """Listening."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening; owners that got no goodbye will try to come back."""
        for owner in self.owners:
            if (stream := owner.stream) is not None:
                stream.end()
        self._server.stop(STOP_SECONDS).wait(2 * STOP_SECONDS)

    def anybody(self, ready: Callable[[int], bool]) -> bool:
        """Whether any owner is attached that may be asked."""
        return any(
            owner.stream is not None and ready(index) for index, owner in enumerate(self.owners)
        )

    def next_request(
        self, *, now: float, time_scale: float, ready: Callable[[int], bool], timeout: float
    ) -> tuple[int, float] | None:
        """The next owner that asked, and when its clock ticked; see ``Requests.next_request``.

        In virtual time every attached owner that is ready is waited for: only then is the
        smallest time the next one.
        """
        until = time.monotonic() + timeout
        with self._changed:
            while True:
                present = self._present(ready, now, time_scale)
                asked = {i: s for i, s in present.items() if _has_asked(s, now)}
                if asked and (time_scale > 0 or len(asked) == len(present)):
                    first, when = _first(asked, by_arrival=time_scale > 0)
                    self.owners[first].broke_its_silence()
                    return first, when
                if time_scale == 0:
                    self._cut_off(present)
                left = until - time.monotonic()
                if left <= 0:
                    return None
                # Not until something comes: a silence may be over first.
                self._changed.wait(min(left, self._deadline))

    def _cut_off(self, present: dict[int, OwnerStream]) -> None:
        """In virtual time all wait for an owner that is attached but silent."""
        for index, stream in present.items():
            silence = time.monotonic() - stream.quiet_since
            if stream.request is None and silence > self._deadline:
                self.owners[index].cut_off()

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
                    stream.quiet_since = stream.quiet_since or time.monotonic()
                    start = pb.ClockStart(time=now, time_scale=time_scale)
                    stream.send(pb.LearnerMessage(start=start))
                present[index] = stream
        return present


def _has_asked(stream: OwnerStream, now: float) -> bool:
    """Whether the owner has asked for an update, at a time that its clock can have ticked at."""
    if stream.request is None:
        return False
    if not 0 <= stream.request.time <= now + LONGEST_GAP:
        stream.blame(f"says that its clock ticked at {stream.request.time:.6g}")
        return False
    return True


def _first(asked: dict[int, OwnerStream], *, by_arrival: bool) -> tuple[int, float]:
    """The owner whose request comes first, and its time; the request is taken."""

    def order(index: int) -> float:
        stream = asked[index]
        return stream.arrived if by_arrival or stream.request is None else stream.request.time

    first = min(asked, key=order)
    request, asked[first].request = asked[first].request, None
    return first, request.time if request is not None else 0.0


def _handlers(service: _Service) -> grpc.GenericRpcHandler:
    """The service's one method; what is no message arrives as :class:`codec.Unreadable`."""
    attach = grpc.stream_stream_rpc_method_handler(
        service.attach,
        request_deserializer=codec.reader(pb.OwnerMessage),
        response_serializer=pb.LearnerMessage.SerializeToString,
    )
    name = pb.DESCRIPTOR.services_by_name["Learner"].full_name
    return grpc.method_handlers_generic_handler(name, {"Attach": attach})


class _Service:
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
        # The open streams of each certificate's owner.
        self._open: Counter[str] = Counter()

    def attach(
        self, request_iterator: Iterator[_Message], context: grpc.ServicerContext
    ) -> Iterable[pb.LearnerMessage]:
        """An owner's stream, from its hello to our goodbye."""
        certified = _certified_name(context) if self._certified else None
        if certified is not None:
            # Before its hello is waited for: a stranger holds no thread.
            self._known(certified, context)
            self._take_place(certified, context)
        name = self._name(request_iterator, context)
        if certified not in (None, name):
            _turn_away(
                context,
                f"the certificate is {claimed(certified)}'s, so its owner cannot attach as "
                f"{claimed(name)}; give it the files that were made for that name, or "
                "set its name right",
            )
        owner = self._known(name, context)
        if owner.fault is not None:
            _turn_away(context, "this owner did what no owner does; ask the study's operator")
        stream = OwnerStream(name, self._changed)
        threading.Thread(
            target=_listen, args=(request_iterator, stream), name="listen", daemon=True
        ).start()
        owner.attach(stream)
        # Last: an owner that is shown who the learner is has its place.
        context.send_initial_metadata(owner.metadata)
        return stream.messages()

    def _known(self, name: str, context: grpc.ServicerContext) -> AttachedOwner:
        """The owner of a name; whoever the study does not name is turned away."""
        owner = self._owners.get(name)
        if owner is None:
            _turn_away(
                context,
                "this study names no such owner; give the owner the name that the study knows",
            )
        return owner

    def _take_place(self, name: str, context: grpc.ServicerContext) -> None:
        """Count an owner's streams: who opens many must not take the threads of the others."""

        def leave() -> None:
            with self._changed:
                self._open[name] -= 1

        with self._changed:
            self._open[name] += 1
            are_many = self._open[name] > MOST_STREAMS
        if not context.add_callback(leave):
            leave()
        if are_many:
            context.abort(
                grpc.StatusCode.UNAVAILABLE,
                f"{MOST_STREAMS} streams of this owner are open; end one, or come back later",
            )

    def _name(self, request_iterator: Iterator[_Message], context: grpc.ServicerContext) -> str:
        """The name in the hello; a silent stream is cancelled, or it would hold a thread."""
        patience = threading.Timer(self._deadline, context.cancel)
        patience.daemon = True
        patience.start()
        try:
            first = next(request_iterator)
            return "" if isinstance(first, codec.Unreadable) else first.hello.name
        except StopIteration:
            return ""
        finally:
            patience.cancel()


def _certified_name(context: grpc.ServicerContext) -> str:
    """The name in an owner's certificate; a learner's is none."""
    peer = peer_of(context)
    if peer is None or peer.role == "learner":
        _turn_away(
            context,
            "an owner's certificate is needed; copriv admit makes it, or copriv certs --owner NAME",
        )
    return peer.name


def _turn_away(context: grpc.ServicerContext, sentence: str) -> NoReturn:
    context.abort(grpc.StatusCode.PERMISSION_DENIED, sentence)
    raise AssertionError("abort returned")  # pragma: no cover


def _listen(request_iterator: Iterator[_Message], stream: OwnerStream) -> None:
    """Take an owner's messages until its stream ends."""
    try:
        for message in request_iterator:
            stream.take(message)
            if not stream.open:
                break
    except Exception:  # noqa: S110 (gRPC raises a bare Exception when the owner is gone)
        pass
    finally:
        stream.end()
