"""A proxy in between that says little, slowly; and none where nothing is in between."""

import contextlib
import socket
import threading
import time

import grpc
import pytest

from common.channels import open_channel
from common.errors import UnreachableError
from common.proxies import open_connection
from owner.health import ask_health


def plain_text(address):
    with open_channel(address, None, ()) as channel:
        grpc.channel_ready_future(channel).result(timeout=0.3)


def own_handshake(address):
    host, _, port = address.rpartition(":")
    open_connection(host.strip("[]"), int(port), 0.3).close()


def health(address):
    ask_health(address, seconds=0.3)


def all_asked(listener):
    """What a proxy was asked: channels that others have left in this process may ask, too."""
    asked = []
    listener.settimeout(0.1)
    with contextlib.suppress(TimeoutError):
        while True:
            line, _ = listener.accept()
            with line:
                line.settimeout(0.1)
                asked.append(line.recv(200).decode("ascii"))
    return asked


@pytest.mark.parametrize("connect", [plain_text, own_handshake, health])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_plain_text_to_this_machine_goes_to_no_proxy(monkeypatch, host, connect):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for name in ("no_proxy", "no_grpc_proxy"):
            monkeypatch.delenv(name, raising=False)
        # A proxy is mostly another machine, and would read the learner's token.
        for name in ("grpc_proxy", "https_proxy", "http_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{listener.getsockname()[1]}")
        with contextlib.suppress(grpc.FutureTimeoutError, OSError, UnreachableError):
            connect(f"{host}:1")
        assert not [asked for asked in all_asked(listener) if f"CONNECT {host}:1 " in asked]


def test_a_proxy_that_speaks_a_letter_at_a_time_is_not_listened_to_for_long(monkeypatch):
    def drip(listener):
        line, _ = listener.accept()
        with line, contextlib.suppress(OSError):
            for letter in b"HTTP/1.0 200 " + b"x" * 100:
                line.sendall(bytes([letter]))
                time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        for name in ("grpc_proxy", "no_proxy", "no_grpc_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{listener.getsockname()[1]}")
        dripping = threading.Thread(target=drip, args=(listener,))
        dripping.start()
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            open_connection("far.example", 1, 0.3)
        assert time.monotonic() - began < 4.0
        dripping.join()
