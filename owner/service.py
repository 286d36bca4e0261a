"""The owner on the wire: gRPC calls in, one table from error to status; no mathematics."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from common import codec
from common.channels import peer_of
from common.errors import BusyError, IdentityError, MalformedError, RefusedError
from common.pb import copriv_pb2 as pb
from common.pb import copriv_pb2_grpc as pb_grpc
from common.wire import RETRY_AFTER, printable, status_of, token_in
from owner.access import Access, RateLimit
from owner.answering import DataOwner
from owner.health import SERVICE
from owner.metrics import OwnerMetrics

__all__ = ["OwnerService", "handlers", "public_refusal"]

log = logging.getLogger("copriv.owner")

T = TypeVar("T")

# Exception text may carry records or paths, so the wire says only this.
FAILED = "the owner failed; its operator finds the reason in the owner's log"
LOGGED_PER_SECOND = 1.0


def identity(context: grpc.ServicerContext, access: Access) -> str:
    """Who asks: by its token, by the common name of its certificate, or anonymous.

    Raises:
      IdentityError: It is an owner; or the token is unknown, or missing where we want one.
    """
    peer = peer_of(context)
    if peer is not None and peer.role == "owner":
        raise IdentityError("this owner answers learners only; come with a learner's certificate")
    certificate = None if peer is None else peer.name
    token = token_in(context.invocation_metadata())
    return access.identify(token=token, certificate=certificate)


class _Unreadable:
    """Stands for bytes that are no message of the protocol."""


def handlers(service: OwnerService) -> grpc.GenericRpcHandler:
    """The service's methods, for a server.

    Bytes that are no message are refused like any malformed one. Left to gRPC, each would keep
    some 16 kB of the owner's memory for ever.
    """
    methods = {}
    for method in pb.DESCRIPTOR.services_by_name["DataOwner"].methods:
        streams = method.client_streaming and method.server_streaming
        kind = (
            grpc.stream_stream_rpc_method_handler
            if streams
            else grpc.unary_unary_rpc_method_handler
        )
        methods[method.name] = kind(
            getattr(service, method.name),
            request_deserializer=_reader(GetMessageClass(method.input_type)),
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
    return grpc.method_handlers_generic_handler(SERVICE, methods)


def _reader(kind: type[Message]) -> Callable[[bytes], Message | _Unreadable]:
    """Bytes to a message, without an error."""

    def read(content: bytes) -> Message | _Unreadable:
        try:
            return kind.FromString(content)
        except DecodeError:
            return _Unreadable()

    return read


class OwnerService(pb_grpc.DataOwnerServicer):
    """The DataOwner service of ``protos/copriv.proto``."""

    def __init__(self, owner: DataOwner, metrics: OwnerMetrics | None = None) -> None:
        self._owner = owner
        # A learner that is refused a million times must not fill the ledger's disk with it.
        self._noted = RateLimit(per_second=LOGGED_PER_SECOND, burst=20 * LOGGED_PER_SECOND)
        self._unnoted = 0
        self._metrics = metrics or OwnerMetrics(owner)

    def Describe(  # noqa: N802
        self, request: pb.DescribeRequest, context: grpc.ServicerContext
    ) -> pb.OwnerDescription:
        """What the owner is and what it would agree to."""
        return self._answered(
            request,
            context,
            lambda learner: codec.description_to_pb(self._owner.describe(learner=learner)),
        )

    def Enroll(  # noqa: N802
        self, request: pb.StudyTerms, context: grpc.ServicerContext
    ) -> pb.Enrollment:
        """Agree on a study and reserve its budget."""
        return self._answered(
            request,
            context,
            lambda learner: codec.enrollment_to_pb(
                self._owner.enroll(codec.terms_from_pb(request), learner=learner)
            ),
        )

    def Answer(  # noqa: N802
        self, request_iterator: Iterator[pb.Query], context: grpc.ServicerContext
    ) -> Iterator[pb.Response]:
        """Answer a stream of queries, one response each; a refusal ends the stream."""
        for request in request_iterator:
            yield self.AnswerOnce(request, context)

    def AnswerOnce(  # noqa: N802
        self, request: pb.Query, context: grpc.ServicerContext
    ) -> pb.Response:
        """Answer one query."""
        with self._metrics.seconds.time():
            response = self._answer(request, context)
        self._metrics.responses.inc()
        return response

    def _answer(self, request: pb.Query, context: grpc.ServicerContext) -> pb.Response:
        return self._answered(
            request,
            context,
            lambda learner: codec.response_to_pb(
                self._owner.answer(codec.query_from_pb(request), learner=learner)
            ),
        )

    def Close(  # noqa: N802
        self, request: pb.CloseRequest, context: grpc.ServicerContext
    ) -> pb.CloseSummary:
        """End a study."""

        def close(learner: str) -> pb.CloseSummary:
            entry = self._owner.close(request.study_id, learner=learner)
            return codec.close_summary_to_pb(entry.account.answered, entry.epsilon_spent)

        return self._answered(request, context, close)

    def Offer(  # noqa: N802
        self, request: pb.OfferRequest, context: grpc.ServicerContext
    ) -> pb.OfferReply:
        """Say whether the owner would take a query now."""
        return self._answered(
            request,
            context,
            lambda learner: pb.OfferReply(
                accepted=self._owner.offer(request.study_id, learner=learner)
            ),
        )

    def _answered(
        self, request: object, context: grpc.ServicerContext, call: Callable[[str], T]
    ) -> T:
        """The call's result, or its error as a status with a public sentence."""
        try:
            learner = identity(context, self._owner.access)
            if isinstance(request, _Unreadable):
                raise MalformedError("the request's bytes are no message of this protocol")
            return call(learner)
        except Exception as error:
            refusal = public_refusal(error, note=self._note)
            self._metrics.refusals.labels(refusal.status.name).inc()
            if refusal.retry_after_ms:
                context.set_trailing_metadata(((RETRY_AFTER, str(refusal.retry_after_ms)),))
            _abort(context, refusal.status, refusal.sentence)

    def _note(self, sentence: str) -> None:
        """Log a refusal, or only count it when there are too many."""
        if self._noted.wait() > 0:
            self._unnoted += 1
            return
        more, self._unnoted = self._unnoted, 0
        log.warning("refused: %s%s", sentence, f" ({more} refusals before it)" if more else "")


@dataclass(frozen=True)
class PublicRefusal:
    """What the other side may know of an error; asking again helps if there is a time for it."""

    status: grpc.StatusCode
    sentence: str
    retry_after_ms: int = 0


def _note_each(sentence: str) -> None:
    """Log every refusal."""
    log.warning("refused: %s", sentence)


def public_refusal(error: Exception, *, note: Callable[[str], None] = _note_each) -> PublicRefusal:
    """What the other side may know of an error; an unexpected one is logged here in full."""
    if not isinstance(error, RefusedError):
        log.error("a call failed", exc_info=error)
        return PublicRefusal(grpc.StatusCode.INTERNAL, FAILED)
    sentence = printable(error)
    note(sentence)
    wait = math.ceil(1000 * error.retry_after) if isinstance(error, BusyError) else 0
    return PublicRefusal(status_of(error), sentence, wait)


def _abort(context: grpc.ServicerContext, status: grpc.StatusCode, sentence: str) -> NoReturn:
    context.abort(status, sentence)
    raise AssertionError("abort returned")  # pragma: no cover
