"""A look at who is there ends in time, whatever the other side sends and however much of it."""

import contextlib
import hashlib
import hmac
import socket
import ssl
import struct
import threading
from contextlib import contextmanager

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from identities import tls_of

from common.diagnosis import Cause, why_unreachable
from common.tls import load_identity
from learner.network.certificates import Party, make_certificates

STEP_SECONDS, LONGEST_SECONDS = 0.3, 10.0
# In the clear: that another handshake is wanted, which is passed over while there is one.
HELLO_REQUEST = b"\x16\x03\x03\x00\x04" + bytes(4)
# Under which Python notes the secret of what a server sends after its handshake.
APPLICATION = "SERVER_TRAFFIC_SECRET_0"
# A session to come back with: its lifetime, age, number, name and extensions.
TICKET = b"\x04\x00\x00\x0f" + struct.pack(">II", 1, 0) + b"\x01n" + b"\x00\x01t" + bytes(2)


def derived(secret, label, length):
    """A key of TLS 1.3."""
    wanted = struct.pack(">HB", length, 6 + len(label)) + b"tls13 " + label + b"\x00"
    return hmac.new(secret, wanted + b"\x01", hashlib.sha384).digest()[:length]


def encrypted(secret, content, *, number):
    """A record of an honest handshake's server, with messages of a handshake in it."""
    key = AESGCM(derived(secret, b"key", 32))
    nonce = int.from_bytes(derived(secret, b"iv", 12), "big") ^ number
    inner = content + b"\x16"
    head = b"\x17\x03\x03" + struct.pack(">H", len(inner) + 16)
    return head + key.encrypt(nonce.to_bytes(12, "big"), inner, head)


@contextmanager
def flooding(flood):
    """The address of a port that sends what it is told to until the end."""

    def send():
        near, _ = listening.accept()
        with near, contextlib.suppress(OSError):
            for sent in flood(near):
                near.sendall(sent)
                if is_over.is_set():
                    return

    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            is_over.set()
            thread.join()


def looked(address, who):
    """Why nobody is reached; None if that is not known in time."""
    found = []

    def look():
        found.append(why_unreachable(address, who, far="owner", timeout=STEP_SECONDS))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(LONGEST_SECONDS)
    return found[0] if found else None


@pytest.fixture
def certs(tmp_path):
    parties = [
        Party(name="north", role="owner", hosts=("127.0.0.1",)),
        Party(name="lab", role="learner"),
    ]
    make_certificates(tmp_path, parties, study="t", ca_days=9, days=9, renew=False)
    return tmp_path


@pytest.mark.parametrize("whose", ["lab", None])
def test_a_stranger_that_wants_another_handshake_without_end_is_left(certs, whose):
    who = whose and load_identity(tls_of(certs / whose), base=certs, side="client")

    def requests(near):
        near.recv(1)
        while True:
            yield 20_000 * HELLO_REQUEST

    with flooding(requests) as address:
        assert looked(address, who) == Cause.STALLED


def test_an_owner_that_gives_sessions_without_end_is_left(certs):
    folder = certs / "north"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    context.num_tickets, context.keylog_filename = 0, certs / "secrets"
    content = 16_000 // len(TICKET) * TICKET

    def tickets(near):
        secured = context.wrap_socket(near.dup(), server_side=True)
        with secured:
            assert secured.cipher()[0] == "TLS_AES_256_GCM_SHA384"
            noted = [line.split() for line in (certs / "secrets").read_text().splitlines()]
            secret = bytes.fromhex({kind: key for kind, *_, key in noted}[APPLICATION])
            number = 0
            while True:
                yield encrypted(secret, content, number=number)
                number += 1

    who = load_identity(tls_of(certs / "lab"), base=certs, side="client")
    with flooding(tickets) as address:
        assert looked(address, who) == Cause.STALLED
