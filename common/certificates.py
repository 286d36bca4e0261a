"""What a party's own certificate says of it, read from its file; and its key for one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from common.errors import InputError
from common.texts import claimed
from common.tls import Identity, Peer, role_named

# What bytes that are not what was written can raise on their way through X.509.
UNREADABLE = (
    ValueError,
    TypeError,
    InvalidSignature,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


def holder(identity: Identity) -> Peer:
    """Name, role and last day of our own certificate, which somebody else has made.

    Raises:
      InputError: It cannot be read.
    """
    try:
        return _holder(identity.certificate)
    except UNREADABLE:
        raise InputError(
            f"tls.certificate: {identity.paths.certificate} cannot be read; ask for another"
        ) from None


@lru_cache(maxsize=64)
def shown_by(certificate: bytes) -> Peer:
    """Who shows a verified PEM certificate: nobody, if it is unreadable or has not one common name.

    gRPC's own word for a common name ends at its first NUL character.

    >>> shown_by(b"no certificate")
    Peer(name='', role=None, expires=None)
    """
    try:
        return _holder(certificate)
    except UNREADABLE:
        return Peer(name="", role=None)


def _holder(certificate: bytes) -> Peer:
    """The same of a PEM certificate."""
    read = x509.load_pem_x509_certificate(certificate)
    names = read.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    try:
        alternatives = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = alternatives.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        uris = []
    # Of several, each library has its own opinion which one counts.
    name = names[0].value if len(names) == 1 else ""
    text = name if isinstance(name, str) else name.decode("utf-8", "replace")
    return Peer(name=text, role=role_named(uris), expires=read.not_valid_after_utc)


def certificates_alone(pem: bytes) -> str:
    """The certificates of a PEM file, without what stands beside them, such as a key, or words.

    Raises:
      Exception: Any of ``UNREADABLE``, where there is none, or one cannot be read.
    """
    read = x509.load_pem_x509_certificates(pem)
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in read).decode("ascii")


def days_left(identity: Identity) -> str:
    """How long our certificate lasts, in words, and its CA or one behind it if that ends first."""
    own, first = holder(identity).expires, end_of(identity)
    if own is None:
        return "of no known end"
    words = _days_until(own)
    if first is None or first >= own:
        return words
    return f"{words}, but its CA ends before it: {_days_until(first)}"


def _days_until(end: datetime) -> str:
    return f"{(end - datetime.now(UTC)) // timedelta(days=1)} days left"


def end_of(identity: Identity) -> datetime | None:
    """When the first of our certificate, those behind it and the CA that signed them ends.

    A file may hold several CAs, as while one replaces another: one that signed nothing of ours may
    end, and of two that signed the same the later end counts.

    Returns:
      None, if none of them can be read.
    """
    chain, known = _readable(identity.certificate), _readable(identity.ca)
    signers = [ca for ca in known if any(_is_signed_by(one, ca) for one in chain)]
    ends = [one.not_valid_after_utc for one in chain]
    if signers:
        ends.append(max(ca.not_valid_after_utc for ca in signers))
    return min(ends, default=None)


def _readable(certificates: bytes) -> list[x509.Certificate]:
    """Certificates of a PEM file; none, if it cannot be read."""
    try:
        return x509.load_pem_x509_certificates(certificates)
    except UNREADABLE:
        return []


def _is_signed_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    """Whether this CA's key has signed it."""
    try:
        certificate.verify_directly_issued_by(ca)
    except UNREADABLE:
        return False
    return True


def check_own_name(identity: Identity, *, name: str) -> None:
    """Refuse a certificate of ours that names another than our settings do.

    Raises:
      InputError: It is another's: learners would refuse it; or it cannot be read.
    """
    found = holder(identity)
    if found.name != name:
        raise InputError(
            f"tls.certificate: {identity.paths.certificate} is that of "
            f"{claimed(found.name)!r}, and this owner's name is {name!r}; give it the files "
            "that were made for that name, or set its name right"
        )


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as its file has it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
