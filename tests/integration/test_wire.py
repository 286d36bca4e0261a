"""The owner's port as any gRPC client sees it."""

import grpc
import numpy as np
import pytest
from calls import methods
from grpc_health.v1 import health_pb2, health_pb2_grpc

from common import codec
from common.pb import copriv_pb2 as pb
from common.terms import Query


@pytest.fixture
def running(owner_folder, serve_owner):
    return serve_owner(owner_folder())


@pytest.fixture
def channel(running):
    with grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel:
        yield channel


@pytest.fixture
def stub(channel):
    return methods("DataOwner", channel)


def query(sequence):
    return codec.query_to_pb(Query(study_id="study-1", sequence=sequence, theta=np.zeros(4)))


def test_one_call_and_a_stream_answer_the_same_queries(stub, make_terms):
    stub.Enroll(codec.terms_to_pb(make_terms()))
    one = stub.AnswerOnce(query(1))
    streamed = list(stub.Answer(iter([query(1), query(2)])))
    assert streamed[0] == one
    assert streamed[1].sequence == 2
    assert streamed[1].gradient != one.gradient


def test_health_says_serving(channel):
    health = health_pb2_grpc.HealthStub(channel)
    for service in ("", "copriv.v1.DataOwner"):
        answer = health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_describe_tells_what_is_public(stub):
    told = codec.description_from_pb(stub.Describe(pb.DescribeRequest()))
    assert told.num_records == 200
    assert told.columns == ("column-0", "column-1", "column-2", "y")
    assert told.epsilon_left == told.epsilon_per_study == 10
