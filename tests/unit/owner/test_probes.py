"""What a probe asks: nobody is asked who it is, so little of it is kept."""

import grpc
import pytest
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from owner.health import SERVICE
from owner.probes import _request

# A field that no message has, of this many bytes.
MORE = b"\xa2\x06\x80\x80\x80\x01" + bytes(2**21)


@pytest.mark.parametrize("service", ["", SERVICE])
def test_a_probe_keeps_the_name_of_a_service_and_nothing_else(service):
    asked = health_pb2.HealthCheckRequest(service=service)
    kept = _request(asked.SerializeToString() + MORE)
    assert kept.SerializeToString() == asked.SerializeToString()


def test_a_probe_for_a_name_that_no_service_has_is_no_message():
    long = health_pb2.HealthCheckRequest(service="s" * 2**21).SerializeToString()
    for content in (long, b"\xff", grpc.aio.EOF):
        with pytest.raises(DecodeError):
            _request(content)
