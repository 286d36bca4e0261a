"""Ask an owner whether it serves: a probe runs every few seconds, so it loads little."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from common.errors import UnreachableError
from common.tls import canonical

SERVICE = "copriv.v1.DataOwner"


def ask_health(address: str, *, seconds: float) -> None:
    """Ask the plain-text health port of an owner on this machine.

    Raises:
      UnreachableError: It does not serve.
    """
    # Straight, as a probe is: no proxy of the environment is asked for this machine.
    straight = [("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(canonical(address), options=straight) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            reply = stub.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=seconds)
        except grpc.RpcError as error:
            if _asks_for_tls(address, error.code(), seconds):
                raise UnreachableError(
                    f"{address}: this port speaks TLS and was asked in plain text; give the "
                    "address that OWNER.toml names as health, which speaks no TLS"
                ) from None
            raise UnreachableError(
                f"{address}: no answer ({error.code().name}); start the owner, or check its address"
            ) from None
    # A call may end well without a message.
    if reply is None or reply.status != health_pb2.HealthCheckResponse.SERVING:
        raise UnreachableError(f"{address}: the owner is up but does not serve; read its log")


def _asks_for_tls(address: str, code: grpc.StatusCode, seconds: float) -> bool:
    """Whether there was no answer because the port speaks TLS only."""
    from common.diagnosis import why_unreachable  # noqa: PLC0415 (a probe of who serves needs none)

    return (
        code is grpc.StatusCode.UNAVAILABLE
        and why_unreachable(address, None, far="owner", timeout=seconds).certificates
    )
