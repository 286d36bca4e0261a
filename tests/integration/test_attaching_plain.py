"""Owners that come to the learner in plain text: who is taken for whom, as privacy.md says."""

import queue

import grpc
import pytest

from common.pb import copriv_pb2 as pb
from common.wire import token_in
from learner.network.attachment_server import AttachmentServer

ATTACH = "/copriv.v1.Learner/Attach"
SHOWN = "copriv_secret"


def test_in_plain_text_whoever_comes_last_under_a_name_has_its_place():
    hello = pb.OwnerMessage(hello=pb.Hello(name="north")).SerializeToString()
    said = []

    with (
        AttachmentServer(
            ["north", "south"], "127.0.0.1:0", deadline=20, patience=20, tokens=[SHOWN, None]
        ) as learner,
        grpc.insecure_channel(f"127.0.0.1:{learner.port}") as channel,
    ):

        def come():
            said.append(queue.SimpleQueue())
            said[-1].put(hello)
            return channel.stream_stream(ATTACH)(iter(said[-1].get, None), timeout=20)

        honest = come()
        # The learner shows who it is to whoever says that name.
        assert token_in(honest.initial_metadata()) == SHOWN
        other = come()
        assert token_in(other.initial_metadata()) == SHOWN
        assert list(honest) == []
        said[-1].put(b"\xff\xff\xff\x01no")
        assert list(other) == []
        with pytest.raises(grpc.RpcError) as refused:
            list(come())
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert learner.owners[0].fault is not None
        assert learner.owners[1].fault is None
        for one in said:
            one.put(None)
