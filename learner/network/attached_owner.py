"""One owner on the stream that it opened to us: calls go down the stream, requests come up."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from common import codec
from common.errors import MalformedError, UnreachableError
from common.pb import copriv_pb2 as pb
from common.terms import Enrollment, OwnerDescription, Query, Response, StudyTerms
from common.texts import printable
from common.wire import SHORTEST_WAIT_SECONDS, error_numbered, token_metadata

log = logging.getLogger("copriv.learner")

T = TypeVar("T")

# An owner asks for one update at a time; some may cross with what we ask.
MOST_UNASKED = 16
# A machine may sleep for a while, but not whenever it is waited for.
MOST_SILENCES = 3


class OwnerStream:
    """One owner's stream: messages out, the reply that is waited for, and the latest request in.

    Whatever the owner sends, only these two are kept.
    """

    def __init__(self, name: str, changed: threading.Condition) -> None:
        self._name = name
        self._changed = changed
        self._outgoing: queue.SimpleQueue[pb.LearnerMessage | None] = queue.SimpleQueue()
        self._unasked = 0
        self._call = 0
        self.reply: pb.OwnerMessage | None = None
        self.request: pb.UpdateRequest | None = None
        self.arrived = 0.0
        # When the owner last replied, or its clock started, monotonic; 0 before.
        self.quiet_since = 0.0
        self.started = False
        self.open = True
        # What the owner did that no owner does.
        self.fault: str | None = None

    def send(self, message: pb.LearnerMessage) -> None:
        """Send one message; if it is a call, its reply is the only one that counts."""
        with self._changed:
            if message.call:
                self._call, self.reply = message.call, None
        self._outgoing.put(message)

    def messages(self) -> Iterator[pb.LearnerMessage]:
        """What is sent, until the stream ends."""
        return iter(self._outgoing.get, None)

    def take(self, message: pb.OwnerMessage | codec.Unreadable) -> None:
        """Keep the owner's message for the thread that waits for it."""
        with self._changed:
            if not self.open:
                # What crosses with the end of a stream says nothing of the owner on its next one.
                return
            if isinstance(message, codec.Unreadable):
                self.blame("sent bytes that are no message of this protocol")
                return
            if message.HasField("request"):
                self._unasked += 1
                self.request, self.arrived = message.request, time.monotonic()
            elif self._call and message.call == self._call and self.reply is None:
                self.reply, self._unasked = message, 0
                if self.started:
                    self.quiet_since = time.monotonic()
            else:
                self._unasked += 1
            if self._unasked > MOST_UNASKED:
                self.blame(f"sent {self._unasked} messages that nobody asked for")
            self._changed.notify_all()

    def blame(self, fault: str) -> None:
        """The owner does what no owner does: nothing more is said to it, or heard from it."""
        with self._changed:
            if self.fault is None:
                self.fault = f"owner {self._name} {fault}; ask its operator"
                log.warning("goes on without it: %s", self.fault)
            self.end()

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

    # It works only while somebody waits for it.
    answers_later = False

    def __init__(
        self,
        name: str,
        *,
        changed: threading.Condition,
        deadline: float,
        patience: float,
        token: str | None = None,
    ) -> None:
        self.name = name
        self.metadata = token_metadata(token)
        self._changed = changed
        self._deadline = deadline
        self._patience = patience
        self._stream: OwnerStream | None = None
        self._is_over = False
        self._calls = 0
        self._silences = 0
        self._asking = threading.Lock()

    @property
    def stream(self) -> OwnerStream | None:
        """The owner's open stream, or None while it is away."""
        return self._stream if self._stream is not None and self._stream.open else None

    @property
    def fault(self) -> str | None:
        """What the owner did that no owner does, or None; the run goes on without it."""
        return None if self._stream is None else self._stream.fault

    def broke_its_silence(self) -> None:
        """Its request is taken: it is not silent."""
        self._silences = 0

    def cut_off(self) -> None:
        """It is attached but silent, and all wait for it: it must come back, a few times."""
        self._silences += 1
        if self._stream is not None and self._silences >= MOST_SILENCES:
            self._stream.blame(f"was attached {self._silences} times and asked for no update")
        elif self._stream is not None:
            self._stream.end()

    def attach(self, stream: OwnerStream) -> None:
        """Take the owner's new stream; an older one is dead or will be."""
        with self._changed:
            before, self._stream = self._stream, stream
            if before is not None and before.open:
                # It was never away: its silence goes on.
                stream.quiet_since = before.quiet_since
            self._changed.notify_all()
        if before is not None:
            before.end()

    def describe(self) -> OwnerDescription:
        """What the owner is and what it would agree to."""
        return self._call(
            pb.LearnerMessage(describe=pb.DescribeRequest()),
            lambda reply: codec.description_from_pb(reply.description),
            expected="description",
        )

    def enroll(self, terms: StudyTerms) -> Enrollment:
        """Agree on a study; the same terms again return the same enrolment."""
        return self._call(
            pb.LearnerMessage(enroll=codec.terms_to_pb(terms)),
            lambda reply: codec.enrollment_from_pb(reply.enrollment),
            expected="enrollment",
        )

    def send(self, query: Query) -> None:
        """Its own clock asks for one update at a time."""

    def answer(self, query: Query) -> Response:
        """One charged, noised mean gradient."""
        return self._call(
            pb.LearnerMessage(query=codec.query_to_pb(query)),
            lambda reply: codec.response_from_pb(reply.response),
            expected="response",
        )

    def offer(self, study_id: str) -> bool:
        """An owner that asks by itself needs no offers; it listens while it is attached."""
        del study_id
        return self.stream is not None

    def close(self, study_id: str) -> None:
        """End the study; what it did not use returns to the owner's budget."""
        close = pb.CloseRequest(study_id=study_id)
        self._call(pb.LearnerMessage(close=close), lambda reply: reply.closed, expected="closed")

    def disconnect(self, *, over: bool = False) -> None:
        """End the owner's stream, with a goodbye if the study is over; wake who waits for it."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        stream = self.stream
        if stream is not None:
            if over:
                stream.send(pb.LearnerMessage(goodbye=pb.Goodbye()))
            stream.end()

    def _call(
        self, message: pb.LearnerMessage, read: Callable[[pb.OwnerMessage], T], *, expected: str
    ) -> T:
        """What is read from the owner's reply to one call; they go one after another.

        An owner that asks for patience gets the same call again, as long as the deadline lasts.
        """
        due = time.monotonic() + self._deadline
        while (reply := self._call_once(message)).HasField("refusal"):
            refusal = reply.refusal
            wait = refusal.retry_after_ms / 1000.0
            if not wait or time.monotonic() + wait > due:
                sentence = printable(refusal.sentence)
                raise error_numbered(refusal.status)(f"owner {self.name}: {sentence}")
            self._rest(max(wait, SHORTEST_WAIT_SECONDS))
        if not reply.HasField(expected):
            raise MalformedError(
                f"owner {self.name} sent another reply than {expected}; ask its operator"
            )
        try:
            return read(reply)
        except MalformedError as error:
            raise MalformedError(
                f"owner {self.name} sent what cannot be read: {error}; ask its operator"
            ) from None

    def _rest(self, seconds: float) -> None:
        """Wait, unless the owner's stream ends."""
        with self._changed:
            self._changed.wait_for(lambda: self.stream is None, seconds)

    def _call_once(self, message: pb.LearnerMessage) -> pb.OwnerMessage:
        """One reply to one call."""
        with self._changed:
            # An owner that has never attached may still be starting; one that was there is away.
            self._changed.wait_for(
                lambda: self._stream is not None or self._is_over, self._patience
            )
        with self._asking:
            self._raise_fault()
            stream = self.stream
            if stream is None:
                raise UnreachableError(
                    f"owner {self.name} is not attached; start copriv-owner attach there"
                )
            self._calls += 1
            message.call = self._calls
            stream.send(message)
            return self._reply(stream)

    def _reply(self, stream: OwnerStream) -> pb.OwnerMessage:
        """Wait for the reply to the call that was sent."""
        with self._changed:
            self._changed.wait_for(
                lambda: not stream.open or stream.reply is not None, self._deadline
            )
            reply = stream.reply
        self._raise_fault()
        if reply is None:
            stream.end()
            raise UnreachableError(f"owner {self.name} did not answer in time; read its log")
        return reply

    def _raise_fault(self) -> None:
        if self.fault is not None:
            raise MalformedError(self.fault)
