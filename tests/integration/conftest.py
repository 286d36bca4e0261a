"""What several integration tests need: an HTTP proxy in between, and answers that take long."""

import asyncio
import contextlib
import socket
import threading
import time
from contextlib import contextmanager

import pytest
from listening import Listening

import owner.answering


class ConnectProxy(Listening):
    """An HTTP proxy: it connects whoever asks with a port of this machine, or nobody."""

    def __init__(self, *, refuses=False):
        self.refuses = refuses
        # Not by one test alone: channels that others have left in this process may ask, too.
        self.asked_for = []
        super().__init__()

    def treat(self, near):
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += near.recv(1)
        target = request.split()[1].decode()
        self.asked_for.append(target)
        if self.refuses:
            near.sendall(b"HTTP/1.1 403 not \x1b[2Jhere\r\n\r\n")
            return
        try:
            far = socket.create_connection(("127.0.0.1", int(target.rpartition(":")[2])))
        except ConnectionRefusedError:
            near.sendall(b"HTTP/1.1 502 nobody there\r\n\r\n")
            return
        with far:
            near.sendall(b"HTTP/1.1 200 ok\r\nVia: us\r\n\r\n")
            back = threading.Thread(target=pump, args=(far, near))
            back.start()
            pump(near, far)
            back.join()


def pump(source, target):
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxied(monkeypatch):
    """A proxy that the environment names, for as long as the block lasts."""

    @contextmanager
    def within(*, refuses=False):
        proxy = ConnectProxy(refuses=refuses)
        with monkeypatch.context() as patch:
            patch.setenv("https_proxy", f"http://{proxy.address}")
            for name in ("no_proxy", "no_grpc_proxy", "grpc_proxy"):
                patch.delenv(name, raising=False)
            yield proxy
        proxy.stop()

    return within


@pytest.fixture
def slow_answers(monkeypatch):
    """Answers that take so many seconds; the list gets an entry for each of the event loop's."""

    def begin(seconds):
        by_the_loop = []
        exact = owner.answering.exact_answer

        def slow(*given):
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop()
                by_the_loop.append(True)
            time.sleep(seconds)
            return exact(*given)

        monkeypatch.setattr(owner.answering, "exact_answer", slow)
        return by_the_loop

    return begin
