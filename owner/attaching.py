"""An owner that comes to the learner: one stream that it opens itself, and no port for calls.

The learner's calls arrive on the stream and go to the same :class:`~owner.answering.DataOwner`
as calls to a port would: the same policy, the same ledger, the same noise. When the stream
breaks the owner opens another; when the learner says goodbye the study is over.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from common.config import load_settings
from common.errors import (
    CoprivError,
    InputError,
    MalformedError,
    PolicyError,
    UnreachableError,
    UntrustedError,
)
from common.expiry import Expiry
from common.metrics import metrics_served
from common.pb import copriv_pb2 as pb
from common.stopping import GRACE_SECONDS, Stop, jitter
from common.tls import load_identity, refuse_plain_text
from common.wire import CLIENT_OPTIONS, ended_on_the_way, said_with, token_in
from owner.answering import DataOwner
from owner.mending import Mending
from owner.metrics import OwnerMetrics
from owner.own_clock import Outgoing, OwnClock, Send
from owner.policy import OwnerSettings
from owner.refusals import PublicRefusal, SlowLog
from owner.route import Route
from owner.server import open_owner, refuse_taken
from owner.service import OwnerService

SHORTEST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
_ATTACH = f"/{pb.DESCRIPTOR.services_by_name['Learner'].full_name}/Attach"
# What a learner asks, by the name of its content: the call of a port, and the content of the reply.
CALLS = {
    "query": ("AnswerOnce", "response"),
    "enroll": ("Enroll", "enrollment"),
    "describe": ("Describe", "description"),
    "close": ("Close", "closed"),
}
# Statuses after which trying again is of no use.
FINAL = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
)


class Attachment:
    """Keeps an owner attached to a learner, by one stream after another.

    Args:
      owner: The owner that answers, for as long as its ledger can be used.
      name: Its name in the study.
      route: How its learner is reached.
      clock_rate: Expected updates per unit of virtual time.
      rng: Randomness of the owner's clock, which looks at no record.
      stay: Whether to wait for the next study after one is over.
      metrics: What is counted.
      metrics_at: HOST:PORT where it is shown meanwhile; None shows it nowhere.
    """

    def __init__(
        self,
        owner: DataOwner,
        *,
        name: str,
        route: Route,
        clock_rate: float,
        rng: np.random.Generator,
        stay: bool,
        metrics: OwnerMetrics,
        metrics_at: str | None,
    ) -> None:
        self.owner = owner
        self._name = name
        self._route = route
        self._clock_rate = clock_rate
        self._rng = rng
        # The learner's name as the channel has made sure of it.
        self._certificate: str | None = None
        self._stay = stay
        self._metrics, self._metrics_at = metrics, metrics_at
        self._service = OwnerService(owner, self._metrics)
        self._mending = Mending(owner, on_fault=self.end)
        self._absence = _Absence()
        self._ending = threading.Event()
        self._call: grpc.Call | None = None

    @property
    def address(self) -> str:
        """The learner's HOST:PORT."""
        return self._route.address

    def run(self, stop: Stop | threading.Event, *, grace: float = GRACE_SECONDS) -> None:
        """Answer until the study is over or ``stop`` is set, and release the ledger.

        A study that is made ready then is waited for ``grace`` seconds, an answer to its end.

        Raises:
          CoprivError: See :meth:`serve`.
        """
        failure: list[BaseException] = []

        def serve() -> None:
            try:
                self.serve()
            except BaseException as error:  # handed to the one who waits
                failure.append(error)
            stop.set()

        thread = threading.Thread(target=serve, name="attach", daemon=True)
        try:
            with metrics_served(self._metrics.registry, self._metrics_at, setting="metrics"):
                thread.start()
                stop.wait()
                self.end()
                thread.join(grace)
        finally:
            self._mending.stop()
            self.owner.stop()
        if failure:
            raise failure[0]

    def serve(self) -> None:
        """Answer until the study is over, or :meth:`end`.

        Raises:
          PolicyError: The learner does not want this owner.
          InputError: Certificates stand between the two from the start.
        """
        wait = SHORTEST_WAIT_SECONDS
        while not self._ending.is_set():
            greeted, over = self._converse()
            if over and not self._stay:
                return
            wait = SHORTEST_WAIT_SECONDS if greeted else min(2 * wait, LONGEST_WAIT_SECONDS)
            self._ending.wait(wait * jitter())

    def end(self) -> None:
        """Disconnect from the learner; what is open in the study stays open."""
        self._ending.set()
        if self._call is not None:
            self._call.cancel()

    def _converse(self) -> tuple[bool, bool]:
        """One stream from hello to its end: whether the learner spoke, and said goodbye."""
        greeted, over = False, False
        outgoing = Outgoing()
        clock = OwnClock(outgoing.put, rate=self._clock_rate, rng=self._rng)
        try:
            opened, self._certificate = self._route.open(CLIENT_OPTIONS)
        except CoprivError as error:
            self._absent(error)
            return False, False
        with opened as channel:
            attach = channel.stream_stream(
                _ATTACH,
                request_serializer=pb.OwnerMessage.SerializeToString,
                response_deserializer=pb.LearnerMessage.FromString,
            )
            outgoing.put(pb.OwnerMessage(hello=pb.Hello(name=self._name)))
            call = self._call = attach(outgoing.messages())
            if self._ending.is_set():
                call.cancel()
            try:
                for message in call:
                    greeted = True
                    self._absence.is_over(self.address)
                    over = message.HasField("goodbye")
                    if over or outgoing.is_full:
                        break
                    self._handle(
                        message, outgoing.put, clock, token=token_in(call.initial_metadata())
                    )
                    self._mending.used(self.owner.ledger_works)
                    if self._ending.is_set():
                        break
            except grpc.RpcError as error:
                self._explain(error)
            finally:
                clock.stop()
                outgoing.end()
            if outgoing.is_full:
                self._absent(UnreachableError(f"learner at {self.address}: it reads no answers"))
        return greeted, over

    def _handle(
        self, message: pb.LearnerMessage, send: Send, clock: OwnClock, *, token: str | None
    ) -> None:
        """Do what one message asks for."""
        if message.HasField("start"):
            try:
                clock.start(message.start)
            except MalformedError as error:
                raise MalformedError(
                    f"the learner at {self.address} sent {error}; ask its operator"
                ) from None
        elif message.call:
            reply = self._reply(message, token)
            reply.call = message.call
            send(reply)
            if message.HasField("query"):
                clock.answered()

    def _reply(self, message: pb.LearnerMessage, token: str | None) -> pb.OwnerMessage:
        """The answer to one call, or why there is none."""
        asked = message.WhichOneof("content")
        try:
            learner = self.owner.access.identify(token=token, certificate=self._certificate)
            if asked not in CALLS:
                raise MalformedError("this owner knows no such call")
            name, content = CALLS[asked]
            reply: Any = self._service.methods[name].reply(getattr(message, asked), learner)
            return pb.OwnerMessage(**{content: reply})
        except Exception as error:
            return _refused(self._service.refusal(error))
        finally:
            self._service.after_reply()

    def _explain(self, error: grpc.RpcError) -> None:
        """Pass over a broken stream; raise where another stream would end the same way."""
        said, ended = _said(error)
        if error.code() in FINAL and not (ended or self._ending.is_set()):
            raise PolicyError(f"the learner at {self.address} says: {said}") from None
        try:
            why = self._route.explain()
        except UntrustedError as untrusted:
            self._absent(untrusted)
        else:
            lost = f"the connection was lost ({error.code().name})"
            reason = f"gRPC ended the call ({said})" if ended else why or lost
            self._absent(UnreachableError(f"learner at {self.address}: {reason}"))

    def _absent(self, error: CoprivError) -> None:
        if not self._ending.is_set():
            self._absence.is_for(error)


class _Absence:
    """What is said of a learner that is away: once for each reason, and once that it is over."""

    def __init__(self) -> None:
        # A learner may come and go as often as it likes.
        self._log = SlowLog(logging.WARNING, per_second=0.1, burst=10)
        self._said = ""
        self._been_there = False

    def is_for(self, error: CoprivError) -> None:
        """Say why; raise where waiting is in vain.

        A learner that was there before may renew its certificate while we wait. So may we at any
        time: our own files were right at the start, and may be those of half a renewal.
        """
        if isinstance(error, UntrustedError) and not self._been_there:
            raise InputError(str(error)) from None
        if self._said != str(error):
            self._said = str(error)
            is_ours = isinstance(error, InputError)
            until = "that is mended" if is_ours else "it is there"
            start = "" if is_ours else "no line to the "
            self._log.say(f"{start}{error}; trying again until {until}")

    def is_over(self, address: str) -> None:
        """Say that the learner is there, where it was said that it is not."""
        if self._said:
            self._log.say(f"the learner at {address} is there")
        self._said, self._been_there = "", True


def _said(error: grpc.RpcError) -> tuple[str, bool]:
    """What a stream ended with, and whether that was none of the learner's words."""
    code, details = error.code(), error.details()
    return said_with(code, details), ended_on_the_way(code, details)


def _refused(refusal: PublicRefusal) -> pb.OwnerMessage:
    """What an owner says to a call that it refuses."""
    return pb.OwnerMessage(
        refusal=pb.Refusal(
            status=refusal.status.value[0],
            sentence=refusal.sentence,
            retry_after_ms=refusal.retry_after_ms,
        )
    )


def open_attachment(
    settings_path: Path,
    *,
    learner: str | None,
    stay: bool,
    insecure: bool,
    insecure_noise_seed: int | None,
    allow_private_bounds: bool = False,
) -> Attachment:
    """Load and check the owner of a settings file, ready to go to its learner.

    Args:
      settings_path: OWNER.toml.
      learner: HOST:PORT in place of ``attach.learner``.
      stay: Whether it waits for another study when one is over.
      insecure: Whether plain text may leave this machine.
      insecure_noise_seed: Seed of noise that protects nobody; None for real noise.
      allow_private_bounds: Whether it takes a feature map fitted on private records.

    Raises:
      InputError: Anything in the settings, the records or the ledger is wrong.
    """
    settings = load_settings(OwnerSettings, settings_path)
    address = learner or settings.attach.learner
    if address is None:
        raise InputError(
            f"{settings_path}: attach.learner is missing; give the learner's HOST:PORT there, "
            "or with --learner"
        )
    base, encrypted = settings_path.parent, settings.tls is not None
    refuse_plain_text("attach.learner", address, tls=encrypted, insecure=insecure)
    expiry = None
    if settings.tls is not None:
        # Before the ledger is held: what is wrong with our own files.
        expiry = Expiry(load_identity(settings.tls, base=base, side="client"), side="client")
    refuse_taken({"metrics": settings.metrics}, ledger=base / settings.ledger.path)
    owner = open_owner(
        settings,
        base=base,
        insecure_noise_seed=insecure_noise_seed,
        allow_private_bounds=allow_private_bounds,
    )
    return Attachment(
        owner,
        name=settings.name,
        route=Route(address=address, tls=settings.tls, base=base),
        clock_rate=settings.attach.clock_rate,
        rng=np.random.default_rng(settings.attach.seed),
        stay=stay,
        metrics=OwnerMetrics(owner, expiry=expiry),
        metrics_at=settings.metrics,
    )
