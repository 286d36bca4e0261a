"""An owner over the network: a stream of queries with a deadline for each answer."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from common import codec
from common.channels import Renewals, open_channel
from common.diagnosis import Cause, identify, why_unreachable
from common.errors import CoprivError, InputError, MalformedError, UnreachableError, UntrustedError
from common.pb import copriv_pb2 as pb
from common.terms import Enrollment, OwnerDescription, Query, Response, StudyTerms
from common.texts import claimed
from common.tls import Identity
from common.wire import (
    CLIENT_OPTIONS,
    RECONNECT_OPTIONS,
    ended_on_the_way,
    error_of,
    retry_after,
    said_with,
    token_metadata,
    too_large,
)
from learner.network.streams import Channels, Stream, StreamEndedError, open_stream
from learner.training.claims import check_description

T = TypeVar("T")

SMALLER = "train a smaller model, or let its operator raise policy.max_features and max_map_bytes"
NOT_ITS_OWN = (
    "the certificate there is that of {!r}; give each owner its own address in the study, and each "
    "machine the files that were made for its owner"
)
ON_THE_WAY = "ask its operator, or whoever runs a proxy on the way"
DIAGNOSIS_SECONDS = 3.0
# TCP and TLS need several round trips of a slow line.
HANDSHAKE_SECONDS = 10.0
_SERVICE = pb.DESCRIPTOR.services_by_name["DataOwner"]
_READ_RESPONSE = codec.reader(pb.Response)


class GrpcOwner:
    """One owner behind an address.

    Guarantees:
      * Only a process that shows the owner's certificate is described or enrolled under the owner's
        name; in plain text, one that says that it is this owner.

    Args:
      name: The owner's name in the study.
      address: HOST:PORT, or what tells it: the first call of the owner waits until it is known.
      deadline: Seconds that one answer may take.
      token: Identifies the learner to the owner; None sends none.
      identity: Our certificate; None speaks plain text.
    """

    # It works while nobody waits for it.
    answers_later = True

    def __init__(
        self,
        name: str,
        address: str | Callable[[], str],
        *,
        deadline: float,
        token: str | None = None,
        identity: Identity | None = None,
    ) -> None:
        self.name = name
        self._place = address
        self._deadline = deadline
        self._metadata = token_metadata(token)
        self._identity = identity
        self._renewals = None if identity is None else Renewals(identity, side="client")
        self._queries = _Queries(self._opened)
        self._ending = threading.Event()

    def describe(self) -> OwnerDescription:
        """What the owner is and what it would agree to.

        Raises:
          InputError: The certificate there is another owner's.
        """
        self._check_certificate()
        request = pb.DescribeRequest()
        return self._call(
            lambda: codec.description_from_pb(self._reply("Describe", request)), diagnose=True
        )

    def enroll(self, terms: StudyTerms) -> Enrollment:
        """Agree on a study; the same terms again return the same enrolment.

        Does not wait for an owner that is not there: the caller tries again.

        Raises:
          InputError: It is another owner.
        """
        if self._identity is None:
            check_description(self.describe(), name=self.name)
        self._check_certificate()
        request = codec.terms_to_pb(terms)
        return self._call(
            lambda: codec.enrollment_from_pb(self._reply("Enroll", request)), diagnose=True
        )

    def send(self, query: Query) -> None:
        """Ask, and leave the answer to :meth:`answer` of the same query."""
        # What is wrong with the stream is found when the answer is waited for.
        with contextlib.suppress(grpc.RpcError, ValueError):
            self._queries.send(query)

    def answer(self, query: Query) -> Response:
        """One charged, noised mean gradient, over a stream that is opened when needed."""
        return self._call(lambda: self._queries.ask(query))

    def offer(self, study_id: str) -> bool:
        """Whether the owner would take a query of the study now; charges nothing."""
        request = pb.OfferRequest(study_id=study_id)
        return self._call(lambda: bool(self._reply("Offer", request).accepted))

    def close(self, study_id: str) -> None:
        """End the study; what it did not use returns to the owner's budget."""
        request = pb.CloseRequest(study_id=study_id)
        self._call(lambda: self._reply("Close", request))

    def disconnect(self, *, over: bool = False) -> None:
        """Disconnect, and wake whoever waits in a call."""
        self._ending.set()
        self._queries.drop()
        if "_channels" in vars(self):
            self._channels.close()

    @property
    def _address(self) -> str:
        return self._place if isinstance(self._place, str) else self._place()

    @property
    def _who(self) -> str:
        return f"owner {self.name} at {self._address}"

    @cached_property
    def _channels(self) -> Channels:
        """The channels to it; the first call opens one."""
        address, options = self._address, [*CLIENT_OPTIONS, *RECONNECT_OPTIONS]
        return Channels(lambda: open_channel(address, self._identity, options))

    def _check_certificate(self) -> None:
        """Refuse a process that has another owner's certificate.

        Only an owner that has enrolled can answer, so it is enough to look before each enrolment.
        """
        if self._identity is None or self._renewals is None:
            return
        # It may be renewed while the owner is away.
        if (renewed := self._renewals.fetch()) is not None:
            self._identity = renewed
            self._channels.renew()
        timeout = min(self._deadline, HANDSHAKE_SECONDS)
        peer = identify(self._address, self._identity, far="owner", name=self.name, timeout=timeout)
        if peer.name != self.name:
            raise self._named(InputError, NOT_ITS_OWN.format(claimed(peer.name)))

    def _reply(self, method: str, request: Message) -> Any:
        """The owner's message in reply to one request."""
        call = _method(self._channels.now, method)
        return _read(call(request, timeout=self._deadline, metadata=self._metadata))

    def _opened(self) -> Stream:
        """A new stream of queries."""
        return open_stream(
            self._channels.now, _path("Answer"), metadata=self._metadata, deadline=self._deadline
        )

    def _call(self, call: Callable[[], T], *, diagnose: bool = False) -> T:
        """The call's result, or the owner's status as one of our errors.

        An owner that asks for patience gets the same call again, as long as the deadline lasts.
        """
        # Seconds count from when the owner is found.
        channels, due = self._channels, time.monotonic() + self._deadline
        said: grpc.RpcError | None = None
        while True:
            channel = channels.now
            try:
                return call()
            except grpc.RpcError as error:
                wait = retry_after(error.trailing_metadata())
                if wait is None or time.monotonic() + wait > due:
                    busy = wait is not None
                    raise self._error(error, busy=busy, diagnose=diagnose, said=said) from None
                said = error
            except TimeoutError:
                raise self._named(*self._cause(diagnose, said)) from None
            except MalformedError as error:
                raise MalformedError(
                    f"{self._who} sent what cannot be read: {error}; ask its operator"
                ) from None
            except ValueError:
                # The channel was closed between two attempts, or by another call that failed.
                if channel is channels.now and not self._ending.is_set():
                    raise
                wait = 0.0
            if self._ending.wait(wait):
                raise self._named(UnreachableError, "the connection was closed by us")

    def _error(
        self, error: grpc.RpcError, *, busy: bool, diagnose: bool, said: grpc.RpcError | None
    ) -> CoprivError:
        """The owner's status as one of our errors."""
        oversized = too_large(error.code(), error.details())
        if oversized is not None:
            return self._named(MalformedError, f"{oversized}; {SMALLER}")
        kind = error_of(error.code())
        detail = said_with(error.code(), error.details())
        if ended_on_the_way(error.code(), error.details()):
            return self._named(UnreachableError, f"gRPC ended the call ({detail}); {ON_THE_WAY}")
        if kind is UnreachableError and not busy:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                self._channels.renew()
            kind, detail = self._cause(diagnose, said)
        return self._named(kind, detail)

    def _named(self, kind: type[CoprivError], detail: str) -> CoprivError:
        """An error that names the owner."""
        return kind(f"{self._who}: {detail}")

    def _cause(self, diagnose: bool, said: grpc.RpcError | None) -> tuple[type[CoprivError], str]:
        """Why it is not reached, as far as there is time to ask; what it said before tells more."""
        cause = Cause.SILENT
        if diagnose and not self._ending.is_set():
            cause = why_unreachable(
                self._address, self._identity, far="owner", timeout=DIAGNOSIS_SECONDS
            )
            # Its certificate was seen before the call: what we sent may still fill a slow line.
            if cause == Cause.SILENT and self._identity is not None:
                cause = Cause.STALLED
        sentence = cause.sentence
        if said is not None:
            sentence += f"; before that it said: {said_with(said.code(), said.details())}"
        return (UntrustedError if cause.certificates else UnreachableError), sentence


class _Queries:
    """The stream of queries to one owner, opened when it is needed, and again after a failure."""

    def __init__(self, opened: Callable[[], Stream]) -> None:
        self._opened = opened
        self._stream: Stream | None = None
        # What the stream was sent, and has not answered.
        self._sent: Query | None = None

    def send(self, query: Query) -> Stream:
        """Ask, on another stream if this one waits for another answer."""
        if self._sent is not None:
            self.drop()
        if self._stream is None:
            self._stream = self._opened()
        self._stream.send(codec.query_to_pb(query).SerializeToString())
        self._sent = query
        return self._stream

    def ask(self, query: Query) -> Response:
        """The answer to a query, which is sent unless it was before."""
        used = self._stream
        try:
            try:
                return self._answer(query)
            except StreamEndedError:
                # An owner ends a stream that is quiet for long. The same query on another one
                # is the same question: whatever was answered meanwhile is answered again.
                self.drop()
                if used is None:
                    raise
                return self._answer(query)
        except BaseException:
            # A stream that failed once is over; the next query opens another.
            self.drop()
            raise

    def drop(self) -> None:
        """End the stream, and whoever waits for it."""
        stream, self._stream, self._sent = self._stream, None, None
        if stream is not None:
            stream.end()

    def _answer(self, query: Query) -> Response:
        stream, sent = self._stream, self._sent
        # The same question to the bit: the model is the same object.
        same = sent is not None and sent.sequence == query.sequence and sent.theta is query.theta
        if stream is None or not same:
            stream = self.send(query)
        answer, self._sent = stream.answer(), None
        return codec.response_from_pb(_read(_READ_RESPONSE(answer)))


def _method(channel: grpc.Channel, name: str) -> Any:
    """A method of one message; what is no message arrives as :class:`codec.Unreadable`."""
    method = _SERVICE.methods_by_name[name]
    return channel.unary_unary(
        _path(name),
        request_serializer=GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=codec.reader(GetMessageClass(method.output_type)),
    )


def _path(name: str) -> str:
    """One method of the owner's, as gRPC calls it."""
    return f"/{_SERVICE.full_name}/{name}"


def _read(message: Any) -> Any:
    """The message, if it is one."""
    if isinstance(message, codec.Unreadable):
        raise MalformedError("the bytes are no message of this protocol")
    if message is None:
        # gRPC takes a call that ends well for answered, whatever came before.
        raise MalformedError("the call ended without a message")
    return message
