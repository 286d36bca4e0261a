"""Incoming calls: the caller is known before anything of its call is waited for or read.

Every method is registered as a stream of bytes both ways, which on the wire is the same as a
single call if one message goes each way. So one coroutine serves them all: it finds out who
calls, gives the call a place, waits for a message for a limited time, answers it or has it answered
by a thread, and sends the reply. A call that waits holds no thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import grpc

from common.channels import peer_of
from common.errors import BusyError, IdentityError, MalformedError
from common.wire import RETRY_AFTER, token_in
from owner.access import Access
from owner.mechanism import DrawnAhead
from owner.service import Method, OwnerService
from owner.threads import Workers, sharing, to_its_end

# Types of grpc.aio take the messages' types, which here are bytes.
Context = Any
T = TypeVar("T")
Handler = Callable[[object, Context], Awaitable[None]]

PREPARE_THREADS = 2
# An owner may take its time to say whether it listens.
PAUSE_THREADS = 16
# Calls open at once, of all learners together; each takes some 50 kB.
TOTAL_CALLS = 1024
RETRY_SECONDS = 1.0
GONE_SECONDS = 0.1
# A call that waits for noise looks for it after the first pause; each is a quarter longer than the
# one before, up to the last.
FIRST_LOOK_SECONDS, LATER_LOOKS, LAST_LOOK_SECONDS = 0.0005, 1.25, 0.05
# An answer that takes no longer is given by the event loop itself: handing it to a thread and
# back takes as long as most answers do. After some longer ones in a row, not only a disk that was
# busy for once, or one much longer, a thread gives the next ones: for this many times as long as
# those kept all other callers waiting.
SHORT_SECONDS, MUCH_LONGER_SECONDS = 0.003, 0.03
LONG_IN_A_ROW = 3
LONG_AGAIN_SECONDS, LONG_AGAIN_TIMES = 1.0, 100


def as_bytes(handler: Handler) -> grpc.RpcMethodHandler[bytes, bytes]:
    """A handler that reads and writes bytes."""
    return grpc.stream_stream_rpc_method_handler(handler)


class Places:
    """Counts the calls of each learner that are open.

    Args:
      each: The most of one learner.
      total: The most of all.
    """

    def __init__(self, *, each: int, total: int) -> None:
        self._each = each
        self._total = total
        self._taken: Counter[str] = Counter()

    @contextlib.contextmanager
    def taken(self, learner: str) -> Iterator[None]:
        """A place for one call of a learner.

        Raises:
          BusyError: There is none.
        """
        if self._taken[learner] >= self._each or self._taken.total() >= self._total:
            whose = "of this learner " if self._taken[learner] >= self._each else ""
            raise BusyError(
                f"this owner holds no more calls {whose}open at once; end some, or ask again later",
                retry_after=RETRY_SECONDS,
            )
        self._taken[learner] += 1
        try:
            yield
        finally:
            self._taken[learner] -= 1
            if not self._taken[learner]:
                del self._taken[learner]


class Patience:
    """The time limit of a call's waits, one after another.

    ``asyncio.timeout`` for each of them would set and cancel a timer for every message; this one
    is set again only when it goes off, and looks then what it is to wait for.

    Args:
      seconds: How long each of them may last.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._due: float | None = None
        # Whether one of them lasted too long.
        self.ran_out = False
        self._timer = self._loop.call_later(seconds, self._look)

    async def wait_for(self, event: Awaitable[T]) -> T:
        """What comes of an event.

        Raises:
          TimeoutError: It did not come in time.
        """
        self._due = self._loop.time() + self._seconds
        try:
            return await event
        except asyncio.CancelledError:
            if self.ran_out and self._task is not None and not self._task.uncancel():
                raise TimeoutError from None
            raise
        finally:
            self._due = None

    def run_out(self) -> None:
        """End the wait that lasts, if any."""
        if self._due is not None and not self.ran_out and self._task is not None:
            self.ran_out = True
            self._task.cancel()

    def end(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        if self._due is not None and self._due <= now:
            self.run_out()
            return
        self._timer = self._loop.call_at(self._due or now + self._seconds, self._look)


class Calls:
    """Serves the calls of one owner, on the event loop.

    Guarantees:
      * Nothing of a call is read before its caller is known and has a place.
      * A call that waits holds no thread, and ends after ``idle_seconds``.
      * One that is cancelled keeps its place until what was begun of it is over.
      * A study that is made ready waits for others of its kind only; no answer waits for it.

    Args:
      service: What the calls do.
      idle_seconds: How long one message may take to come, or to be taken.
    """

    def __init__(self, service: OwnerService, *, idle_seconds: float) -> None:
        self._service = service
        self._idle_seconds = idle_seconds
        self._places = Places(each=service.access.calls_per_learner, total=TOTAL_CALLS)
        # The owner answers one query after another in any case.
        self._long_until, self._long_ones = 0.0, list[float]()
        self._answering = Workers("answer")
        self._preparing = Workers("prepare", PREPARE_THREADS)
        # These begin with the first offer: most owners never get one.
        self._pausing: Workers | None = None
        # The calls that wait for a message.
        self._waiting: set[Patience] = set()
        self._ending = False

    def add_to(
        self, server: grpc.aio.Server, service: str, methods: Mapping[str, Method] | None = None
    ) -> None:
        """Serve the owner's methods, or others that are as guarded as they are, on a server."""
        served = {
            name: as_bytes(partial(self._call, method))
            for name, method in (methods or self._service.methods).items()
        }
        server.add_registered_method_handlers(service, served)

    async def end(self) -> None:
        """End the calls that wait for a message; those that are answered may finish."""
        self._ending = True
        for patience in self._waiting:
            patience.run_out()

    def close(self) -> None:
        """Start no more work."""
        for workers in (self._answering, self._preparing, self._pausing):
            if workers is not None:
                workers.stop()

    async def _call(self, method: Method, _: object, context: Context) -> None:
        """One call, from who asks to its last reply."""
        try:
            learner = identity(context, self._service.access)
            with self._places.taken(learner):
                await self._converse(method, learner, context)
            return
        except grpc.aio.BaseError:
            # The caller is gone; it gets its reply when it asks again.
            return
        except Exception as error:
            refusal = self._service.refusal(error)
        wait = refusal.retry_after_ms
        metadata = ((RETRY_AFTER, str(wait)),) if wait else ()
        await context.abort(refusal.status, refusal.sentence, metadata)

    async def _converse(self, method: Method, learner: str, context: Context) -> None:
        """Reply to each message until there is none, or none for too long."""
        patience = Patience(self._idle_seconds)
        try:
            while (content := await self._next(context, patience)) is not None:
                reply = await self._reply(method, content, learner)
                try:
                    await self._deliver(context, reply, patience)
                finally:
                    self._service.after_reply()
                if not method.streams:
                    return
        finally:
            patience.end()
        if method.streams:
            return
        if self._ending:
            # No refusal for good: the caller did nothing wrong, and the owner will be back.
            raise BusyError("this owner is stopping; ask again later", retry_after=RETRY_SECONDS)
        if patience.ran_out:
            raise self._slow(f"no whole message came within {self._idle_seconds:g} seconds")
        # Of a caller that is gone gRPC says the same, and ends its call a moment later.
        await asyncio.sleep(GONE_SECONDS)
        raise MalformedError("no message came with the call; send one")

    def _slow(self, what: str) -> BusyError:
        """No refusal for good: the line may be slow, or have stood still for a while."""
        return BusyError(
            f"{what}; try again, or let the owner's operator raise idle_seconds",
            retry_after=RETRY_SECONDS,
        )

    async def _reply(self, method: Method, content: bytes, learner: str) -> bytes:
        """The reply to one message; what may take long does not keep the others."""
        whole = partial(self._service.reply, method, content, learner)
        if method.pauses:
            self._pausing = self._pausing or Workers("pause", PAUSE_THREADS)
            return await to_its_end(self._pausing.begin, whole) or b""
        quick = partial(whole, if_quick=True)
        done = await self._at_once(method, quick)
        while done is None and (noise := self._service.awaited(method, content)) is not None:
            await _drawn(noise)
            done = await self._at_once(method, quick)
        if done is None:
            done = await to_its_end(self._preparing.begin, partial(_shared, whole))
        return done or b""

    async def _at_once(self, method: Method, quick: Callable[[], bytes | None]) -> bytes | None:
        """A reply that takes no long, from the event loop or a thread; None if it has to wait."""
        began = time.monotonic()
        if method.at_once is None or began < self._long_until:
            return await to_its_end(self._answering.begin, quick)
        done = quick()
        if done is not None:
            self._timed(began, time.monotonic())
        return done

    def _timed(self, began: float, ended: float) -> None:
        """Note how long an answer took; after long ones a thread gives the next."""
        took = ended - began
        self._long_ones = [*self._long_ones, took] if took > SHORT_SECONDS else []
        if len(self._long_ones) >= LONG_IN_A_ROW or took > MUCH_LONGER_SECONDS:
            rest = max(LONG_AGAIN_SECONDS, LONG_AGAIN_TIMES * sum(self._long_ones))
            self._long_until, self._long_ones = ended + rest, []

    async def _next(self, context: Context, patience: Patience) -> bytes | None:
        """The next message; None if there is none, or it does not come."""
        if self._ending:
            return None
        self._waiting.add(patience)
        try:
            content = await patience.wait_for(context.read())
        except TimeoutError:
            return None
        finally:
            self._waiting.discard(patience)
        return None if content is grpc.aio.EOF else content

    async def _deliver(self, context: Context, reply: bytes, patience: Patience) -> None:
        """Send one reply to who takes it in time."""
        try:
            await patience.wait_for(self._send(context, reply))
        except TimeoutError:
            seconds = f"{self._idle_seconds:g} seconds"
            raise self._slow(f"the reply was not taken within {seconds}") from None

    async def _send(self, context: Context, reply: bytes) -> None:
        """Send one reply."""
        await context.write(reply)


async def _drawn(noise: DrawnAhead) -> None:
    """Wait until there is noise, without a thread; whoever waits longer looks less often."""
    pause = FIRST_LOOK_SECONDS
    await asyncio.sleep(pause)
    while noise.is_awaited:
        pause = min(LATER_LOOKS * pause, LAST_LOOK_SECONDS)
        await asyncio.sleep(pause)


def _shared(reply: Callable[[], bytes | None]) -> bytes | None:
    """A reply that takes long, while others are given quick ones."""
    with sharing():
        return reply()


def identity(context: Context, access: Access) -> str:
    """Who asks: by its token, by the common name of its certificate, or anonymous.

    Raises:
      IdentityError: It is an owner; or the token is unknown, or missing where we want one.
      PolicyError: This owner does not serve it.
    """
    peer = peer_of(context)
    if peer is not None and peer.role == "owner":
        raise IdentityError("this owner answers learners only; come with a learner's certificate")
    certificate = None if peer is None else peer.name
    token = token_in(context.invocation_metadata())
    return access.admit(token=token, certificate=certificate)
