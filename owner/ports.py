"""gRPC servers on an event loop that has a thread of its own, for callers on other threads."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]

from common.channels import bind, need_grpc
from common.memory import give_back_memory
from common.open_files import used_up
from common.tls import Identity
from common.wire import Options
from owner.threads import BEGIN_SECONDS, begun, needed

log = logging.getLogger("copriv.owner")

T = TypeVar("T")

# After the grace that callers get, this many seconds for what does not end by itself.
CUT_OFF_SECONDS = 5.0
LOOK_SECONDS = 5.0


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The one event loop of this process: gRPC's own queue wakes one loop at a time."""
    loop = asyncio.new_event_loop()
    _look_for_room(loop)
    begun(needed(loop.run_forever), name="calls")
    return loop


def _look_for_room(loop: asyncio.AbstractEventLoop, told: str = "") -> None:
    """Now and then see whether further connections can be taken; said once if they cannot.

    What earlier ones have left of the memory is given back.
    """
    give_back_memory()
    fault = used_up()
    if fault and not told:
        log.warning("%s", fault)
    loop.call_later(LOOK_SECONDS, _look_for_room, loop, fault)


def on_loop(work: Coroutine[Any, Any, T], *, timeout: float | None = None) -> T:
    """Do work on the event loop, and return what comes of it.

    Raises:
      TimeoutError: It took longer.
    """
    return asyncio.run_coroutine_threadsafe(work, _loop()).result(timeout)


def soon(work: Coroutine[Any, Any, object]) -> None:
    """Have work done on the event loop, which may be what calls."""
    asyncio.run_coroutine_threadsafe(work, _loop())


def _begun(work: Coroutine[Any, Any, T]) -> T:
    """What comes of work for which gRPC waits for threads of its own, for ever if need be."""
    try:
        return on_loop(work, timeout=BEGIN_SECONDS)
    except TimeoutError:
        raise RuntimeError("gRPC's server did not begin, as where memory runs out") from None


class _Core(cygrpc.AioServer):  # type: ignore[misc]
    """What gRPC's server is made of, which serves the methods that were registered and no other.

    It would read the name of any other as text, and end for all callers at one that is none.
    """

    async def _request_call(self) -> None:
        """Refuse each call of another name, before gRPC reads it, until the server ends."""
        while True:
            call = await super()._request_call()
            context = cygrpc._ServicerContext(call, None, None, asyncio.get_running_loop())
            with suppress(grpc.aio.BaseError):
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


def _server(options: Options) -> grpc.aio.Server:
    """A server that no name of a method can end; the caller is on the event loop."""
    core = cygrpc.AioServer
    cygrpc.AioServer = _Core
    try:
        return grpc.aio.server(options=options)
    finally:
        cygrpc.AioServer = core


class Port:
    """A gRPC server on one address, not yet started.

    Args:
      fill: Registers the methods; others are refused.
      setting: The setting that names the address.
      address: HOST:PORT.
      identity: With one, a caller without a certificate of the CA gets nothing.
      options: gRPC's.

    Raises:
      InputError: The address cannot be used.
      RuntimeError: gRPC's server does not begin.
    """

    def __init__(
        self,
        fill: Callable[[grpc.aio.Server], None],
        setting: str,
        address: str,
        *,
        identity: Identity | None,
        options: Options,
    ) -> None:
        need_grpc()

        async def make() -> tuple[grpc.aio.Server, int]:
            server = _server(options)
            fill(server)
            return server, bind(server, setting, address, identity)

        self._server, self.number = _begun(make())
        self._started = False

    def start(self) -> None:
        """Take calls.

        Raises:
          RuntimeError: gRPC does not begin to.
        """
        _begun(self._server.start())
        self._started = True

    def stop(self, grace: float | None) -> None:
        """Take no new call, and let those under way finish for this many seconds.

        What does not end when it is cut off does not keep us.
        """
        if not self._started:
            # gRPC releases the port of a server only if it was started.
            self.start()
        try:
            on_loop(self._server.stop(grace), timeout=(grace or 0.0) + CUT_OFF_SECONDS)
        except TimeoutError:
            return
