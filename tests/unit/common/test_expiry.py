"""When our own certificate ends: the first end of what peers look at, from files that fit."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from identities import tls_of

from common.expiry import Expiry
from common.tls import load_identity
from learner.network.certificates import Party, make_certificates


def made(out, *, days=90, ca_days=100, renew=False):
    parties = [Party(name="learner", role="learner")]
    make_certificates(out, parties, study="test", days=days, ca_days=ca_days, renew=renew)
    return load_identity(tls_of(out / "learner"), base=Path("/"), side="client")


def end(pem):
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()


def test_whichever_ends_first_counts(tmp_path):
    first = made(tmp_path / "own")
    assert Expiry(first, side="client")() == end(first.certificate) < end(first.ca)
    second = made(tmp_path / "ca", days=90, ca_days=60)
    assert Expiry(second, side="client")() == end(second.ca) < end(second.certificate)
    # Another CA beside it that lasts longer changes nothing.
    both = replace(second, ca=second.ca + first.ca)
    assert Expiry(both, side="client")() == end(second.ca)


def test_of_several_cas_the_one_that_signed_ours_counts(tmp_path):
    ours, other = made(tmp_path / "ours"), made(tmp_path / "other", days=31, ca_days=35)
    assert end(other.ca) < end(ours.certificate)
    for both in (ours.ca + other.ca, other.ca + ours.ca):
        assert Expiry(replace(ours, ca=both), side="client")() == end(ours.certificate)
    # Those behind our own count, too.
    behind = replace(ours, certificate=ours.certificate + other.ca)
    assert Expiry(behind, side="client")() == end(other.ca)


def test_of_a_ca_that_was_renewed_the_later_end_counts(tmp_path):
    """Its key is the same, so both have signed ours."""
    ours = made(tmp_path, days=90, ca_days=100)
    ca = x509.load_pem_x509_certificate(ours.ca)
    key = serialization.load_pem_private_key((tmp_path / "ca" / "key.pem").read_bytes(), None)
    before = x509.CertificateBuilder(
        issuer_name=ca.issuer,
        subject_name=ca.subject,
        public_key=ca.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=ca.not_valid_before_utc,
        not_valid_after=ca.not_valid_before_utc + timedelta(days=40),
        extensions=list(ca.extensions),
    ).sign(key, hashes.SHA256())
    old = before.public_bytes(serialization.Encoding.PEM)
    assert Expiry(replace(ours, ca=old), side="client")() == end(old) < end(ours.certificate)
    for both in (old + ours.ca, ours.ca + old):
        assert Expiry(replace(ours, ca=both), side="client")() == end(ours.certificate)


def test_what_cannot_be_read_has_no_end(tmp_path):
    identity = replace(made(tmp_path), ca=b"nothing", certificate=b"nothing")
    assert math.isnan(Expiry(identity, side="client")())


def test_a_renewal_counts_once_its_files_fit_and_is_not_logged_here(tmp_path, caplog):
    caplog.set_level("INFO")
    before = made(tmp_path, days=40)
    expiry = Expiry(before, side="client")
    assert expiry() == end(before.certificate)
    key = tmp_path / "learner" / "key.pem"
    old = key.read_bytes()
    after = made(tmp_path, days=90, renew=True)
    new = key.read_bytes()
    key.write_bytes(old)
    assert expiry() == end(before.certificate)
    key.write_bytes(new)
    assert expiry() == end(after.certificate) > datetime.now(UTC).timestamp() + 80 * 86400
    key.unlink()
    assert expiry() == end(after.certificate)
    assert not [record for record in caplog.records if record.name == "copriv.tls"]
