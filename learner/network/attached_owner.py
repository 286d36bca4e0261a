"""One owner on the stream that it opened to us: calls go down the stream, requests come up."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator

from common import codec
from common.errors import OwnerFailedError, UnreachableError
from common.pb import copriv_pb2 as pb
from common.terms import Enrollment, OwnerDescription, Query, Response, StudyTerms
from learner.network.grpc_owner import error_of

__all__ = ["AttachedOwner", "OwnerStream"]


class OwnerStream:
    """One owner's stream: messages out, replies and the latest request in."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._outgoing: queue.SimpleQueue[pb.LearnerMessage | None] = queue.SimpleQueue()
        self.reply: pb.OwnerMessage | None = None
        self.request: pb.UpdateRequest | None = None
        self.arrived = 0.0
        self.started = False
        self.open = True

    def send(self, message: pb.LearnerMessage) -> None:
        """Send one message."""
        self._outgoing.put(message)

    def messages(self) -> Iterator[pb.LearnerMessage]:
        """What is sent, until the stream ends."""
        return iter(self._outgoing.get, None)

    def take(self, message: pb.OwnerMessage) -> None:
        """Keep the owner's message for the thread that waits for it."""
        with self._changed:
            if message.HasField("request"):
                self.request, self.arrived = message.request, time.monotonic()
            else:
                self.reply = message
            self._changed.notify_all()

    def end(self) -> None:
        """End the stream; nothing more is sent."""
        with self._changed:
            self.open = False
            self._changed.notify_all()
        self._outgoing.put(None)


class AttachedOwner:
    """One owner on the stream that it opened; the stream may be another one tomorrow.

    Args:
      name: The owner's name in the study.
      changed: Notified whenever anything about any owner changes.
      deadline: Seconds that one answer may take.
      patience: Seconds to wait for the owner to come for the first time.
      token: Identifies the learner to the owner; None sends none.
    """

    def __init__(
        self,
        name: str,
        *,
        changed: threading.Condition,
        deadline: float,
        patience: float,
        token: str | None = None,
    ) -> None:
        self._name = name
        self.metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        self._changed = changed
        self._deadline = deadline
        self._patience = patience
        self._stream: OwnerStream | None = None
        self._calls = 0
        self._asking = threading.Lock()

    @property
    def name(self) -> str:
        """The owner's name in the study."""
        return self._name

    @property
    def stream(self) -> OwnerStream | None:
        """The owner's open stream, or None while it is away."""
        return self._stream if self._stream is not None and self._stream.open else None

    def attach(self, stream: OwnerStream) -> None:
        """Take the owner's new stream; an older one is dead or will be."""
        with self._changed:
            before, self._stream = self._stream, stream
            self._changed.notify_all()
        if before is not None:
            before.end()

    def describe(self) -> OwnerDescription:
        """What the owner is and what it would agree to."""
        reply = self._call(pb.LearnerMessage(describe=pb.DescribeRequest()), "description")
        return codec.description_from_pb(reply.description)

    def enroll(self, terms: StudyTerms) -> Enrollment:
        """Agree on a study; the same terms again return the same enrolment."""
        reply = self._call(pb.LearnerMessage(enroll=codec.terms_to_pb(terms)), "enrollment")
        return codec.enrollment_from_pb(reply.enrollment)

    def answer(self, query: Query) -> Response:
        """One charged, noised mean gradient."""
        reply = self._call(pb.LearnerMessage(query=codec.query_to_pb(query)), "response")
        return codec.response_from_pb(reply.response)

    def offer(self, study_id: str) -> bool:
        """An owner that asks by itself needs no offers; it listens while it is attached."""
        del study_id
        return self.stream is not None

    def close(self, study_id: str) -> None:
        """End the study; what it did not use returns to the owner's budget."""
        self._call(pb.LearnerMessage(close=pb.CloseRequest(study_id=study_id)), "closed")

    def disconnect(self) -> None:
        """Tell the owner that the study is over, and end its stream."""
        stream = self.stream
        if stream is not None:
            stream.send(pb.LearnerMessage(goodbye=pb.Goodbye()))
            stream.end()

    def _call(self, message: pb.LearnerMessage, expected: str) -> pb.OwnerMessage:
        """The owner's reply to one call; calls to one owner go one after another.

        An owner that asks for patience gets the same call again, as long as the deadline lasts.

        Raises:
          UnreachableError: It is not attached, or leaves, or is silent; its stream is ended, so
            that it has to come back with a new one.
        """
        due = time.monotonic() + self._deadline
        while True:
            reply = self._call_once(message)
            if not reply.HasField("refusal"):
                break
            refusal = reply.refusal
            wait = refusal.retry_after_ms / 1000.0
            if not wait or time.monotonic() + wait > due:
                raise error_of(refusal.status)(f"owner {self._name}: {refusal.sentence}")
            time.sleep(wait)
        if not reply.HasField(expected):
            raise OwnerFailedError(f"owner {self._name} sent another reply than {expected}")
        return reply

    def _call_once(self, message: pb.LearnerMessage) -> pb.OwnerMessage:
        """One reply to one call."""
        with self._changed:
            # An owner that has never attached may still be starting; one that was there is away.
            self._changed.wait_for(lambda: self._stream is not None, self._patience)
        with self._asking:
            stream = self.stream
            if stream is None:
                raise UnreachableError(
                    f"owner {self._name} is not attached; start copriv-owner attach there"
                )
            self._calls += 1
            message.call = self._calls
            stream.send(message)
            return self._reply(stream, self._calls)

    def _reply(self, stream: OwnerStream, call: int) -> pb.OwnerMessage:
        """Wait for the reply to this call; replies to calls that were given up are ignored."""

        def is_there() -> bool:
            return not stream.open or (stream.reply is not None and stream.reply.call == call)

        with self._changed:
            self._changed.wait_for(is_there, self._deadline)
            reply = stream.reply
        if reply is None or reply.call != call:
            stream.end()
            raise UnreachableError(f"owner {self._name} did not answer in time")
        return reply
