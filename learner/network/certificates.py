"""A study's own CA, and one certificate for each owner and learner.

The CA's key never leaves the folder it was made in; each party gets three files. A certificate
says whether its holder is an owner or a learner, so an owner cannot query another owner. Only the
certificate of a party with hosts can be used at a port.
"""

from __future__ import annotations

import fcntl
import ipaddress
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from common.certificates import key_pem
from common.errors import InputError
from common.files import ANOTHER_USERS, unwritten, write_whole
from common.names import repeated
from common.small_files import read_own
from common.tls import Role, certified_host, role_uri

CA_FOLDER = "ca"
# A daily job renews in time, and no run of a few days meets an expired certificate.
RENEW_BEFORE = timedelta(days=30)
CLOCK_SKEW = timedelta(minutes=5)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Party:
    """Who gets a certificate.

    Args:
      name: The common name: an owner's name, or the identity that owners list as learner.
      role: What it is; the certificate says so.
      hosts: DNS names and IP addresses that the party is reached under. An owner with hosts
        serves, one without goes to the learner; a learner with hosts listens and asks, one
        without only asks.
    """

    name: str
    role: Role
    hosts: tuple[str, ...] = ()

    @property
    def may_be_called(self) -> bool:
        """Whether it opens a port."""
        return bool(self.hosts)

    @property
    def may_call(self) -> bool:
        """Whether it opens connections."""
        return self.role == "learner" or not self.hosts

    @property
    def names(self) -> tuple[str, ...]:
        """The names in its certificate: the hosts of an owner that serves, else name and hosts."""
        hosts = tuple(certified_host(host) for host in self.hosts)
        return hosts if self.role == "owner" and hosts else (self.name, *hosts)


@dataclass(frozen=True, kw_only=True)
class Issued:
    """A party's certificate as it now is in its folder; it expires with its CA at the latest."""

    party: Party
    folder: Path
    expires: datetime
    made: bool


@dataclass(frozen=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_certificates(
    out: Path,
    parties: Sequence[Party],
    *,
    study: str,
    days: int,
    renew: bool,
    ca_days: int = 3650,
    option: str = "--out",
) -> list[Issued]:
    """Make what is missing, does not fit or expires within 30 days; keep the rest.

    Args:
      out: The folder; ``out/ca`` is the CA, ``out/NAME`` each party's three files.
      parties: Who needs a certificate.
      study: The study's name, for the CA's.
      days: How long a certificate is valid.
      renew: Replace all certificates, with the same CA.
      ca_days: How long a new CA is.
      option: What names the folder.

    Raises:
      InputError: A name is taken twice, the CA has expired or is gone, or a file cannot be written.
    """
    names = [party.name for party in parties]
    taken = repeated([CA_FOLDER, *names])
    if taken:
        raise InputError(f"certs: the name {min(taken)!r} is already taken; give each its own")
    try:
        with _alone(out):
            authority = _authority(out / CA_FOLDER, study=study, days=ca_days, option=option)
            return [_issue(out, party, authority, days=days, renew=renew) for party in parties]
    except OSError as error:
        # A CA's key is nobody else's to read.
        is_kept = isinstance(error, PermissionError)
        cure = ANOTHER_USERS if is_kept else f"give another folder with {option}"
        raise unwritten(
            error,
            f"{error.filename or out}: cannot be written or read ({error.strerror}); {cure}",
        ) from None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait for another command that makes files there: of two at once each would mix in its own."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def sign_request(out: Path, party: Party, key: ec.EllipticCurvePublicKey, *, days: int) -> bytes:
    """A party's certificate for a key that it keeps to itself, PEM.

    Args:
      out: The folder of the CA and all parties.
      party: Whose it is, and the hosts it is reached under.
      key: The party's public key.
      days: How long it is valid.

    Raises:
      InputError: There is no CA in ``out``, or it has expired.
    """
    if not (out / CA_FOLDER / "key.pem").exists():
        raise InputError(f"{out / CA_FOLDER}: there is no CA; make one with copriv invite")
    try:
        option = "--certs of copriv invite"
        authority = _authority(out / CA_FOLDER, study="", days=days, option=option)
    except OSError as error:
        raise InputError(
            f"{error.filename}: cannot be read ({error.strerror}); make it readable for this user"
        ) from None
    return _pem(_certificate(party, key, authority, days=days))


def _authority(folder: Path, *, study: str, days: int, option: str = "--out") -> _Authority:
    """The CA of the folder; made at the first call."""
    if not (folder / "key.pem").exists():
        # The files that are there are in use: those of a new CA would shut everybody out.
        signed = next(folder.parent.glob("*/ca.pem"), None)
        if signed is not None:
            raise InputError(
                f"{folder}: the CA is gone, which signed what is in {signed.parent}; put the "
                f"folder back, or make a new CA, and all certificates anew, in an empty {option}"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"copriv CA of {study}"[:64])
        usage = _key_usage(signs_certificates=True)
        certificate = (
            _builder(name, name, key.public_key(), days=days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        folder.mkdir(parents=True, exist_ok=True)
        # The key last: where it is, the certificate is too.
        write_whole(folder / "certificate.pem", _pem(certificate), mode=0o644)
        write_whole(folder / "key.pem", key_pem(key), mode=0o600)
    try:
        certificate = x509.load_pem_x509_certificate(read_own(folder / "certificate.pem"))
        loaded = serialization.load_pem_private_key(read_own(folder / "key.pem"), None)
    except (ValueError, TypeError):
        raise InputError(f"{folder}: holds no CA that copriv made; give another {option}") from None
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise InputError(f"{folder}: holds no CA that copriv made; give another {option}")
    if certificate.not_valid_before_utc > datetime.now(UTC):
        raise InputError(
            f"{folder}: the CA is not valid before {certificate.not_valid_before_utc:%Y-%m-%d}; "
            f"set this machine's clock right, or make a new one in an empty {option}"
        )
    left = certificate.not_valid_after_utc - datetime.now(UTC)
    if left < timedelta(0):
        raise InputError(
            f"{folder}: the CA expired on {certificate.not_valid_after_utc:%Y-%m-%d}; set this "
            f"machine's clock right, or make a new one in an empty {option}"
        )
    if left < RENEW_BEFORE:
        logger.warning(
            "%s: the CA ends on %s, and with it whatever it signed; make a new one before that, "
            "in an empty %s",
            folder,
            f"{certificate.not_valid_after_utc:%Y-%m-%d}",
            option,
        )
    return _Authority(certificate, loaded)


def _issue(out: Path, party: Party, authority: _Authority, *, days: int, renew: bool) -> Issued:
    folder = out / party.name
    found = None if renew else _still_good(folder, party, authority)
    certificate = found or _sign(folder, party, authority, days=days)
    trusted, ours = folder / "ca.pem", _pem(authority.certificate)
    # While a CA is replaced the other one stands there, too.
    if not (trusted.exists() and ours in read_own(trusted)):
        write_whole(trusted, ours, mode=0o644)
    expires = min(certificate.not_valid_after_utc, authority.certificate.not_valid_after_utc)
    return Issued(party=party, folder=folder, expires=expires, made=found is None)


def _still_good(folder: Path, party: Party, authority: _Authority) -> x509.Certificate | None:
    """The certificate that is there, if it may stay."""
    try:
        found = x509.load_pem_x509_certificate(read_own(folder / "certificate.pem"))
        found.verify_directly_issued_by(authority.certificate)
        usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # Whatever is wrong with it, a new one is made.
        return None
    now = datetime.now(UTC)
    # One of a clock that was ahead is not valid yet.
    lasts = found.not_valid_before_utc <= now < found.not_valid_after_utc - RENEW_BEFORE
    fits = set(names) == set(_alternatives(party)) and set(usage) == set(_purposes(party))
    return found if lasts and fits and _has_key(folder / "key.pem", found) else None


def _has_key(path: Path, certificate: x509.Certificate) -> bool:
    """Whether a certificate's key is there: a renewal may have been killed between the two."""
    try:
        key = serialization.load_pem_private_key(read_own(path), None)
    except PermissionError:
        # That of a service, whose user alone may read it.
        return True
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return key.public_key() == certificate.public_key()


def _sign(folder: Path, party: Party, authority: _Authority, *, days: int) -> x509.Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(party, key.public_key(), authority, days=days)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "key.pem", key_pem(key), mode=0o600)
    write_whole(folder / "certificate.pem", _pem(certificate), mode=0o644)
    return certificate


def _certificate(
    party: Party, key: ec.EllipticCurvePublicKey, authority: _Authority, *, days: int
) -> x509.Certificate:
    """A party's certificate for a key of its own."""
    builder = (
        _builder(_name(party.name), authority.certificate.subject, key, days=days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_purposes(party)), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternatives(party)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
    )
    return builder.sign(authority.key, hashes.SHA256())


def _purposes(party: Party) -> list[x509.ObjectIdentifier]:
    """The uses that its certificate allows."""
    purposes = []
    if party.may_be_called:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    if party.may_call:
        purposes.append(ExtendedKeyUsageOID.CLIENT_AUTH)
    return purposes


def _alternatives(party: Party) -> list[x509.GeneralName]:
    """Its hosts or name, and what it is."""
    role = x509.UniformResourceIdentifier(role_uri(party.role, party.name))
    return [*(_general_name(host) for host in party.names), role]


def _general_name(host: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    with suppress(ValueError):
        if host.isprintable() and not set("[]:/ ") & set(host):
            return x509.DNSName(host)
    raise InputError(
        f"certs: {host!r} is neither a DNS name nor an IP address; give one of these, without a "
        "port or brackets"
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
