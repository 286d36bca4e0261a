"""Who is at an address, or why nobody is reached: a plain handshake shows what gRPC hides."""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from common.errors import InputError, UnreachableError, UntrustedError
from common.handshakes import Secured
from common.proxies import ProxyRefusedError, open_connection, proxy_for
from common.tls import (
    MAKERS,
    RENEWED_BY,
    Identity,
    Peer,
    Role,
    certified_host,
    host_and_port,
    load_identity,
    role_named,
)

# OpenSSL's numbers for what is wrong with a certificate.
NOT_YET_VALID, EXPIRED, SELF_SIGNED, WRONG_PURPOSE = 9, 10, 18, 26
WRONG_NAME, WRONG_ADDRESS = 62, 64
# OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not name.
NO_CHECK_TIME = 0x200000
NO_TLS = (
    "it does not speak TLS (it was started without [tls]); give it ca, certificate and key, or "
    "type --insecure on both sides"
)
MORE_FILES = (
    "this machine lets us open too few files and connections: raise that (ulimit -n, LimitNOFILE=)"
)
# What a certificate of the wrong kind is, by who should have been there.
WRONG_KIND = {
    "owner": "it shows a learner's certificate; give it the one made for this owner",
    "learner": (
        "it shows a certificate that was not made for a learner that listens; its operator makes "
        "one with copriv invite --address HOST:PORT, or copriv certs --learner NAME=HOST"
    ),
}


@dataclass(frozen=True)
class Cause:
    """Why somebody is not reached, and the cure.

    Args:
      sentence: For people.
      certificates: Whether waiting is in vain, because certificates do not fit.
    """

    sentence: str
    certificates: bool = False

    NOBODY: ClassVar[Cause]
    SILENT: ClassVar[Cause]
    STALLED: ClassVar[Cause]


Cause.NOBODY = Cause("nothing listens there; start it, or check its address")
Cause.SILENT = Cause("did not answer in time; start it, or check its address")
Cause.STALLED = Cause(
    "takes connections, but did not answer in time; start it, or check its address and its log; if "
    "these are right, the line is too slow for network.deadline, or something on the way hangs up "
    "or drops large packets (MTU)"
)


class _OwnFilesError(Exception):
    """Our certificate and key, as their files are now, cannot be shown."""


def why_unreachable(address: str, identity: Identity | None, *, far: Role, timeout: float) -> Cause:
    """The cause as far as a connection of our own finds it.

    Args:
      address: HOST:PORT.
      identity: Our certificate, or None where plain text is spoken.
      far: Who should be there.
      timeout: Seconds that each step of this may take.
    """
    found = _found(address, identity, far, timeout)
    return Cause.STALLED if isinstance(found, Peer) else found


def identify(
    address: str, identity: Identity, *, far: Role, timeout: float, name: str = ""
) -> Peer:
    """Who is at an address and accepts us, as its verified certificate says.

    Args:
      address: HOST:PORT; the certificate must be for this host.
      identity: Our certificate.
      far: Who should be there.
      timeout: Seconds that each step of this may take.
      name: Its name, for the sentence.

    Raises:
      UntrustedError: Certificates stand between us; the sentence says whose, and the cure.
      UnreachableError: Nobody answers there.
    """
    found = _found(address, identity, far, timeout)
    if isinstance(found, Peer):
        return found
    kind = UntrustedError if found.certificates else UnreachableError
    raise kind(f"{' '.join([far, name]).strip()} at {address}: {found.sentence}")


def _found(address: str, identity: Identity | None, far: Role, timeout: float) -> Cause | Peer:
    """Who is there, or what is wrong."""
    host, port = host_and_port(address)
    try:
        return _greeted(host, port, identity, far, timeout)
    except (ProxyRefusedError, _OwnFilesError) as error:
        return Cause(str(error), certificates=isinstance(error, _OwnFilesError))
    except socket.gaierror:
        return Cause(f"the name {host!r} is not known here; check its address")
    except ConnectionRefusedError:
        return Cause.NOBODY
    except TimeoutError:
        return Cause.SILENT
    except OSError as error:
        reason = error.strerror or error
        is_ours = error.errno in (errno.EMFILE, errno.ENFILE)
        cure = MORE_FILES if is_ours else "check its address and the network"
        return Cause(f"cannot be reached ({reason}); {cure}")


def _greeted(
    host: str, port: int, identity: Identity | None, far: Role, timeout: float
) -> Cause | Peer:
    """Connect, and once more if it hangs up, or to read what a certificate says that is refused."""
    if identity is None:
        with open_connection(host, port, timeout) as connection:
            return _as_plain_text(connection)
    for _ in range(2):
        with open_connection(host, port, timeout) as connection:
            found = _with_certificate(connection, certified_host(host), identity, far)
        # Once may be a process or a line that ended just then.
        if found is not None:
            break
    if found is None:
        return Cause(_our_fault(identity), certificates=True)
    if not isinstance(found, ssl.SSLCertVerificationError):
        return found
    code = found.verify_code
    shown: Mapping[str, Any] = {}
    if code in (EXPIRED, WRONG_NAME, WRONG_ADDRESS):
        with open_connection(host, port, timeout) as connection:
            shown = _shown(connection, identity)
    return Cause(_their_fault(code, certified_host(host), shown, far), certificates=True)


def _as_plain_text(connection: socket.socket) -> Cause:
    """We speak plain text: does the other side speak TLS?"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    # Nothing is sent over it.
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        Secured(context, connection)
    except ssl.SSLError as error:
        if "ALERT" not in str(error.reason):
            return Cause.STALLED
    except OSError:
        return Cause.STALLED
    return Cause(
        "it asks for TLS and a certificate, and we use plain text; give [tls] with ca, "
        f"certificate and key of this study ({MAKERS})",
        certificates=True,
    )


def _with_certificate(
    connection: socket.socket, host: str, identity: Identity, far: Role
) -> Cause | Peer | ssl.SSLCertVerificationError | None:
    """A whole handshake, and the first word after it: a server refuses us only then.

    None if it hung up in place of that word.
    """
    context = _context(identity)
    is_reached = False
    try:
        secured = Secured(context, connection, host)
        is_reached = True
        # Whoever accepts us speaks first, as HTTP/2 wants it; gRPC hangs up on all others.
        if secured.speaks():
            return _peer(secured.certificate, far)
    except ssl.SSLCertVerificationError as error:
        return error
    except ssl.SSLError as error:
        if "ALERT" in str(error.reason):
            return Cause(_our_fault(identity), certificates=True)
        # Whoever says nothing, as a proxy in front of nobody, may speak TLS all the same.
        if not isinstance(error, ssl.SSLEOFError):
            return Cause(NO_TLS, certificates=True)
    except TimeoutError:
        return Cause.STALLED
    except ConnectionError:
        pass
    return None if is_reached else Cause.STALLED


def _context(identity: Identity) -> ssl.SSLContext:
    """Our side of a handshake, as gRPC would have it."""
    context = ssl.create_default_context(cadata=identity.ca.decode("ascii", "replace"))
    # From Python 3.13 on it asks more of certificates than gRPC does.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    try:
        context.load_cert_chain(identity.paths.certificate, identity.paths.key, password=str)
    except (OSError, ValueError):
        # They were replaced since they were read. Without a password nobody is asked for one.
        raise _OwnFilesError(_own_files_fault(identity)) from None
    context.set_alpn_protocols(["h2"])
    return context


def _peer(certificate: Mapping[str, Any], far: Role) -> Peer | Cause:
    """Name and last day of a verified certificate, unless it is of somebody else's kind."""
    role = role_named(value for kind, value in _alternatives(certificate) if kind == "URI")
    if role not in (far, None):
        return Cause(WRONG_KIND[far], certificates=True)
    subject = (pair for part in certificate.get("subject", ()) for pair in part)
    names = [value for kind, value in subject if kind == "commonName"]
    if not (len(names) == 1 and names[0] and names[0].isprintable()):
        return Cause(
            "its certificate has no common name that can be printed, or several, so nobody knows "
            f"whose it is; it needs one that names it ({MAKERS})",
            certificates=True,
        )
    expires = datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)
    return Peer(name=names[0], role=role, expires=expires)


def _own_files_fault(identity: Identity) -> str:
    """Our files cannot be shown: what would we say of them at a start?"""
    try:
        load_identity(identity.paths, base=identity.paths.ca.parent, side="client")
    except InputError as error:
        return f"our own files do not fit any more: {error}"
    return "our own files were just replaced; try again"


def _our_fault(identity: Identity) -> str:
    """They hung up after they had seen our certificate: what would we say of it?"""
    try:
        load_identity(identity.paths, base=identity.paths.ca.parent, side="client")
    except InputError as error:
        return f"it refuses our certificate: {error}"
    return (
        "it refuses our certificate, which is not of its CA, or not valid by its clock; both sides "
        "need files that were made for this study, and clocks that are right"
    )


def _their_fault(code: int, host: str, shown: Mapping[str, Any], far: Role) -> str:
    """What is wrong with the certificate that the other side shows."""
    if code == EXPIRED:
        expired = datetime.fromtimestamp(ssl.cert_time_to_seconds(shown["notAfter"]), UTC)
        if expired > datetime.now(UTC):
            return (
                f"its certificate lasts until {expired:%Y-%m-%d}, but its CA, or one between the "
                "two, has expired; if this machine's clock is right, both sides need files of a "
                "new CA"
            )
        return (
            f"its certificate expired on {expired:%Y-%m-%d}; if this machine's clock is right, "
            f"{RENEWED_BY[far]} renews it (copriv certs --renew, if that made it)"
        )
    if code == NOT_YET_VALID:
        return "its certificate is not valid yet; set the clocks of both machines right"
    if code in (WRONG_NAME, WRONG_ADDRESS):
        return (
            f"its certificate is for {_hosts(shown)}, not for {host}; use such a name in its "
            f"address, or make a certificate for {host} (copriv invite with that address, or "
            "copriv certs)"
        )
    if code == WRONG_PURPOSE:
        return WRONG_KIND[far]
    kind = "self-signed" if code == SELF_SIGNED else "not of our CA"
    proxy = proxy_for(host)
    between = f" ({proxy} may stand in between and show its own)" if proxy else ""
    return (
        f"its certificate is {kind}, so this may be anybody{between}; both sides need files that "
        "were made for this study, and nothing in between that opens TLS"
    )


def _shown(connection: socket.socket, identity: Identity) -> Mapping[str, Any]:
    """The certificate of our CA that is shown, whatever its name and date: for the sentence."""
    context = _context(identity)
    context.check_hostname = False
    context.verify_flags |= NO_CHECK_TIME
    return Secured(context, connection).certificate


def _hosts(certificate: Mapping[str, Any]) -> str:
    """The DNS names and addresses a certificate is for."""
    hosts = [
        _short(value) if kind == "IP Address" else value
        for kind, value in _alternatives(certificate)
        if kind in {"DNS", "IP Address"}
    ]
    return ", ".join(hosts) or "nobody"


def _short(address: str) -> str:
    """An address as people write it; of one that a certificate has wrongly, what TLS calls it."""
    try:
        return str(ipaddress.ip_address(address.strip()))
    except ValueError:
        return address


def _alternatives(certificate: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The subject alternative names, by kind."""
    return list(certificate.get("subjectAltName", ()))
