"""What a proxy says in an owner's or a learner's place is no word of theirs."""

import contextlib
import logging
import socket
import struct
import threading

import pytest
from waiting import wait_until

from common.errors import UnreachableError
from learner.network.grpc_owner import GrpcOwner
from owner.attaching import open_attachment

HEADERS, RESET, SETTINGS = 1, 3, 4
LONG = 20.0
# Pages that gRPC takes for a refusal, and errors of HTTP/2 that it takes for one, or for a failure.
ENDS = ("401", "403", "404", "502", "12", "1", "2", "13")


def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def end_of(stream, end):
    """The end of a call: a page with this status, or a stream reset for this number."""
    if len(end) == 3:
        return frame(HEADERS, 5, stream, b"\x08\x03" + end.encode())
    return frame(RESET, 0, stream, struct.pack(">I", int(end)))


@contextlib.contextmanager
def proxy(end, port=0):
    """The port of one that ends every call by itself."""

    def talk(line):
        with contextlib.suppress(OSError), line, line.makefile("rb") as said:
            line.sendall(frame(SETTINGS, 0, 0))
            said.read(24)
            while len(head := said.read(9)) == 9:
                said.read(int.from_bytes(head[:3]))
                if head[3] == HEADERS:
                    line.sendall(end_of(int.from_bytes(head[5:]), end))

    def take():
        with contextlib.suppress(OSError):
            while True:
                line, _ = server.accept()
                threading.Thread(target=talk, args=(line,), daemon=True).start()

    with socket.create_server(("127.0.0.1", port)) as server:
        threading.Thread(target=take, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("end", ENDS)
def test_a_proxys_refusal_is_none_of_the_owners(end):
    with proxy(end) as port:
        owner = GrpcOwner("north", f"127.0.0.1:{port}", deadline=LONG)
        with pytest.raises(UnreachableError, match=f"gRPC ended the call .*{end}.* proxy"):
            owner.describe()
        owner.disconnect()


@contextlib.contextmanager
def attaching(settings, port):
    """An owner that goes to a port, for as long as it does."""
    attachment = open_attachment(
        settings,
        learner=f"127.0.0.1:{port}",
        stay=False,
        insecure=False,
        insecure_noise_seed=None,
    )
    stop = threading.Event()
    running = threading.Thread(target=attachment.run, args=(stop,), daemon=True)
    running.start()
    try:
        yield running
    finally:
        stop.set()
        running.join(LONG)


@pytest.mark.parametrize("end", ENDS)
def test_a_proxys_refusal_is_none_of_the_learners(end, owner_folder, caplog):
    caplog.set_level(logging.WARNING)
    with proxy(end) as port, attaching(owner_folder(), port) as running:
        wait_until(lambda: "gRPC ended the call" in caplog.text or not running.is_alive())
        assert running.is_alive()
        assert f" {end})" in caplog.text


def test_another_reason_for_an_absence_is_said_too(owner_folder, caplog):
    caplog.set_level(logging.WARNING)
    with proxy("502") as port:
        pass
    with attaching(owner_folder(), port):
        wait_until(
            lambda: "nothing listens there; start it, or check its address; try" in caplog.text
        )
        with proxy("502", port):
            wait_until(lambda: "gRPC ended the call" in caplog.text, seconds=LONG)
