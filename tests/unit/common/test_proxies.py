"""A proxy in between that says little, slowly."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from common.proxies import open_connection


def test_a_proxy_that_speaks_a_letter_at_a_time_is_not_listened_to_for_long(monkeypatch):
    def drip(listener: socket.socket) -> None:
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
        assert time.monotonic() - began < 2.0
        dripping.join()
