"""Mutual TLS on a real port: who is refused, what is said, and what the port speaks at all."""

import contextlib
import gc
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import grpc
import pytest
from calls import methods
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.x509.oid import ExtensionOID, NameOID
from forked import run
from grpc.experimental.session_cache import ssl_session_cache_lru
from identities import an_hour_too_late, named, resigned, self_signed, tls_of, tls_table, unchecked

import common.channels
import common.tls
import learner.network.certificates
import owner.server
from common import diagnosis
from common.channels import open_channel
from common.diagnosis import identify, why_unreachable
from common.errors import IdentityError, InputError, UnreachableError, UntrustedError
from common.pb import copriv_pb2 as pb
from common.proxies import open_connection
from common.tls import load_identity
from learner.network import grpc_owner
from learner.network.certificates import Party, make_certificates, sign_request
from learner.network.grpc_owner import GrpcOwner
from owner.health import ask_health
from owner.ledger_reading import read_studies

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def certs(out, *, hosts=LOOPBACK, **options):
    make_certificates(
        out,
        [
            Party(name="owner-a", role="owner", hosts=hosts),
            Party(name="learner", role="learner"),
            Party(name="stranger", role="learner"),
        ],
        study="test",
        ca_days=100,
        **{"days": 90, "renew": False} | options,
    )
    return out


def expired(out, monkeypatch):
    """Certificates of the folder's own CA that ran out an hour ago."""
    certs(out)
    with an_hour_too_late(monkeypatch) as patch:
        patch.setattr(learner.network.certificates, "_still_good", lambda *_: None)
        return certs(out, days=1)


def identity(folder, *, check=True):
    if check:
        return load_identity(tls_of(folder), base=Path("/"), side="client")
    return unchecked(folder)


@pytest.fixture
def serve_tls(owner_folder, serve_owner):
    def serve(folder, *, listen="127.0.0.1:0", **policy):
        also = {"listen": listen, "tls": tls_table(folder)}
        return serve_owner(owner_folder(also=also, **policy))

    return serve


def reach(running, who, host="127.0.0.1"):
    return GrpcOwner("owner-a", f"{host}:{running.port}", deadline=5, identity=who)


def told(running, who, host="127.0.0.1"):
    """The sentence of the refusal, after making sure that waiting is not the cure."""
    remote = reach(running, who, host)
    with pytest.raises(UntrustedError) as refusal:
        remote.describe()
    remote.disconnect()
    return str(refusal.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_both_sides_of_one_study_reach_each_other(serve_tls, tmp_path, host):
    folder = certs(tmp_path / "certs")
    running = serve_tls(folder / "owner-a")
    remote = reach(running, identity(folder / "learner"), host)
    assert remote.describe().num_records == 200
    remote.disconnect()


@pytest.mark.parametrize("named", ["::1", "fd77::2"])
def test_a_zone_in_an_address_is_none_of_the_certificate(serve_tls, tmp_path, named):
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
            socket.create_connection(("::1%01", server.getsockname()[1]), 5).close()
    except OSError:
        pytest.skip("no IPv6 here, or its loopback is not the first interface")
    folder = certs(tmp_path / "certs", hosts=(named,))
    running = serve_tls(folder / "owner-a", listen="[::1%01]:0")
    learner = identity(folder / "learner")
    if named == "::1":
        remote = reach(running, learner, "[::1%01]")
        assert remote.describe().num_records == 200
        remote.disconnect()
    else:
        assert "is for fd77::2, not for ::1; use such a name" in told(running, learner, "[::1%01]")


def test_the_certificates_name_is_who_asks(serve_tls, tmp_path, make_terms):
    folder = certs(tmp_path / "certs")
    running = serve_tls(folder / "owner-a", learners=["learner"])
    for name, admitted in (("learner", True), ("stranger", False)):
        remote = reach(running, identity(folder / name))
        if admitted:
            remote.enroll(make_terms())
        else:
            with pytest.raises(Exception, match="does not serve this learner"):
                remote.enroll(make_terms())
        remote.disconnect()
    _, studies = read_studies(tmp_path / "owner-a" / "ledger.sqlite")
    assert [entry.learner for entry in studies] == ["learner"]


def test_an_owner_for_another_name_is_refused(serve_tls, tmp_path):
    folder = certs(tmp_path / "certs", hosts=("elsewhere.example", "10.9.8.7"))
    sentence = told(serve_tls(folder / "owner-a"), identity(folder / "learner"))
    assert "is for elsewhere.example, 10.9.8.7, not for 127.0.0.1" in sentence
    assert "copriv invite with that address, or copriv certs" in sentence


def test_an_owner_of_another_ca_is_refused(serve_tls, tmp_path):
    ours, theirs = certs(tmp_path / "ours"), certs(tmp_path / "theirs")
    running = serve_tls(theirs / "owner-a")
    assert "its certificate is not of our CA" in told(running, identity(ours / "learner"))


def test_a_self_signed_owner_is_refused(serve_tls, tmp_path):
    folder = certs(tmp_path / "certs")
    forged = self_signed(tmp_path / "forged", "owner-a")
    sentence = told(serve_tls(forged), identity(folder / "learner"))
    assert "its certificate is self-signed" in sentence
    assert "files that were made for this study" in sentence


def test_an_expired_owner_is_refused_and_does_not_even_start(serve_tls, tmp_path, monkeypatch):
    folder = expired(tmp_path / "certs", monkeypatch)
    with pytest.raises(
        InputError, match=r"if the clock is right, copriv admit .*copriv certs --renew"
    ):
        serve_tls(folder / "owner-a")
    # One that expires while it serves.
    monkeypatch.setattr("common.tls._check", lambda *_: None)
    running = serve_tls(folder / "owner-a")
    sentence = told(running, identity(folder / "learner", check=False))
    # It may as well be our clock that is ahead.
    assert re.search(
        r"its certificate expired on 2\S+; if this machine's clock is right, c", sentence
    )
    assert "copriv admit of its request renews it (copriv certs --renew, if that" in sentence


def test_a_certificate_that_outlasts_its_ca_is_not_said_to_have_expired(
    serve_tls, tmp_path, monkeypatch
):
    folder = certs(tmp_path / "certs")
    made = x509.load_pem_x509_certificate((folder / "ca" / "certificate.pem").read_bytes())
    key = serialization.load_pem_private_key((folder / "ca" / "key.pem").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    builder = x509.CertificateBuilder(
        issuer_name=made.issuer,
        subject_name=made.subject,
        public_key=made.public_key(),
        serial_number=made.serial_number,
        not_valid_before=made.not_valid_before_utc - timedelta(days=2),
        not_valid_after=made.not_valid_before_utc - timedelta(days=1),
        extensions=list(made.extensions),
    )
    ended = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    for name in ("owner-a", "learner"):
        (folder / name / "ca.pem").write_bytes(ended)
    monkeypatch.setattr("common.tls._check", lambda *_: None)
    sentence = told(serve_tls(folder / "owner-a"), identity(folder / "learner", check=False))
    assert "its certificate lasts until 2" in sentence
    assert "its CA, or one between the two, has expired; if this machine's clock is" in sentence


def beside_expired_learner(serve_tls, tmp_path, monkeypatch):
    """The certificates' folder, and an owner that serves; only the learner's has expired."""
    folder = certs(tmp_path / "certs")
    running = serve_tls(folder / "owner-a")
    owner_files = {path: path.read_bytes() for path in (folder / "owner-a").iterdir()}
    expired(folder, monkeypatch)
    for path, content in owner_files.items():
        path.write_bytes(content)
    return folder, running


def test_an_expired_learner_is_refused(serve_tls, tmp_path, monkeypatch):
    folder, running = beside_expired_learner(serve_tls, tmp_path, monkeypatch)
    with pytest.raises(InputError, match=r"certificate\.pem has expired"):
        identity(folder / "learner")
    sentence = told(running, identity(folder / "learner", check=False))
    assert "it refuses our certificate" in sentence
    assert "copriv invite the learner's (copriv certs --renew" in sentence


def test_a_learner_of_another_ca_is_refused(serve_tls, tmp_path):
    ours, theirs = certs(tmp_path / "ours"), certs(tmp_path / "theirs")
    mixed = theirs / "learner"
    (mixed / "ca.pem").write_bytes((ours / "learner" / "ca.pem").read_bytes())
    with pytest.raises(InputError, match=r"is not of the CA in tls\.ca"):
        identity(mixed)
    sentence = told(serve_tls(ours / "owner-a"), identity(mixed, check=False))
    assert "it refuses our certificate" in sentence
    assert "the files that were made for this study" in sentence


def test_a_refusal_that_our_files_do_not_explain_may_be_the_far_clock(tmp_path):
    """A certificate that was just made is not valid yet where a clock is slow."""
    ours, theirs = certs(tmp_path / "ours"), certs(tmp_path / "theirs")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*(ours / "owner-a" / name for name in ("certificate.pem", "key.pem")))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(theirs / "ca" / "certificate.pem")

    def refuse():
        near, _ = listening.accept()
        with contextlib.suppress(OSError), near:
            context.wrap_socket(near, server_side=True).close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        refusing = threading.Thread(target=refuse)
        refusing.start()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(UntrustedError, match=r"not of its CA, or not valid by its clock;"):
            identify(address, identity(ours / "learner"), far="owner", timeout=5)
        refusing.join()


@contextmanager
def answering(*ways):
    """The address of a port that deals with one caller after the other in these ways."""

    def answer():
        for way in ways:
            with contextlib.suppress(OSError):
                near, _ = listening.accept()
                with near:
                    way(near)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(5)
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("whose", ["learner", None])
@pytest.mark.parametrize("waits", [0.0, 1.0])
def test_who_takes_connections_and_says_nothing_is_no_matter_of_certificates(
    tmp_path, whose, waits
):
    """A proxy in front of nobody hangs up; large packets of a handshake may vanish on their way."""
    ours = None if whose is None else identity(certs(tmp_path / "ours") / whose)

    def say_nothing(near):
        near.recv(65536)
        time.sleep(waits)

    with answering(say_nothing) as address:
        cause = why_unreachable(address, ours, far="owner", timeout=0.3)
    assert "takes connections, but did not answer in time" in cause.sentence
    assert not cause.certificates


@pytest.mark.parametrize("whose", ["learner", None])
def test_who_hangs_up_before_a_handshake_is_no_matter_of_certificates(tmp_path, monkeypatch, whose):
    ours = None if whose is None else identity(certs(tmp_path / "ours") / whose)
    is_open, hung_up = threading.Event(), threading.Event()

    def reset(near):
        assert is_open.wait(10)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        near.close()
        hung_up.set()

    def open_late(*where):
        connection = open_connection(*where)
        is_open.set()
        assert hung_up.wait(10)
        return connection

    monkeypatch.setattr(diagnosis, "open_connection", open_late)
    with answering(reset) as address:
        cause = why_unreachable(address, ours, far="owner", timeout=5)
    assert cause == diagnosis.Cause.STALLED
    # What was left open would warn.
    gc.collect()


def test_a_line_that_ends_after_the_handshake_once_is_no_refusal(tmp_path):
    ours = certs(tmp_path / "ours")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*(ours / "owner-a" / name for name in ("certificate.pem", "key.pem")))

    def say(word, near):
        with context.wrap_socket(near, server_side=True) as secured:
            secured.sendall(word)

    hang_up, greet = partial(say, b""), partial(say, b"word")
    who = identity(ours / "learner")
    with answering(hang_up, greet) as address:
        assert identify(address, who, far="owner", timeout=5).name == "owner-a"
    with (
        answering(hang_up, hang_up) as address,
        pytest.raises(UntrustedError, match="it refuses our certificate"),
    ):
        identify(address, who, far="owner", timeout=5)


def test_an_owner_that_was_just_seen_is_not_told_to_have_another_address(
    serve_tls, tmp_path, monkeypatch
):
    """A long feature map fills a slow line, also for the look that asks why no answer came."""
    ours = certs(tmp_path / "ours")
    remote = reach(serve_tls(ours / "owner-a"), identity(ours / "learner"))
    monkeypatch.setattr(grpc_owner, "why_unreachable", lambda *_, **__: diagnosis.Cause.SILENT)

    def is_late():
        raise TimeoutError

    remote.describe()
    with pytest.raises(UnreachableError, match=r"the line is too slow for network\.deadline"):
        remote._call(is_late, diagnose=True)
    remote.disconnect()


def test_an_owner_cannot_question_another_owner(serve_tls, tmp_path):
    folder = certs(tmp_path / "certs")
    with pytest.raises(InputError, match="was made to be called at a port, not to call from here"):
        identity(folder / "owner-a")
    running = serve_tls(folder / "owner-a")
    assert "it refuses our certificate" in told(running, identity(folder / "owner-a", check=False))


def test_plain_text_meets_tls_and_the_other_way_round(
    serve_tls, serve_owner, owner_folder, tmp_path
):
    folder = certs(tmp_path / "certs")
    assert "it asks for TLS and a certificate" in told(serve_tls(folder / "owner-a"), None)
    plain = serve_owner(owner_folder("owner-b"))
    assert "it does not speak TLS" in told(plain, identity(folder / "learner"))


def test_a_probe_of_the_port_with_tls_is_told_which_port_has_none(serve_tls, tmp_path):
    running = serve_tls(certs(tmp_path / "certs") / "owner-a")
    with pytest.raises(UnreachableError, match=r"speaks TLS.* OWNER.toml names as health"):
        ask_health(f"127.0.0.1:{running.port}", seconds=5)


def test_nobody_there_is_not_a_matter_of_certificates(tmp_path):
    who = identity(certs(tmp_path / "certs") / "learner")
    remote = GrpcOwner("owner-a", "127.0.0.1:1", deadline=5, identity=who)
    with pytest.raises(UnreachableError, match="nothing listens there") as refusal:
        remote.describe()
    assert not isinstance(refusal.value, UntrustedError)


def test_a_client_without_a_certificate_gets_nothing(serve_tls, tmp_path):
    folder = certs(tmp_path / "certs")
    running = serve_tls(folder / "owner-a")
    ca = (folder / "learner" / "ca.pem").read_bytes()
    with grpc.secure_channel(
        f"127.0.0.1:{running.port}", grpc.ssl_channel_credentials(root_certificates=ca)
    ) as channel:
        stub = methods("DataOwner", channel)
        for call in (
            lambda: stub.Describe(pb.DescribeRequest(), timeout=5),
            lambda: stub.Enroll(pb.StudyTerms(), timeout=5),
            lambda: stub.AnswerOnce(pb.Query(), timeout=5),
            lambda: next(stub.Answer(iter([pb.Query()]), timeout=5)),
            lambda: stub.Close(pb.CloseRequest(), timeout=5),
        ):
            with pytest.raises(grpc.RpcError) as refusal:
                call()
            assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE


def handshake(port, folder, **limits):
    """A handshake and the first bytes of HTTP/2, within limits; raises if it is refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if folder is not None:
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    if ciphers := limits.pop("ciphers", None):
        context.set_ciphers(ciphers)
    for name, value in limits.items():
        setattr(context, name, value)
    plain = socket.create_connection(("127.0.0.1", port), 5)
    try:
        secured = context.wrap_socket(plain, server_hostname="127.0.0.1")
    except BaseException:
        plain.close()
        raise
    try:
        if not secured.recv(1):
            raise ConnectionResetError
    except BaseException:
        secured.close()
        raise
    return secured


@pytest.mark.filterwarnings("ignore:ssl:DeprecationWarning")
def test_the_port_speaks_only_modern_authenticated_tls(serve_tls, tmp_path):
    folder = certs(tmp_path / "certs")
    port = serve_tls(folder / "owner-a").port
    learner_files = folder / "learner"
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with handshake(
            port, learner_files, minimum_version=version, maximum_version=version
        ) as secured:
            assert secured.version() == version.name.replace("_", ".")
            assert secured.cipher()[0].endswith(
                ("GCM_SHA256", "GCM_SHA384", "POLY1305_SHA256")
            ) or ("GCM" in secured.cipher()[0])
    refused = (ssl.SSLError, ConnectionError)
    tls12 = {"minimum_version": ssl.TLSVersion.TLSv1_2, "maximum_version": ssl.TLSVersion.TLSv1_2}
    # Old versions, with OpenSSL's own caution switched off so that it is the port that refuses.
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        with pytest.raises(refused):
            handshake(
                port,
                learner_files,
                minimum_version=version,
                maximum_version=version,
                ciphers="ALL:@SECLEVEL=0",
            )
    # Anonymous, unencrypted, static-RSA, CBC and other old suites.
    for ciphers in ("aNULL", "eNULL", "kRSA", "AES128-SHA", "ECDHE-ECDSA-AES128-SHA", "3DES"):
        try:
            with pytest.raises(refused):
                handshake(port, learner_files, ciphers=f"{ciphers}:@SECLEVEL=0", **tls12)
        except ssl.SSLError as error:
            # The library at hand does not know the suite at all.
            assert "NO_CIPHER_MATCH" in str(error)  # noqa: PT017
    with pytest.raises(refused):
        handshake(port, None)
    with pytest.raises(refused):
        handshake(port, None, **tls12)


@pytest.mark.parametrize(
    ("named", "refused", "taken"),
    [
        ("ALL", "ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("no suite", "ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        (
            "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-SHA",
            "ECDHE-ECDSA-AES128-SHA:ECDHE-ECDSA-AES128-GCM-SHA256",
            "ECDHE-ECDSA-AES256-GCM-SHA384",
        ),
    ],
)
def test_the_environment_may_name_fewer_suites_and_no_others(
    owner_folder, tmp_path, named, refused, taken
):
    """gRPC itself takes any that a variable names."""
    folder = certs(tmp_path / "certs")
    path = owner_folder(also={"tls": tls_table(folder / "owner-a")})
    process = subprocess.Popen(
        [sys.executable, "-m", "owner.cli", "serve", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "GRPC_SSL_CIPHER_SUITES": named},
    )
    try:
        port = int(process.stdout.readline().split()[3])
        tls12 = {"maximum_version": ssl.TLSVersion.TLSv1_2}
        with pytest.raises((ssl.SSLError, ConnectionError)):
            handshake(port, folder / "learner", ciphers=f"{refused}:@SECLEVEL=0", **tls12)
        with handshake(port, folder / "learner", ciphers=taken, **tls12) as secured:
            assert secured.cipher()[0] == taken
    finally:
        process.terminate()
        process.communicate()


def test_a_renewed_certificate_is_used_without_a_restart(serve_tls, tmp_path):
    folder = certs(tmp_path / "certs")
    running = serve_tls(folder / "owner-a")

    def serial():
        with handshake(running.port, folder / "learner") as secured:
            shown = secured.getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(shown or b"").serial_number

    before = serial()
    assert serial() == before
    # Half of a renewal: the key alone does not fit, so the old certificate stays.
    key, certificate = (folder / "owner-a" / name for name in ("key.pem", "certificate.pem"))
    old_key = key.read_bytes()
    certs(folder, renew=True)
    new_key = key.read_bytes()
    key.write_bytes(old_key)
    assert serial() == before
    key.write_bytes(new_key)
    renewed = x509.load_pem_x509_certificate(certificate.read_bytes()).serial_number
    assert serial() == renewed != before


def test_a_certificate_that_is_renewed_while_an_owner_reads_its_records_is_used(
    serve_tls, tmp_path, monkeypatch
):
    """Of a large table that takes minutes, and nothing would have looked at the files again."""
    folder, opened = certs(tmp_path / "certs"), owner.server.open_owner

    def renewed_meanwhile(*settings, **options):
        certs(folder, renew=True)
        return opened(*settings, **options)

    monkeypatch.setattr(owner.server, "open_owner", renewed_meanwhile)
    running = serve_tls(folder / "owner-a")
    with handshake(running.port, folder / "learner") as secured:
        shown = x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")
    renewed = (folder / "owner-a" / "certificate.pem").read_bytes()
    assert shown == x509.load_pem_x509_certificate(renewed)


def copied_into(folder, other):
    """Another's files in the place of a party's own; they have the size and the times of those."""
    for path in folder.glob("*.pem"):
        times = path.stat()
        path.write_bytes((other / path.name).read_bytes())
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_renewal_that_is_anothers_is_not_used(serve_tls, tmp_path, caplog):
    """Its learner would not have known the owner any more."""
    folder = tmp_path / "certs"
    parties = [Party(name=name, role="owner", hosts=LOOPBACK) for name in ("owner-a", "owner-b")]
    parties.append(Party(name="learner", role="learner"))
    make_certificates(folder, parties, study="test", ca_days=100, days=90, renew=False)
    running = serve_tls(folder / "owner-a")
    remote = reach(running, identity(folder / "learner"))
    shutil.copytree(folder / "owner-a", tmp_path / "own")
    with caplog.at_level("INFO", logger="copriv.tls"):
        copied_into(folder / "owner-a", folder / "owner-b")
        assert remote.describe().num_records == 200
        (folder / "owner-a" / "key.pem").unlink()
        assert remote.describe().num_records == 200
        copied_into(folder / "owner-a", tmp_path / "own")
        shutil.copy(tmp_path / "own" / "key.pem", folder / "owner-a")
        assert remote.describe().num_records == 200
    remote.disconnect()
    said = [record.getMessage() for record in caplog.records if record.name == "copriv.tls"]
    assert len(said) == 3
    assert "is that of 'owner-b', and the one before was that of 'owner-a'; give" in said[0]
    assert "key.pem: cannot be read (No such file or directory); copriv invite, or" in said[1]
    assert said[2] == "a renewed certificate is in use"


def test_a_renewal_that_has_expired_is_named_once(tmp_path, monkeypatch, caplog):
    """Asked at each handshake: a sentence with the time in it was another one each minute."""
    folder = expired(tmp_path / "certs", monkeypatch)
    certs(tmp_path / "good")
    shutil.copytree(folder / "owner-a", tmp_path / "expired")
    copied_into(folder / "owner-a", tmp_path / "good" / "owner-a")
    renewals = common.channels.Renewals(identity(folder / "owner-a", check=False), side="server")
    copied_into(folder / "owner-a", tmp_path / "expired")
    minutes = count()
    clock = Mock(now=lambda zone: datetime(2099, 1, 1, 12, next(minutes), tzinfo=zone))
    monkeypatch.setattr(common.tls, "datetime", clock)
    assert [renewals.fetch() for _ in range(3)] == [None] * 3
    said = [record.getMessage() for record in caplog.records if record.name == "copriv.tls"]
    assert [text.partition(" is not used: ")[0] for text in said] == ["the renewed certificate"]
    assert "certificate.pem has expired by this machine's clock (2099-01-01 UTC), or" in said[0]


def test_a_renewal_whose_files_have_the_old_times_is_used(serve_tls, tmp_path):
    """As of an archive that gives all its files one time."""
    folder = certs(tmp_path / "certs")
    running = serve_tls(folder / "owner-a")
    shutil.copytree(folder, tmp_path / "copy")
    certs(tmp_path / "copy", renew=True)
    copied_into(folder / "owner-a", tmp_path / "copy" / "owner-a")
    with handshake(running.port, folder / "learner") as secured:
        shown = x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")
    renewed = (tmp_path / "copy" / "owner-a" / "certificate.pem").read_bytes()
    assert shown == x509.load_pem_x509_certificate(renewed)


def test_a_learner_shows_its_renewed_certificate_without_a_restart(
    serve_tls, tmp_path, monkeypatch
):
    """A run may outlive its certificate; an owner that comes back then is shown the new one."""
    folder, running = beside_expired_learner(serve_tls, tmp_path, monkeypatch)
    remote = reach(running, identity(folder / "learner", check=False))
    with pytest.raises(UntrustedError, match=r"certificate\.pem has expired"):
        remote.describe()
    certs(folder, renew=True)
    assert remote.describe().num_records == 200
    # Half of a renewal is named, and is no matter of the owner's address.
    key = folder / "learner" / "key.pem"
    key.write_bytes((folder / "owner-a" / "key.pem").read_bytes())
    with pytest.raises(UntrustedError, match=r"our own files do not fit.*is not the key of"):
        remote.describe()
    certs(folder, renew=True)
    assert remote.describe().num_records == 200
    remote.disconnect()


def test_who_resumes_a_session_whose_certificate_has_expired_is_nobody(
    serve_tls, tmp_path, monkeypatch
):
    """TLS looks at no certificate again when a session is resumed, which it is for days."""
    folder = certs(tmp_path / "certs")
    running = serve_tls(folder / "owner-a")
    who = identity(folder / "learner")
    options = (
        ("grpc.ssl_session_cache", ssl_session_cache_lru(1)),
        ("grpc.use_local_subchannel_pool", 1),
    )

    def described():
        with open_channel(f"localhost:{running.port}", who, options) as channel:
            return methods("DataOwner", channel).Describe(pb.DescribeRequest(), timeout=5)

    assert described().num_records == described().num_records == 200
    remote = reach(running, who)
    assert remote.describe().num_records == 200
    monkeypatch.setattr(common.channels, "datetime", FarAhead)
    with pytest.raises(grpc.RpcError, match="has expired; come with one that names you"):
        described()
    # A connection that was open before stays open.
    assert remote.describe().num_records == 200
    remote.disconnect()


def rekeyed(folder, key):
    """An owner's certificate for another key, and that key."""
    path = folder / "owner-a" / "certificate.pem"
    good = x509.load_pem_x509_certificate(path.read_bytes())
    ca = serialization.load_pem_private_key((folder / "ca" / "key.pem").read_bytes(), None)
    assert isinstance(ca, ec.EllipticCurvePrivateKey)
    builder = (
        x509.CertificateBuilder()
        .subject_name(good.subject)
        .issuer_name(good.issuer)
        .public_key(key.public_key())
        .serial_number(good.serial_number)
        .not_valid_before(good.not_valid_before_utc)
        .not_valid_after(good.not_valid_after_utc)
    )
    for extension in good.extensions:
        if extension.oid != ExtensionOID.SUBJECT_KEY_IDENTIFIER:
            builder = builder.add_extension(extension.value, extension.critical)
    pem = serialization.Encoding.PEM
    path.write_bytes(builder.sign(ca, hashes.SHA256()).public_bytes(pem))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (path.parent / "key.pem").write_bytes(key.private_bytes(pem, *plain))
    return path.parent


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (ec.generate_private_key(ec.SECP384R1()), None),
        (rsa.generate_private_key(65537, 2048), None),
        (ec.generate_private_key(ec.SECP521R1()), "a kind that gRPC's TLS does not know"),
        (ec.generate_private_key(ec.SECP224R1()), "a kind that gRPC's TLS does not know"),
        (ec.generate_private_key(ec.SECP256K1()), "a kind that gRPC's TLS does not know"),
        (ed25519.Ed25519PrivateKey.generate(), "a kind that gRPC's TLS does not know"),
        (dsa.generate_private_key(2048), "a kind that gRPC's TLS does not know"),
        (rsa.generate_private_key(65537, 1024), "ee key too small"),  # noqa: S505
    ],
    ids=["P-384", "RSA", "P-521", "P-224", "secp256k1", "Ed25519", "DSA", "small RSA"],
)
def test_a_key_of_another_tool_works_or_is_refused_at_once(serve_tls, tmp_path, key, sentence):
    """Python's TLS knows more keys than gRPC's, whose handshakes fail without a word."""
    folder = certs(tmp_path / "certs")
    theirs = rekeyed(folder, key)
    if sentence is not None:
        with pytest.raises(InputError, match=sentence):
            serve_tls(theirs)
        return
    remote = reach(serve_tls(theirs), identity(folder / "learner"))
    assert remote.describe().num_records == 200
    remote.disconnect()


@pytest.mark.parametrize("curve", [ec.SECP256K1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_a_ca_of_another_tool_works_or_is_refused_at_once(serve_tls, tmp_path, monkeypatch, curve):
    generate = ec.generate_private_key
    with monkeypatch.context() as patch:
        patch.setattr(ec, "generate_private_key", lambda _: generate(curve))
        (tmp_path / "certs").mkdir()
        learner.network.certificates._authority(tmp_path / "certs" / "ca", study="t", days=9)
    folder = certs(tmp_path / "certs")
    if curve.name == "secp256k1":
        with pytest.raises(InputError, match=r"tls\.ca: .* does not know; give one whose key"):
            serve_tls(folder / "owner-a")
        return
    remote = reach(serve_tls(folder / "owner-a"), identity(folder / "learner"))
    assert remote.describe().num_records == 200
    remote.disconnect()


def test_off_loopback_plain_text_must_be_typed(owner_folder, serve_owner):
    path = owner_folder(also={"listen": "0.0.0.0:0"})
    with pytest.raises(InputError, match=r"leaves this machine without TLS.*--insecure"):
        serve_owner(path)


def run_certs(*arguments):
    return run("copriv", "certs", *arguments)


def test_copriv_certs_makes_keeps_and_renews(tmp_path, typed):
    out = tmp_path / "certs"
    arguments = ("--owner", "a=a.example, 10.0.0.7,::1", "--owner", "b=b.example", "--out", out)
    first = run_certs(*arguments)
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("new") == 3
    assert "10.0.0.7" in first.stdout
    expires = x509.load_pem_x509_certificate((out / "a" / "certificate.pem").read_bytes())
    assert f"{expires.not_valid_after_utc:%Y-%m-%d}" in first.stdout
    names = expires.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == [
        *("a.example", "10.0.0.7", "::1", "copriv://owner/a")
    ]
    for key in out.glob("*/key.pem"):
        assert key.stat().st_mode & 0o777 == 0o600
    assert len(list(out.glob("*/key.pem"))) == 4
    assert typed("copriv", "certs", *arguments).stdout.count("kept") == 3
    assert typed("copriv", "certs", *arguments, "--renew").stdout.count("new") == 3
    # Another address needs another certificate; the others stay.
    elsewhere = ("--owner", "a=a2.example", "--owner", "b=b.example", "--out", out)
    moved = typed("copriv", "certs", *elsewhere)
    assert (moved.stdout.count("new"), moved.stdout.count("kept")) == (1, 2)


def test_no_certificate_is_said_to_outlast_its_ca(tmp_path, caplog):
    """A daily job would keep it, and say nothing until on one day nobody is let in any more."""
    parties = [Party(name="a", role="owner", hosts=("a.example",))]

    def ends(out, *, ca_days):
        (one,) = make_certificates(
            out, parties, study="test", days=365, ca_days=ca_days, renew=False
        )
        ca = x509.load_pem_x509_certificate((out / "ca" / "certificate.pem").read_bytes())
        assert one.expires == ca.not_valid_after_utc
        return f"{one.expires:%Y-%m-%d}"

    ends(tmp_path / "later", ca_days=40)
    assert not caplog.records
    day = ends(tmp_path / "soon", ca_days=20)
    said = f"{tmp_path / 'soon' / 'ca'}: the CA ends on {day}, and with it whatever it signed"
    assert f"{said}; make a new one before that, in an empty --out" in caplog.text
    shown = run_certs("--owner", "a=a.example", "--out", tmp_path / "soon")
    assert f"{day}   kept" in shown.stdout
    assert "the CA ends on" in shown.stderr


def test_a_key_whose_certificate_was_never_written_is_not_kept(tmp_path, monkeypatch):
    """A renewal that is killed between the two leaves a pair that nobody can serve with."""
    folder = certs(tmp_path / "certs") / "owner-a"
    write = learner.network.certificates.write_whole

    def killed(path, content, **options):
        if path == folder / "certificate.pem":
            raise KeyboardInterrupt
        write(path, content, **options)

    with monkeypatch.context() as patch:
        patch.setattr(learner.network.certificates, "write_whole", killed)
        with pytest.raises(KeyboardInterrupt):
            certs(tmp_path / "certs", renew=True)
    with pytest.raises(InputError, match="is not the key of"):
        load_identity(tls_of(folder), base=folder, side="server")
    certs(tmp_path / "certs")
    load_identity(tls_of(folder), base=folder, side="server")


def test_a_ca_that_others_can_write_is_warned_of(tmp_path, caplog):
    """At the next handshake whoever adds a CA of his own is any learner, or any owner."""
    folder = certs(tmp_path / "certs") / "owner-a"
    load_identity(tls_of(folder), base=folder, side="server")
    assert "chmod" not in caplog.text
    (folder / "ca.pem").chmod(0o646)
    load_identity(tls_of(folder), base=folder, side="server")
    assert "ca.pem can be written by others on this machine; chmod o-w it" in caplog.text


def test_two_commands_that_make_a_ca_at_once_make_one(tmp_path, monkeypatch):
    """Else its certificate is one's and its key the other's, and nothing that it signs is of it."""
    folder, others = tmp_path / "certs", []
    write = learner.network.certificates.write_whole

    def beside(path, *content, **options):
        write(path, *content, **options)
        if not others:
            others.append(threading.Thread(target=certs, args=(folder,)))
            others[0].start()
            others[0].join(1)

    monkeypatch.setattr(learner.network.certificates, "write_whole", beside)
    certs(folder)
    others[0].join()
    certs(folder, renew=True)
    for name in ("learner", "stranger"):
        assert identity(folder / name).paths == tls_of(folder / name)


def test_a_certificate_for_a_host_with_a_zone_is_kept(tmp_path, typed):
    arguments = ("--owner", "a=fe80::2%eth0", "--out", tmp_path / "certs")
    assert [typed("copriv", "certs", *arguments).stdout.count("kept") for _ in "12"] == [0, 2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no owner is named"),
        (("--owner", "a="), "expected NAME, NAME=HOST"),
        (("--owner", "a b=h"), "letters a-z, digits and . _ - only"),
        (("--owner", "a=h,,i"), "expected NAME, NAME=HOST"),
        (("--owner", "a"), "no learner has one either"),
        (("--owner", "ca=h"), "'ca' is already taken"),
        (("--owner", "learner=h"), "'learner' is already taken"),
        (("--owner", "a=é.example"), "neither a DNS name"),
        (("--owner", "a=a example"), "neither a DNS name"),
        (("--owner", "a=a\x7fb"), "neither a DNS name"),
        (("--owner", "a=[::1]"), "give one of these, without a port or brackets"),
        (("--owner", "a=bank.example:50051"), "give one of these, without a port or brackets"),
    ],
)
def test_wrong_arguments_of_certs_are_one_sentence(arguments, words, tmp_path, typed):
    result = typed("copriv", "certs", *arguments, "--out", tmp_path / "certs")
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert words in result.stderr
    if not arguments:
        # A process of its own says the same.
        other = run_certs("--out", tmp_path / "certs")
        assert (other.returncode, other.stderr) == (2, result.stderr)


def swap(folder):
    (folder / "key.pem").rename(folder / "other")
    (folder / "certificate.pem").rename(folder / "key.pem")
    (folder / "other").rename(folder / "certificate.pem")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "key.pem").unlink(), "tls.key: .* cannot be read"),
        (lambda f: (f / "ca.pem").write_text("x"), "is not a PEM certificate"),
        (lambda f: (f / "certificate.pem").write_text("x"), "are not a PEM certificate"),
        (swap, r"certificate.pem and .*key.pem are not a PEM certificate and .*, in this order"),
        (
            lambda f: (f / "key.pem").write_bytes((f.parent / "owner-a" / "key.pem").read_bytes()),
            "is not the key of",
        ),
    ],
)
def test_wrong_files_are_named(spoil, words, tmp_path):
    folder = certs(tmp_path / "certs") / "learner"
    spoil(folder)
    with pytest.raises(InputError, match=words):
        identity(folder)


@pytest.mark.parametrize("name", ["ca", "certificate", "key"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(name, tmp_path):
    folder = certs(tmp_path / "certs") / "learner"
    (folder / f"{name}.pem").unlink()
    os.mkfifo(folder / f"{name}.pem")
    with pytest.raises(InputError, match=rf"^tls.{name}: .*\({name}.pem is no regular file\)"):
        identity(folder)


def test_a_certificate_that_the_ca_made_with_names_of_no_known_kind_is_refused_in_a_sentence(
    serve_tls, tmp_path
):
    """OpenSSL takes it, and the library that reads it does not; the CA is the learner's."""
    folder = certs(tmp_path / "certs")

    def without_names(good):
        x400_address = bytes.fromhex("3006a304a5020500")
        alternative = ExtensionOID.SUBJECT_ALTERNATIVE_NAME
        return good.subject, [x509.UnrecognizedExtension(alternative, x400_address)]

    resigned(folder, "owner-a", without_names)
    with pytest.raises(InputError, match="cannot be read; ask for another"):
        serve_tls(folder / "owner-a")


def test_the_common_name_is_who_is_there_whatever_else_a_certificate_says(serve_tls, tmp_path):
    """Other tools write an organisation before it."""
    folder = certs(tmp_path / "certs")

    def of_a_bank(good):
        bank = x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Bank")
        return x509.Name([bank, *good.subject]), [each.value for each in good.extensions]

    resigned(folder, "owner-a", of_a_bank)
    remote = reach(serve_tls(folder / "owner-a"), identity(folder / "learner"))
    assert remote.describe().num_records == 200
    remote.disconnect()


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), "no common name"),
        (("learner", "stranger"), "or several"),
        (("stranger", "learner"), "or several"),
        (("learner\0stranger",), "cannot be printed"),
        (("\0learner",), "cannot be printed"),
    ],
)
@pytest.mark.parametrize("policy", [{}, {"learners": ["learner"]}])
def test_a_learner_is_whom_its_whole_common_name_says(serve_tls, tmp_path, policy, names, words):
    """TLS libraries end a name at its first NUL, and then it may be somebody else's."""
    folder = certs(tmp_path / "certs")
    named(folder, "learner", names)
    remote = reach(serve_tls(folder / "owner-a", **policy), identity(folder / "learner"))
    with pytest.raises(IdentityError, match=words):
        remote.describe()
    remote.disconnect()


class Ahead(datetime):
    """A clock that is five days ahead."""

    by = timedelta(days=5)

    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) + cls.by


class FarAhead(Ahead):
    """A clock that is thirty years ahead."""

    by = timedelta(days=30 * 365)


def test_a_clock_that_is_ahead_is_named_before_a_new_ca_is_made(tmp_path, monkeypatch):
    certs(tmp_path)
    monkeypatch.setattr(learner.network.certificates, "datetime", FarAhead)
    with pytest.raises(InputError, match=r"the CA expired on 2.*; set this machine's clock right"):
        certs(tmp_path)


def test_a_new_ca_is_made_where_the_folder_is_named(tmp_path, monkeypatch):
    certs(tmp_path)
    monkeypatch.setattr(learner.network.certificates, "datetime", FarAhead)
    with pytest.raises(InputError, match=r"or make a new one in an empty --certs$"):
        certs(tmp_path, option="--certs")
    guest, key = Party(name="b", role="owner", hosts=("b.example",)), ec.SECP256R1()
    with pytest.raises(InputError, match=r"in an empty --certs of copriv invite$"):
        sign_request(tmp_path, guest, ec.generate_private_key(key).public_key(), days=9)


def test_both_cas_of_a_party_stay_while_one_replaces_the_other(tmp_path):
    """The command that renews every day took the old one out, whose owners were then refused."""
    old, new = (certs(tmp_path / name) / "learner" / "ca.pem" for name in ("old", "new"))
    both = old.read_bytes() + new.read_bytes()
    new.write_bytes(both)
    certs(tmp_path / "new")
    assert new.read_bytes() == both
    certs(tmp_path / "new", renew=True)
    assert new.read_bytes() == both
    # What does not hold the CA is put right.
    new.write_bytes(old.read_bytes())
    certs(tmp_path / "new")
    assert new.read_bytes() == (tmp_path / "new" / "ca" / "certificate.pem").read_bytes()


def test_a_ca_that_is_gone_is_not_made_anew_beside_what_it_signed(tmp_path):
    certs(tmp_path / "certs")
    held = {path: path.read_bytes() for path in tmp_path.glob("certs/*/*.pem")}
    (tmp_path / "certs" / "ca").rename(tmp_path / "safe")
    with pytest.raises(InputError, match=r"certs/ca: the CA is gone, which signed what is in "):
        certs(tmp_path / "certs")
    (tmp_path / "safe").rename(tmp_path / "certs" / "ca")
    certs(tmp_path / "certs")
    assert {path: path.read_bytes() for path in tmp_path.glob("certs/*/*.pem")} == held


def test_what_a_clock_that_was_ahead_made_is_not_kept(tmp_path, monkeypatch):
    certs(tmp_path / "right")
    with monkeypatch.context() as patch:
        patch.setattr(learner.network.certificates, "datetime", Ahead)
        certs(tmp_path / "ahead")
        certs(tmp_path / "right", renew=True)
    with pytest.raises(InputError, match=r"the CA is not valid before 2.*set this machine's clock"):
        certs(tmp_path / "ahead")
    # The fault may be of the clock that made it, not of the one that reads it.
    with pytest.raises(InputError, match=r"not valid yet by this machine's clock \(2.*was ahead$"):
        identity(tmp_path / "ahead" / "learner")
    file = certs(tmp_path / "right") / "owner-a" / "certificate.pem"
    made = x509.load_pem_x509_certificate(file.read_bytes())
    assert made.not_valid_before_utc < datetime.now(UTC)
