"""Connections and ports of gRPC, in plain text or by mutual TLS.

gRPC's TLS speaks versions 1.2 and 1.3 with authenticated suites only; there is no setting that
widens this, and the package sees that no variable of the environment does.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import grpc

from common.errors import InputError
from common.texts import claimed
from common.thread_limit import need_threads
from common.tls import (
    Identity,
    Peer,
    Side,
    canonical,
    certified_host,
    host_and_port,
    is_loopback,
    load_identity,
    stamp_of,
)
from common.wire import Options

log = logging.getLogger("copriv.tls")


@cache
def need_grpc() -> None:
    """See, once for all channels and ports of this process, that gRPC's threads may begin.

    Raises:
      RuntimeError: They may not.
    """
    need_threads()


def open_channel(
    address: str, identity: Identity | None, options: Options, *, expected: str | None = None
) -> grpc.Channel:
    """A channel to HOST:PORT: by mutual TLS with an identity, else in plain text.

    To this machine it goes straight: plain text must not leave it for the environment's proxy.

    Args:
      address: HOST:PORT.
      identity: Our certificate; the other side's must be of the same CA.
      options: gRPC's.
      expected: A name that the other side's certificate must be for, in place of HOST.

    Raises:
      RuntimeError: gRPC could not begin the threads that it needs.
    """
    need_grpc()
    target = canonical(address)
    if is_loopback(address):
        options = [*options, ("grpc.enable_http_proxy", 0)]
    if identity is None:
        return grpc.insecure_channel(target, options=options)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=identity.ca,
        private_key=identity.key,
        certificate_chain=identity.certificate,
    )
    if expected is None and "%" in address:
        expected = certified_host(host_and_port(target)[0])
    name = [] if expected is None else [("grpc.ssl_target_name_override", expected)]
    return grpc.secure_channel(target, credentials, options=[*options, *name])


def bind(
    server: grpc.Server | grpc.aio.Server, setting: str, address: str, identity: Identity | None
) -> int:
    """Let a server listen on HOST:PORT, and return its port.

    Args:
      server: A server that has not started.
      setting: What the address is called in an error.
      address: HOST:PORT; port 0 takes a free one.
      identity: Callers without a certificate of its CA are refused; None for plain text.

    Raises:
      InputError: The address cannot be used.
    """
    try:
        if identity is None:
            port = server.add_insecure_port(canonical(address))
        else:
            port = server.add_secure_port(canonical(address), _server_credentials(identity))
    except RuntimeError:
        port = 0
    if port == 0:
        raise InputError(
            f"{setting} = {address!r}: the address cannot be used (the port may be taken); "
            "give another HOST:PORT, or port 0 for any free port"
        )
    return port


def _server_credentials(identity: Identity) -> grpc.ServerCredentials:
    """Credentials that refuse callers without a certificate of the CA.

    Renewed files are taken over at the next handshake; if they do not belong together, or are
    another's, the old ones stay and a line is logged.
    """
    renewals = Renewals(identity, side="server")

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        renewed = renewals.fetch()
        return None if renewed is None else _configuration(renewed)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(identity),
        fetch,  # type: ignore[arg-type] # None means that nothing has changed
        require_client_authentication=True,
    )


def _configuration(identity: Identity) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(identity.key, identity.certificate)], root_certificates=identity.ca
    )


class Renewals:
    """Looks whether our files have been renewed since they were read.

    Args:
      identity: What was read.
      side: Who the certificate is shown by.
      logs: Whether to log what becomes of renewed files.
    """

    def __init__(self, identity: Identity, *, side: Side, logs: bool = True) -> None:
        self._identity = identity
        self._side = side
        self._log = log.log if logs else _say_nothing
        self._seen = identity.stamp
        self._logged = ""

    def fetch(self) -> Identity | None:
        """New files that belong together, or None where the ones in use stay."""
        now = stamp_of(self._identity.paths)
        if now == self._seen:
            return None
        try:
            renewed = load_identity(self._identity.paths, base=Path("/"), side=self._side)
            _check_holder(renewed, self._identity)
        except (InputError, OSError) as error:
            # Asked at each handshake: said once.
            if str(error) != self._logged:
                self._logged = str(error)
                self._log(logging.WARNING, "the renewed certificate is not used: %s", error)
            return None
        self._seen, self._logged = now, ""
        self._log(logging.INFO, "a renewed certificate is in use")
        return renewed


def _say_nothing(*_: object) -> None:
    """Log nothing."""


def _check_holder(renewed: Identity, former: Identity) -> None:
    """Refuse a certificate that names another than the one in use: the far side would, too.

    Raises:
      InputError: It does.
    """
    from common.certificates import shown_by  # noqa: PLC0415 (plain text needs none of it)

    name, needed = (shown_by(one.certificate).name for one in (renewed, former))
    if name != needed:
        raise InputError(
            f"tls.certificate: {renewed.paths.certificate} is that of {claimed(name)!r}, and the "
            f"one before was that of {claimed(needed)!r}; give the files that were made for that "
            "name"
        )


def peer_of(context: grpc.ServicerContext | grpc.aio.ServicerContext[Any, Any]) -> Peer | None:
    """Who calls, by the certificate that the handshake has verified; None for plain text.

    A certificate without a common name has the name "", and so has one that has ended since the
    session began which its holder resumes: no handshake looks at it again.
    """
    verified = context.auth_context()
    shown: Sequence[bytes] = verified.get("x509_pem_cert", ())  # type: ignore[assignment]
    if not shown:
        return None
    from common.certificates import shown_by  # noqa: PLC0415 (plain text needs none of it)

    peer = shown_by(shown[0])
    resumed = b"true" in verified.get("ssl_session_reused", ())
    if resumed and peer.expires is not None and peer.expires < datetime.now(UTC):
        return Peer(name="", role=peer.role)
    return peer
