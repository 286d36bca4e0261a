"""Whether the owner serves, for anyone who asks: no caller can keep another from an answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio

from owner.calls import Context, as_bytes
from owner.health import SERVICE
from owner.ports import soon

Status = health_pb2.HealthCheckResponse
# Nobody is asked who it is here, so little is kept: when this many calls are open, a new one ends
# the oldest.
OPEN_PROBES = 16
# How long a probe may take to say what it asks.
ASKING_SECONDS = 10.0
# No service has a longer name.
LONGEST_NAME = 1000


class Probes:
    """The health service, on any number of ports.

    An owner serves while it takes calls, and its ledger did not fail when it was last used.
    """

    def __init__(self) -> None:
        self._servicer = aio.HealthServicer()
        self._open: dict[asyncio.Timeout, None] = {}
        self._has_failed = False
        self.set(serving=False)

    def set(self, *, serving: bool) -> None:
        """From now on the owner takes calls, or it does not."""
        self._serving = serving
        self._tell()

    def ledger_works(self, works: bool) -> None:
        """The ledger worked when it was last used, or it failed."""
        if works is self._has_failed:
            self._has_failed = not works
            self._tell()

    def _tell(self) -> None:
        is_well = self._serving and not self._has_failed
        status = Status.SERVING if is_well else Status.NOT_SERVING
        for name in (SERVICE, ""):
            soon(self._servicer.set(name, status))

    def add_to(self, server: grpc.aio.Server) -> None:
        """Answer probes on a server."""
        methods = {"Check": as_bytes(self._check), "Watch": as_bytes(self._watch)}
        name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        server.add_registered_method_handlers(name, methods)

    async def _check(self, _: object, context: Context) -> None:
        """One answer."""
        async with self._room(context) as request:
            answer = await self._servicer.Check(request, context)
            await context.write(answer.SerializeToString())

    async def _watch(self, _: object, context: Context) -> None:
        """An answer now, and another with every change."""
        async with self._room(context) as request:
            await self._servicer.Watch(request, _Messages(context))

    @contextlib.asynccontextmanager
    async def _room(self, context: Context) -> AsyncIterator[health_pb2.HealthCheckRequest]:
        """What one call asks, for as long as it has room."""
        try:
            async with asyncio.timeout(ASKING_SECONDS) as ending:
                self._open[ending] = None
                self._end_oldest()
                try:
                    request = _request(await context.read())
                    if not ending.expired():
                        ending.reschedule(None)
                    yield request
                finally:
                    self._open.pop(ending, None)
            return
        except grpc.aio.AbortError:
            raise
        except grpc.aio.BaseError:
            # The caller is gone.
            return
        except TimeoutError:
            refusal = (grpc.StatusCode.UNAVAILABLE, "others ask too; ask again")
        except DecodeError:
            refusal = (grpc.StatusCode.INVALID_ARGUMENT, "the request's bytes are no message")
        await context.abort(*refusal)

    def _end_oldest(self) -> None:
        """Make room for the newest call."""
        if len(self._open) > OPEN_PROBES:
            oldest = next(iter(self._open))
            del self._open[oldest]
            if not oldest.expired():
                oldest.reschedule(0)


def _request(content: Any) -> health_pb2.HealthCheckRequest:
    """What a call asks, if it asks anything, and nothing else that its message holds.

    A call keeps it for as long as it is open, and longer: until Python looks for cycles.
    """
    if content is grpc.aio.EOF:
        raise DecodeError
    name = health_pb2.HealthCheckRequest.FromString(content).service
    if len(name) > LONGEST_NAME:
        raise DecodeError
    return health_pb2.HealthCheckRequest(service=name)


class _Messages:
    """A call to which messages are written."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def write(self, message: Any) -> None:
        """Send one message."""
        await self._context.write(message.SerializeToString())
