"""Calls of methods that are none, and calls that end well without a message."""

import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from common.errors import UnreachableError
from learner.network.attachment_server import AttachmentServer
from learner.network.grpc_owner import GrpcOwner
from owner.health import SERVICE, ask_health

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
HEADERS, END, UNIMPLEMENTED = 1, 5, b"\x0bgrpc-status\x0212"
NAMES = {
    "no UTF-8": b"\xff\xff/\xfe",
    "no UTF-8 in a method": f"/{SERVICE}/".encode() + b"\xc3",
    "control": b"/\x00/\x1b[2J",
    "long": b"/a" * 1000,
    "none": b"/",
}


def text(value):
    """A text of a header, with its length in front of it."""
    if len(value) < 127:
        return bytes([len(value)]) + value
    rest = len(value) - 127
    return bytes([127, rest % 128 | 128, rest // 128]) + value


def called(port, name):
    """What is said to a call of a method of this name, up to its status or the connection's end."""
    headers = {":path": name, ":authority": b"x", "te": b"trailers"}
    fields = b"\x83\x86" + b"".join(
        b"\x00" + text(key.encode()) + text(value)
        for key, value in {**headers, "content-type": b"application/grpc"}.items()
    )
    frame = struct.pack(">I", len(fields))[1:] + bytes([HEADERS, END]) + struct.pack(">I", 1)
    said = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
        line.sendall(PREFACE + frame + fields)
        while UNIMPLEMENTED not in said and (more := line.recv(2**16)):
            said += more
    return said


@pytest.fixture
def running(owner_folder, serve_owner):
    return serve_owner(owner_folder(also={"health": "127.0.0.1:0"}))


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_method_whose_name_is_no_text_ends_no_server(running, name):
    """gRPC read the name as UTF-8 in the loop that takes all calls, and the port was closed."""
    for port in (running.port, running.probes.number):
        for _ in range(3):
            assert UNIMPLEMENTED in called(port, name)
    owner = GrpcOwner("owner-a", f"127.0.0.1:{running.port}", deadline=20)
    assert owner.describe().name == "owner-a"
    owner.disconnect()
    for port in (running.port, running.probes.number):
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            asked = health_pb2.HealthCheckRequest(service=SERVICE)
            answer = stub.Check(asked, timeout=20)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_method_whose_name_is_no_text_ends_no_learner(name):
    with AttachmentServer(["owner-a"], "127.0.0.1:0", deadline=5, patience=5) as learner:
        for _ in range(3):
            assert UNIMPLEMENTED in called(learner.port, name)


def test_a_probe_that_ends_well_without_a_message_tells_that_nobody_serves():
    server = grpc.server(ThreadPoolExecutor(1))
    ends = grpc.stream_stream_rpc_method_handler(lambda requests, context: iter(()))
    check = grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": ends})
    server.add_generic_rpc_handlers((check,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(UnreachableError, match="does not serve"):
            ask_health(f"127.0.0.1:{port}", seconds=10)
    finally:
        server.stop(None)
