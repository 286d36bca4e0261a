"""Mutual TLS: the three files of each side, checked before anybody is talked to.

Both sides show a certificate of the study's own CA and accept no other. gRPC's TLS speaks
versions 1.2 and 1.3 with authenticated suites only; there is no setting that widens this.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import grpc

from common.config import Settings
from common.errors import InputError

__all__ = [
    "Identity",
    "TlsSettings",
    "canonical",
    "channel_credentials",
    "host_and_port",
    "is_loopback",
    "load_identity",
    "refuse_plain_text",
    "server_credentials",
]

log = logging.getLogger("copriv.tls")

Role = Literal["server", "client"]


class TlsSettings(Settings):
    """The table ``[tls]`` of OWNER.toml and STUDY.toml; ``copriv certs`` makes the files.

    Args:
      ca: The study's CA; only its certificates are accepted.
      certificate: The own certificate, PEM.
      key: Its private key, PEM.
    """

    ca: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The files of one side, read.

    Args:
      paths: Where they are, absolute.
      ca: The CA's certificate, PEM.
      certificate: The own certificate, PEM.
      key: Its private key, PEM; never shown.
    """

    paths: TlsSettings
    ca: bytes
    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Without the key."""
        return f"Identity({self.paths.certificate})"


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of HOST:PORT; an IPv6 host stands in brackets.

    >>> host_and_port("[::1]:50051"), host_and_port("owner.example:50051")
    (('::1', 50051), ('owner.example', 50051))
    """
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def canonical(address: str) -> str:
    """The address with an IPv6 host in its shortest form: gRPC compares certificates by letter.

    >>> canonical("[fd77:0::2]:50051"), canonical("owner.example:1")
    ('[fd77::2]:50051', 'owner.example:1')
    """
    host, port = host_and_port(address)
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return address
    return f"[{found}]:{port}" if found.version == 6 else f"{found}:{port}"


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address.

    >>> [is_loopback(a) for a in ("127.0.0.1:0", "localhost:1", "[::1]:0", "0.0.0.0:1", "h:1")]
    [True, True, True, False, False]
    """
    host, _ = host_and_port(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def refuse_plain_text(where: str, address: str, *, tls: bool, insecure: bool) -> None:
    """Off loopback, plain text must be typed, and TLS must not be both set and typed away.

    Raises:
      InputError: The address leaves this machine without TLS, or the two contradict.
    """
    if tls and insecure:
        raise InputError(f"{where}: [tls] is set and --insecure is typed; leave out one of the two")
    if not tls and not insecure and not is_loopback(address):
        raise InputError(
            f"{where} = {address!r} leaves this machine without TLS; give [tls] with ca, "
            "certificate and key (copriv certs makes them), or type --insecure for plain text "
            "that anybody on the way can read and change"
        )


def load_identity(settings: TlsSettings, *, base: Path, role: Role) -> Identity:
    """The three files, read and found to belong together.

    Args:
      settings: Their paths.
      base: The folder that relative paths start from.
      role: What the certificate is shown as.

    Raises:
      InputError: A file cannot be read, the key is another's, the certificate has expired,
        or it is not of this CA; the sentence names the file and the cure.
    """
    paths = TlsSettings(
        **{name: (base / getattr(settings, name)).absolute() for name in TlsSettings.model_fields}
    )
    identity = Identity(
        paths=paths,
        ca=_read("ca", paths.ca),
        certificate=_read("certificate", paths.certificate),
        key=_read("key", paths.key),
    )
    _check(paths, role)
    if paths.key.stat().st_mode & 0o077:
        log.warning("%s can be read by others on this machine; chmod 600 it", paths.key)
    return identity


def channel_credentials(identity: Identity) -> grpc.ChannelCredentials:
    """The learner's side of a connection."""
    return grpc.ssl_channel_credentials(
        root_certificates=identity.ca,
        private_key=identity.key,
        certificate_chain=identity.certificate,
    )


def server_credentials(identity: Identity) -> grpc.ServerCredentials:
    """The owner's side: whoever shows no certificate of the CA gets nothing.

    Renewed files are taken over at the next handshake; if they do not belong together,
    the old ones stay and a line is logged.
    """
    return grpc.dynamic_ssl_server_credentials(
        _configuration(identity),
        _renewals(identity),  # type: ignore[arg-type] # None means that nothing has changed
        require_client_authentication=True,
    )


def _configuration(identity: Identity) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(identity.key, identity.certificate)], root_certificates=identity.ca
    )


def _renewals(
    identity: Identity,
) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
    """What gRPC asks at each handshake: new files, or None."""
    seen = _stamp(identity.paths)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal seen
        try:
            now = _stamp(identity.paths)
            if now == seen:
                return None
            renewed = load_identity(identity.paths, base=Path("/"), role="server")
        except (InputError, OSError) as error:
            log.warning("the renewed certificate is not used: %s", error)
            return None
        seen = now
        log.info("a renewed certificate is in use")
        return _configuration(renewed)

    return fetch


def _stamp(paths: TlsSettings) -> tuple[tuple[int, int], ...]:
    """Tells changed files from unchanged ones."""
    found = [path.stat() for path in (paths.ca, paths.certificate, paths.key)]
    return tuple((status.st_mtime_ns, status.st_ino) for status in found)


def _read(key: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"tls.{key}: {path}: cannot be read ({error.strerror}); copriv certs makes this file"
        ) from None


def _check(paths: TlsSettings, role: Role) -> None:
    """One handshake in memory, against ourselves: it finds what a peer would find."""
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if role == "client" else ssl.PROTOCOL_TLS_SERVER)
    shown.check_hostname = False
    judge = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if role == "client" else ssl.PROTOCOL_TLS_CLIENT)
    judge.check_hostname = False
    _load_chain(shown, paths)
    shown.verify_mode = ssl.CERT_NONE
    if role == "client":
        # Somebody must play the server; the client does not look at what it shows.
        _load_chain(judge, paths)
    judge.verify_mode = ssl.CERT_REQUIRED
    try:
        judge.load_verify_locations(paths.ca)
    except ssl.SSLError:
        raise InputError(f"tls.ca: {paths.ca} is no PEM certificate; give the study's CA") from None
    try:
        _shake_hands(shown, judge, judge_is_server=role == "client")
    except ssl.SSLCertVerificationError as error:
        fault = _own_fault(error, role)
        raise InputError(f"tls.certificate: {paths.certificate} {fault}") from None


def _load_chain(context: ssl.SSLContext, paths: TlsSettings) -> None:
    try:
        context.load_cert_chain(paths.certificate, paths.key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise InputError(
                f"tls.key: {paths.key} is not the key of {paths.certificate}; give the two files "
                "that copriv certs wrote together"
            ) from None
        raise InputError(
            f"tls: {paths.certificate} and {paths.key} are not a PEM certificate and its key "
            "without a password; copriv certs makes such files"
        ) from None


def _no_password() -> str:
    """Instead of a prompt that nobody would answer."""
    raise ValueError("the key has a password")


def _own_fault(error: ssl.SSLCertVerificationError, role: Role) -> str:
    match error.verify_code:
        case 10:
            return "has expired; renew it with copriv certs --renew"
        case 9:
            return "is not valid yet; set this machine's clock right"
        case 26:
            other = "an owner" if role == "client" else "a learner"
            return f"was made for {other}, not for this side; make one with copriv certs"
        case _:
            return (
                f"is not of the CA in tls.ca ({error.verify_message}); give the files that "
                "copriv certs made for this study"
            )


def _shake_hands(shown: ssl.SSLContext, judge: ssl.SSLContext, *, judge_is_server: bool) -> None:
    """A whole handshake over two buffers."""
    forth, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_context, server_context = (shown, judge) if judge_is_server else (judge, shown)
    client = client_context.wrap_bio(back, forth)
    server = server_context.wrap_bio(forth, back, server_side=True)
    pending = [client, server]
    while pending:
        for side in list(pending):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            pending.remove(side)
