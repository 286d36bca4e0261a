"""Certificates for tests of TLS: whose file is not looked at, expired ones, self-signed ones."""

import subprocess
from contextlib import contextmanager
from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import learner.network.certificates
from common.tls import Identity, TlsSettings, stamp_of


def tls_table(folder):
    """The section ``[tls]`` of whoever shows the files of this folder."""
    return {name: str(folder / f"{name}.pem") for name in TlsSettings.model_fields}


def tls_of(folder):
    return TlsSettings(**tls_table(folder))


def unchecked(folder):
    """What somebody would show who does not look at the own files first."""
    paths = tls_of(folder)
    files = {name: getattr(paths, name).read_bytes() for name in TlsSettings.model_fields}
    return Identity(paths=paths, stamp=stamp_of(paths), **files)


@contextmanager
def an_hour_too_late(monkeypatch):
    """Certificates that are made here ran out an hour ago, if they are made for a day."""
    with monkeypatch.context() as patch:
        patch.setattr(learner.network.certificates, "CLOCK_SKEW", timedelta(days=2, hours=1))
        patch.setattr(learner.network.certificates, "timedelta", lambda days: timedelta(hours=-1))
        yield patch


def self_signed(folder, name):
    """The files of somebody whom no CA knows."""
    folder.mkdir()
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", folder / "key.pem", "-out", folder / "certificate.pem", "-days", "9"),
        ],
        check=True,
        capture_output=True,
    )
    (folder / "ca.pem").write_bytes((folder / "certificate.pem").read_bytes())
    return folder


def named(folder, who, names):
    """Have the CA give a party these common names, and otherwise what it has."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    resigned(folder, who, lambda good: (subject, [each.value for each in good.extensions]))


def resigned(folder, who, says):
    """Have the CA say something else of a party: its subject, and its extensions."""
    path = folder / who / "certificate.pem"
    good = x509.load_pem_x509_certificate(path.read_bytes())
    key = serialization.load_pem_private_key((folder / "ca" / "key.pem").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    subject, extensions = says(good)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(good.issuer)
        .public_key(good.public_key())
        .serial_number(good.serial_number)
        .not_valid_before(good.not_valid_before_utc)
        .not_valid_after(good.not_valid_after_utc)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
