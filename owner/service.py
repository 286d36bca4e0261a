"""The owner's calls as bytes in and bytes out: what each of them reads, does and says."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError, Message

from common import codec
from common.errors import MalformedError
from common.pb import copriv_pb2 as pb
from common.terms import Response
from owner.answering import DataOwner
from owner.mechanism import DrawnAhead
from owner.metrics import OwnerMetrics
from owner.refusals import PublicRefusal, Refusals

Answer = Callable[..., Response | None]
Reply = Callable[[Any, str], Message | None]


@dataclass(frozen=True)
class Method:
    """One call of the protocol.

    Args:
      request: The message that it takes.
      reply: The answer to one message of a learner.
      at_once: The same within about a millisecond; but None, and nothing done, if it has to wait.
      streams: Whether more messages may follow the first.
      is_quick: Whether a message is answered at once; others may take seconds.
      pauses: Whether it may wait on purpose.
    """

    request: type[Message]
    reply: Reply
    at_once: Reply | None = None
    streams: bool = False
    is_quick: Callable[[Any], bool] = lambda _: True
    pauses: bool = False


class OwnerService:
    """The DataOwner service of ``protos/copriv.proto``, without its connections.

    Args:
      owner: Whose calls they are.
      metrics: What is counted.
      on_ledger: Told after each call whether the ledger worked when it was last used.
    """

    def __init__(
        self,
        owner: DataOwner,
        metrics: OwnerMetrics,
        *,
        on_ledger: Callable[[bool], object] = lambda works: None,
    ) -> None:
        self._owner = owner
        self._on_ledger = on_ledger
        self._metrics = metrics
        self._refusals = Refusals()
        # Seconds that answers took which are not counted yet.
        self._answered: deque[float] = deque()
        self.access = owner.access
        answers = Method(
            pb.Query,
            partial(self._answer, owner.answer),
            at_once=partial(self._answer, owner.answer_at_once),
            is_quick=self._is_ready,
        )
        self.methods = {
            "Describe": Method(pb.DescribeRequest, self._describe),
            "Enroll": Method(pb.StudyTerms, self._enroll, is_quick=self._is_ready),
            "Answer": replace(answers, streams=True),
            "AnswerOnce": answers,
            "Close": Method(pb.CloseRequest, self._close),
            "Offer": Method(pb.OfferRequest, self._offer, pauses=True),
        }

    def reply(
        self, method: Method, content: bytes, learner: str, *, if_quick: bool = False
    ) -> bytes | None:
        """The reply to one message; with ``if_quick`` None, and nothing done, if it may take long.

        Bytes that are no message are refused like any malformed one. Left to gRPC, each would
        keep some 16 kB of the owner's memory for ever.

        Args:
          method: The call.
          content: The message.
          learner: The learner that asks.
          if_quick: Whether to do nothing, and return None, where it may take long.

        Raises:
          RefusedError: The owner refuses; any other error is its own failure.
        """
        try:
            request = method.request.FromString(content)
        except DecodeError:
            # Without the error: it would hold the bytes for as long as the refusal lives.
            request = None
        if request is None:
            raise MalformedError("the request's bytes are no message of this protocol")
        if if_quick and not method.is_quick(request):
            return None
        answered = method.at_once if if_quick and method.at_once else method.reply
        reply = answered(request, learner)
        return None if reply is None else reply.SerializeToString()

    def awaited(self, method: Method, content: bytes) -> DrawnAhead | None:
        """The noise that an unanswered message waits for; None if it waits for something else."""
        if method.at_once is None:
            return None
        request: Any = method.request.FromString(content)
        return self._owner.noise(request.study_id)

    def after_reply(self) -> None:
        """Do what can wait until a reply has left, or cannot leave: count it."""
        self._on_ledger(self._owner.ledger_works)
        while self._answered:
            self._metrics.seconds.observe(self._answered.popleft())
            self._metrics.responses.inc()

    def refusal(self, error: Exception) -> PublicRefusal:
        """What a learner may know of an error; it is logged and counted."""
        self._on_ledger(self._owner.ledger_works)
        refusal = self._refusals.public(error)
        self._metrics.refusals.labels(refusal.status.name).inc()
        return refusal

    def _is_ready(self, request: pb.StudyTerms | pb.Query) -> bool:
        """Whether the study of a message need not be made ready."""
        return self._owner.noise(request.study_id) is not None

    def _describe(self, request: pb.DescribeRequest, learner: str) -> Message:
        del request
        return codec.description_to_pb(self._owner.describe(learner=learner))

    def _enroll(self, request: pb.StudyTerms, learner: str) -> Message:
        terms = codec.terms_from_pb(request)
        return codec.enrollment_to_pb(self._owner.enroll(terms, learner=learner))

    def _answer(self, answer: Answer, request: pb.Query, learner: str) -> Message | None:
        began = time.perf_counter()
        try:
            response = answer(codec.query_from_pb(request), learner=learner)
        except BaseException:
            self._metrics.seconds.observe(time.perf_counter() - began)
            raise
        if response is None:
            return None
        self._answered.append(time.perf_counter() - began)
        return codec.response_to_pb(response)

    def _close(self, request: pb.CloseRequest, learner: str) -> Message:
        entry = self._owner.close(request.study_id, learner=learner)
        return codec.close_summary_to_pb(entry.account.answered, entry.epsilon_spent)

    def _offer(self, request: pb.OfferRequest, learner: str) -> Message:
        return pb.OfferReply(accepted=self._owner.offer(request.study_id, learner=learner))
