"""Why an owner cannot be reached: gRPC says little, so a plain handshake finds the cause."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import ClassVar

from cryptography import x509

from common.errors import InputError
from common.tls import Identity, host_and_port, load_identity
from learner.certificates import hosts_of

__all__ = ["Cause", "why_unreachable"]

# OpenSSL's numbers for what is wrong with a certificate.
NOT_YET_VALID, EXPIRED, SELF_SIGNED, WRONG_PURPOSE = 9, 10, 18, 26
WRONG_NAME, WRONG_ADDRESS = 62, 64
NO_TLS = (
    "it does not speak TLS (it was started without [tls]); give it ca, certificate and key, or "
    "type --insecure on both sides"
)


@dataclass(frozen=True)
class Cause:
    """Why an owner is not reached, and the cure.

    Args:
      sentence: For people.
      certificates: Whether waiting is in vain, because certificates do not fit.
    """

    sentence: str
    certificates: bool = False

    NOBODY: ClassVar[Cause]
    SILENT: ClassVar[Cause]


Cause.NOBODY = Cause("nobody listens there; start it, or check its address")
Cause.SILENT = Cause("did not answer in time; start it, or check its address")


def why_unreachable(address: str, identity: Identity | None, *, timeout: float) -> Cause:
    """The cause as far as a connection of our own finds it.

    Args:
      address: HOST:PORT.
      identity: Our certificate, or None where plain text is spoken.
      timeout: Seconds that each step of this may take.
    """
    host, port = host_and_port(address)
    try:
        return _found(host, port, identity, timeout)
    except socket.gaierror:
        return Cause(f"the name {host!r} is not known here; check its address")
    except ConnectionRefusedError:
        return Cause.NOBODY
    except TimeoutError:
        return Cause.SILENT
    except OSError as error:
        said = error.strerror or error
        return Cause(f"cannot be reached ({said}); check its address and the network")


def _found(host: str, port: int, identity: Identity | None, timeout: float) -> Cause:
    """Connect, and if its certificate is refused, once more to read what it says."""
    with socket.create_connection((host, port), timeout) as connection:
        if identity is None:
            return _as_plain_text(connection)
        fault = _with_certificate(connection, host, identity)
    if isinstance(fault, Cause):
        return fault
    with socket.create_connection((host, port), timeout) as connection:
        sentence = _their_fault(fault.verify_code, host, _shown(connection))
    return Cause(sentence, certificates=True)


def _as_plain_text(connection: socket.socket) -> Cause:
    """We speak plain text: does the owner speak TLS?"""
    try:
        _look_only().wrap_socket(connection).close()
    except ssl.SSLError as error:
        if "ALERT" not in str(error.reason):
            return Cause.SILENT
    except OSError:
        return Cause.SILENT
    return Cause(
        "it asks for TLS and a certificate, and we came with plain text; give [tls] with ca, "
        "certificate and key of this study (copriv certs makes them)",
        certificates=True,
    )


def _with_certificate(
    connection: socket.socket, host: str, identity: Identity
) -> Cause | ssl.SSLCertVerificationError:
    """A whole handshake, and the first word after it: an owner refuses us only then."""
    context = ssl.create_default_context(cadata=identity.ca.decode("ascii", "replace"))
    context.load_cert_chain(identity.paths.certificate, identity.paths.key)
    context.set_alpn_protocols(["h2"])
    met = False
    try:
        with context.wrap_socket(connection, server_hostname=host) as secured:
            met = True
            # Whoever accepts us speaks first, as HTTP/2 wants it; gRPC hangs up on all others.
            if secured.recv(1):
                return Cause.SILENT
    except ssl.SSLCertVerificationError as error:
        return error
    except ssl.SSLError as error:
        if "ALERT" not in str(error.reason):
            return Cause(NO_TLS, certificates=True)
        met = True
    except TimeoutError:
        return Cause.SILENT
    except ConnectionError:
        pass
    return Cause(_our_fault(identity), certificates=True) if met else Cause.SILENT


def _our_fault(identity: Identity) -> str:
    """The owner hung up after it had seen our certificate: what would we say of it?"""
    try:
        load_identity(identity.paths, base=identity.paths.ca.parent, role="client")
    except InputError as error:
        return f"it refuses our certificate: {error}"
    return (
        "it refuses our certificate, which is not of its CA; both sides need files that "
        "copriv certs made for this study"
    )


def _their_fault(code: int, host: str, certificate: x509.Certificate) -> str:
    """What is wrong with the certificate that the owner shows."""
    if code == EXPIRED:
        date = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
        return f"its certificate expired on {date}; its operator renews it: copriv certs --renew"
    if code == NOT_YET_VALID:
        return "its certificate is not valid yet; set the clocks of both machines right"
    if code in (WRONG_NAME, WRONG_ADDRESS):
        names = ", ".join(hosts_of(certificate)) or "nobody"
        return (
            f"its certificate is for {names}, not for {host}; use such a name in its address, or "
            f"make a certificate for {host} with copriv certs"
        )
    if code == WRONG_PURPOSE:
        return "it shows a learner's certificate; give it the one made for this owner"
    kind = "self-signed" if code == SELF_SIGNED else "not of our CA"
    return (
        f"its certificate is {kind}, so this may be anybody; both sides need files that "
        "copriv certs made for this study"
    )


def _shown(connection: socket.socket) -> x509.Certificate:
    """The certificate the owner shows, unverified: only for the sentence."""
    with _look_only().wrap_socket(connection) as secured:
        return x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")


def _look_only() -> ssl.SSLContext:
    """Verifies nothing, and nothing is sent over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context
