"""An owner over the network: a stream of queries with a deadline for each answer."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import grpc

from common import codec
from common.channels import open_channel
from common.diagnosis import Cause, why_unreachable
from common.errors import (
    BudgetSpentError,
    CoprivError,
    MalformedError,
    OrderError,
    OwnerFailedError,
    PolicyError,
    UnreachableError,
    UntrustedError,
)
from common.pb import copriv_pb2 as pb
from common.pb import copriv_pb2_grpc as pb_grpc
from common.terms import Enrollment, OwnerDescription, Query, Response, StudyTerms
from common.tls import Identity

__all__ = ["GrpcOwner", "error_of"]

T = TypeVar("T")

LARGEST_MESSAGE = 96 * 2**20
OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    ("grpc.max_send_message_length", LARGEST_MESSAGE),
    # A peer that vanishes without closing the connection is noticed by its silence.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Owners come back within a second, not within gRPC's default of minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # The time one attempt may take: TCP and TLS need several round trips of a slow line.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]

DIAGNOSIS_SECONDS = 3.0
LOOK_SECONDS = 0.5

ERRORS: dict[grpc.StatusCode, type[CoprivError]] = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: BudgetSpentError,
    grpc.StatusCode.INVALID_ARGUMENT: MalformedError,
    grpc.StatusCode.FAILED_PRECONDITION: OrderError,
    grpc.StatusCode.PERMISSION_DENIED: PolicyError,
    grpc.StatusCode.UNAUTHENTICATED: PolicyError,
    grpc.StatusCode.INTERNAL: OwnerFailedError,
    grpc.StatusCode.UNAVAILABLE: UnreachableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: UnreachableError,
    grpc.StatusCode.CANCELLED: UnreachableError,
}


def error_of(status: int) -> type[CoprivError]:
    """Our error for the number of a gRPC status, as an attached owner sends it.

    >>> error_of(8).__name__
    'BudgetSpentError'
    """
    kinds = {code.value[0]: kind for code, kind in ERRORS.items()}
    return kinds.get(status, OwnerFailedError)


class GrpcOwner:
    """One owner behind an address.

    Args:
      name: The owner's name in the study.
      address: HOST:PORT.
      deadline: Seconds that one answer may take.
      token: Identifies the learner to the owner; None sends none.
      identity: Our certificate; None speaks plain text.
    """

    def __init__(
        self,
        name: str,
        address: str,
        *,
        deadline: float,
        token: str | None = None,
        identity: Identity | None = None,
    ) -> None:
        self._name = name
        self._address = address
        self._deadline = deadline
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        self._identity = identity
        self._channel = open_channel(address, identity, OPTIONS)
        self._stub = pb_grpc.DataOwnerStub(self._channel)  # type: ignore[no-untyped-call]
        self._stream: _Stream | None = None

    @property
    def name(self) -> str:
        """The owner's name in the study."""
        return self._name

    def describe(self) -> OwnerDescription:
        """What the owner is and what it would agree to."""
        return self._call(
            lambda: codec.description_from_pb(
                self._stub.Describe(
                    pb.DescribeRequest(),
                    timeout=self._deadline,
                    metadata=self._metadata,
                )
            ),
            diagnose=True,
        )

    def enroll(self, terms: StudyTerms) -> Enrollment:
        """Agree on a study; the same terms again return the same enrolment.

        Does not wait for an owner that is not there: the caller tries again.
        """
        return self._call(
            lambda: codec.enrollment_from_pb(
                self._stub.Enroll(
                    codec.terms_to_pb(terms),
                    timeout=self._deadline,
                    metadata=self._metadata,
                )
            ),
            diagnose=True,
        )

    def answer(self, query: Query) -> Response:
        """One charged, noised mean gradient, over a stream that is opened when needed."""
        return self._call(lambda: self._ask(query))

    def offer(self, study_id: str) -> bool:
        """Whether the owner would take a query of the study now; charges nothing."""
        request = pb.OfferRequest(study_id=study_id)
        return self._call(
            lambda: bool(
                self._stub.Offer(request, timeout=self._deadline, metadata=self._metadata).accepted
            )
        )

    def close(self, study_id: str) -> None:
        """End the study; what it did not use returns to the owner's budget."""
        self._call(
            lambda: self._stub.Close(
                pb.CloseRequest(study_id=study_id), timeout=self._deadline, metadata=self._metadata
            )
        )

    def disconnect(self) -> None:
        """Let go of the connection; the study stays open."""
        self._drop_stream()
        self._channel.close()

    def _ask(self, query: Query) -> Response:
        if self._stream is None:
            self._stream = _Stream(
                lambda queries: self._stub.Answer(queries, metadata=self._metadata),
                deadline=self._deadline,
            )
        try:
            return codec.response_from_pb(self._stream.ask(codec.query_to_pb(query)))
        except BaseException:
            # A stream that failed once is over; the next query opens another.
            self._drop_stream()
            raise

    def _drop_stream(self) -> None:
        if self._stream is not None:
            self._stream.end()
            self._stream = None

    def _call(self, call: Callable[[], T], *, diagnose: bool = False) -> T:
        """The call's result, or the owner's status as one of our errors.

        An owner that asks for patience gets the same call again, as long as the deadline lasts.
        """
        due = time.monotonic() + self._deadline
        while True:
            try:
                return call()
            except grpc.RpcError as error:
                wait = _retry_after(error)
                if wait is None or time.monotonic() + wait > due:
                    raise self._error(error, busy=wait is not None, diagnose=diagnose) from None
            except TimeoutError:
                raise self._named(*self._cause(diagnose)) from None
            time.sleep(wait)

    def _error(self, error: grpc.RpcError, *, busy: bool, diagnose: bool) -> CoprivError:
        """The owner's status as one of our errors."""
        kind = ERRORS.get(error.code(), OwnerFailedError)
        detail = error.details()
        if kind is UnreachableError and not busy:
            kind, detail = self._cause(diagnose)
        return self._named(kind, detail)

    def _named(self, kind: type[CoprivError], detail: str | None) -> CoprivError:
        """An error that names the owner."""
        return kind(f"owner {self._name} at {self._address}: {detail}")

    def _cause(self, diagnose: bool) -> tuple[type[CoprivError], str]:
        """Why the owner is not reached; a query in mid-run has no time to ask."""
        if not diagnose:
            return UnreachableError, Cause.SILENT.sentence
        cause = why_unreachable(
            self._address, self._identity, far="owner", timeout=DIAGNOSIS_SECONDS
        )
        return (UntrustedError if cause.certificates else UnreachableError), cause.sentence


def _retry_after(error: grpc.RpcError) -> float | None:
    """Seconds after which a busy owner wants to be asked again; None if it is not busy."""
    for item in error.trailing_metadata() or ():
        if item.key == "retry-after-ms" and str(item.value).isdecimal():
            return int(item.value) / 1000.0
    return None


class _Stream:
    """One stream of queries.

    Answers are read by a thread of their own: gRPC's wait for the next one has no time limit,
    and not even a cancelled stream always ends it.
    """

    def __init__(
        self, method: Callable[[Iterator[pb.Query]], grpc.Call], *, deadline: float
    ) -> None:
        self._queries: queue.SimpleQueue[pb.Query | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[pb.Response | Exception] = queue.SimpleQueue()
        self._call = method(iter(self._queries.get, None))
        self._deadline = deadline
        threading.Thread(target=self._read, name="answers", daemon=True).start()

    def ask(self, query: pb.Query) -> pb.Response:
        """The answer to one query.

        Raises:
          TimeoutError: There is none after so many seconds, or the stream is over.
        """
        self._queries.put(query)
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
            return answer
        raise TimeoutError

    def _read(self) -> None:
        try:
            for answer in self._call:  # type: ignore[attr-defined]
                self._answers.put(answer)
        except grpc.RpcError as error:
            self._answers.put(error)
        else:
            self._answers.put(TimeoutError())

    def end(self) -> None:
        """End the stream and its reader."""
        self._queries.put(None)
        self._call.cancel()
