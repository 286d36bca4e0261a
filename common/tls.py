"""Mutual TLS: the three files of each side, checked before anybody is talked to.

Both sides show a certificate of the study's own CA and accept no other.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

from common.config import Settings
from common.errors import InputError
from common.own_files import warn_of_others, warn_of_writers
from common.places import Place
from common.small_files import read_own

Side = Literal["server", "client"]
Role = Literal["owner", "learner"]
# Of each file when it was last written, or replaced; None where one is missing.
Stamp = tuple[tuple[int, int], ...] | None

# Who makes a study's files: each site its own, by invitation, or somebody those of all.
MAKERS = "copriv invite, join and admit make them, or copriv certs those of all"
MAKER = {
    "ca": "copriv invite, or at an owner copriv-owner join, makes it",
    "certificate": "copriv invite, or for an owner copriv admit at its learner, makes it",
    "key": "copriv invite, or at an owner copriv-owner join, makes it",
}
# OpenSSL's words for what it does not take any more.
TOO_WEAK = ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK")
# The curves of keys that gRPC's TLS shows, and those of which a CA may sign for it.
SHOWN_CURVES = ("secp256r1", "secp384r1")
SIGNING_CURVES = ("secp224r1", *SHOWN_CURVES, "secp521r1")
RENEWED_BY = {"owner": "copriv admit of its request", "learner": "copriv invite"}


class TlsSettings(Settings):
    """The table ``[tls]`` of OWNER.toml and STUDY.toml.

    ``copriv invite`` makes the learner's files, ``copriv-owner join`` and ``copriv admit`` an
    owner's; ``copriv certs`` makes those of all at one place.

    Args:
      ca: The certificate of the study's own authority (CA); only certificates that it signed are
        accepted.
      certificate: This side's certificate, PEM.
      key: Its private key, PEM.
    """

    EXAMPLES = MappingProxyType(
        {"ca": "certs/ca.pem", "certificate": "certs/certificate.pem", "key": "certs/key.pem"}
    )

    ca: Place
    certificate: Place
    key: Place


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The files of one side, read.

    Args:
      paths: Where they are, absolute.
      ca: The CA's certificate, PEM.
      certificate: This side's certificate, PEM.
      key: Its private key, PEM; never shown.
      stamp: Of the files before they were read: whoever looks later whether they have changed must
        not miss what changed since.
    """

    paths: TlsSettings
    ca: bytes
    certificate: bytes
    key: bytes
    stamp: Stamp

    def __repr__(self) -> str:
        """Without the key."""
        return f"Identity({self.paths.certificate})"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Who is on the other side, as its verified certificate says.

    Args:
      name: Its common name: an owner's name, or the name that owners list as learner.
      role: Whether it is an owner's or a learner's; None if another tool than copriv certs made
        the certificate, which then says nothing of it.
      expires: When its certificate does, where that was looked at.
    """

    name: str
    role: Role | None
    expires: datetime | None = None


def role_uri(role: Role, name: str) -> str:
    """The URI in a certificate that says what its holder is.

    >>> role_uri("owner", "bank")
    'copriv://owner/bank'
    """
    return f"copriv://{role}/{name}"


def role_named(uris: Iterable[str]) -> Role | None:
    """The role that one of a certificate's URIs names.

    >>> role_named(["https://bank.example", "copriv://owner/bank"])
    'owner'
    """
    uris = list(uris)
    roles: tuple[Role, ...] = get_args(Role)
    found = [role for role in roles if any(uri.startswith(role_uri(role, "")) for uri in uris)]
    return found[0] if found else None


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of HOST:PORT; an IPv6 host stands in brackets.

    >>> host_and_port("[::1]:50051"), host_and_port("owner.example:50051")
    (('::1', 50051), ('owner.example', 50051))
    """
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def canonical(address: str) -> str:
    """The address as gRPC takes it.

    It compares certificates by letter, so an IPv6 host is in its shortest form, and it takes what
    follows a percent sign, as a zone does, for a byte in hexadecimal.

    >>> canonical("[fd77:0::2]:50051"), canonical("owner.example:1")
    ('[fd77::2]:50051', 'owner.example:1')
    >>> canonical("[fe80::2%eth0]:50051")
    '[fe80::2%25eth0]:50051'
    """
    host, port = host_and_port(address)
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return address
    shown = str(found).replace("%", "%25")
    return f"[{shown}]:{port}" if found.version == 6 else f"{shown}:{port}"


def certified_host(host: str) -> str:
    """A host as certificates name it: an IPv6 host's zone means something on this machine only.

    >>> certified_host("fe80::2%eth0"), certified_host("owner.example")
    ('fe80::2', 'owner.example')
    """
    return host.partition("%")[0]


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

    Args:
      where: What the address is called in an error.
      address: HOST:PORT, of this side or of the other.
      tls: Whether certificates are set.
      insecure: Whether ``--insecure`` was typed.

    Raises:
      InputError: The address leaves this machine without TLS, or the two contradict.
    """
    if tls and insecure:
        raise InputError(f"{where}: [tls] is set and --insecure is typed; leave out one of the two")
    if not tls and not insecure and not is_loopback(address):
        raise InputError(
            f"{where} = {address!r} leaves this machine without TLS; give [tls] with ca, "
            f"certificate and key ({MAKERS}), or type --insecure for plain text that anybody on "
            "the way can read and change"
        )


def load_identity(settings: TlsSettings, *, base: Path, side: Side) -> Identity:
    """The three files, read and found to belong together.

    Args:
      settings: Their paths.
      base: The folder that relative paths start from.
      side: Who the certificate is shown by: who is called at a port, or who calls.

    Raises:
      InputError: A file cannot be read, the key is another's, the certificate has expired,
        or it is not of this CA; the sentence names the file and the cure.
    """
    paths = TlsSettings(
        **{name: (base / getattr(settings, name)).absolute() for name in TlsSettings.model_fields}
    )
    identity = Identity(
        paths=paths,
        stamp=stamp_of(paths),
        ca=_read("ca", paths.ca),
        certificate=_read("certificate", paths.certificate),
        key=_read("key", paths.key),
    )
    _check_kinds(identity)
    _check(paths, side)
    warn_of_others(paths.key)
    warn_of_writers(paths.ca)
    return identity


def stamp_of(paths: TlsSettings) -> Stamp:
    """What changes when files do, even if their times of writing are set back; None without one."""
    try:
        found = [path.stat() for path in (paths.ca, paths.certificate, paths.key)]
    except OSError:
        return None
    return tuple((status.st_ctime_ns, status.st_ino) for status in found)


def _read(key: str, path: Path) -> bytes:
    try:
        # Not through a pipe: the handshake reads them once more, and so does each renewal.
        return read_own(path)
    except OSError as error:
        is_there = isinstance(error, PermissionError)
        made = f"{MAKER[key]} (copriv certs, where one makes all files)"
        cure = "give it to the user who types this" if is_there else made
        raise InputError(f"tls.{key}: {path}: cannot be read ({error.strerror}); {cure}") from None


def _check_kinds(identity: Identity) -> None:
    """Refuse keys that gRPC's TLS does not know: its handshakes fail, and nobody learns why.

    What is no certificate at all is left to :func:`_check`.
    """
    from cryptography import x509  # noqa: PLC0415 (plain text needs none of it)
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415

    for name, curves in (("certificate", SHOWN_CURVES), ("ca", SIGNING_CURVES)):
        try:
            read = x509.load_pem_x509_certificates(getattr(identity, name))
            # Behind a certificate of our own stand those that lead to its CA.
            keys = [one.public_key() for one in (read[:1] if name == "certificate" else read)]
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue
        if not any(_is_known(key, curves, signs=name == "ca") for key in keys):
            raise InputError(
                f"tls.{name}: {getattr(identity.paths, name)} has a key of a kind that gRPC's TLS "
                "does not know; give one whose key is on the curve P-256 or P-384, or of RSA"
            )


def _is_known(key: object, curves: Iterable[str], *, signs: bool) -> bool:
    """Whether gRPC's TLS knows a public key's kind."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: PLC0415

    if isinstance(key, ec.EllipticCurvePublicKey):
        return key.curve.name in curves
    return isinstance(key, rsa.RSAPublicKey) or (
        signs and isinstance(key, ed25519.Ed25519PublicKey)
    )


def _check(paths: TlsSettings, side: Side) -> None:
    """One handshake in memory, against ourselves: it finds what a peer would find."""
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if side == "client" else ssl.PROTOCOL_TLS_SERVER)
    shown.check_hostname = False
    judge = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if side == "client" else ssl.PROTOCOL_TLS_CLIENT)
    judge.check_hostname = False
    _load_chain(shown, paths)
    shown.verify_mode = ssl.CERT_NONE
    if side == "client":
        # Somebody must play the server; the client does not look at what it shows.
        _load_chain(judge, paths)
    judge.verify_mode = ssl.CERT_REQUIRED
    try:
        judge.load_verify_locations(paths.ca)
    except ssl.SSLError:
        raise InputError(
            f"tls.ca: {paths.ca} is not a PEM certificate; give the study's CA"
        ) from None
    try:
        _shake_hands(shown, judge, judge_is_server=side == "client")
    except ssl.SSLCertVerificationError as error:
        fault = _certificate_fault(error, side)
        raise InputError(f"tls.certificate: {paths.certificate} {fault}") from None
    except ssl.SSLError as error:
        raise _too_weak(paths, error) from None


def _too_weak(paths: TlsSettings, error: ssl.SSLError) -> InputError:
    """For keys and signatures that TLS does not take any more."""
    reason = (error.reason or "no reason given").replace("_", " ").lower()
    return InputError(
        f"tls: {paths.certificate} and {paths.ca} cannot be used ({reason}); give files as copriv "
        "makes them"
    )


def _load_chain(context: ssl.SSLContext, paths: TlsSettings) -> None:
    try:
        context.load_cert_chain(paths.certificate, paths.key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise InputError(
                f"tls.key: {paths.key} is not the key of {paths.certificate}; give the "
                "certificate that was made for this key"
            ) from None
        if isinstance(error, ssl.SSLError) and error.reason in TOO_WEAK:
            raise _too_weak(paths, error) from None
        raise InputError(
            f"tls: {paths.certificate} and {paths.key} are not a PEM certificate and its key "
            "without a password, in this order; give files as copriv makes them"
        ) from None


def _no_password() -> str:
    """Instead of a prompt that nobody would answer."""
    raise ValueError("the key has a password")


def _certificate_fault(error: ssl.SSLCertVerificationError, side: Side) -> str:
    now = datetime.now(UTC)
    match error.verify_code:
        case 10:
            # By the day: with the time it would be another sentence each minute, and logged anew.
            return (
                f"has expired by this machine's clock ({now:%Y-%m-%d} UTC), or its CA has; if the "
                "clock is right, "
                f"{RENEWED_BY['owner']} renews an owner's, {RENEWED_BY['learner']} the learner's "
                "(copriv certs --renew, if that made it)"
            )
        case 9:
            return (
                f"is not valid yet by this machine's clock ({now:%Y-%m-%d %H:%M} UTC); set that "
                "right, or, if it is, ask for another: the clock of who made it was ahead"
            )
        case 26 if side == "client":
            return (
                "was made to be called at a port, not to call from here; invite again as the study "
                "is now (copriv invite), or make one with copriv certs (--learner NAME, or --owner "
                "NAME for an owner that attaches)"
            )
        case 26:
            return (
                "was made to call, not to be called at a port here; invite again as the study is "
                "now (copriv invite), or make one with copriv certs and the hosts of this side "
                "(--owner NAME=HOST, or --learner NAME=HOST)"
            )
        case _:
            return (
                f"is not of the CA in tls.ca ({error.verify_message}); give the files that "
                "were made for this study"
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
