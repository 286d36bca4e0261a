"""What is not even looked into."""

import tracemalloc

import numpy as np
import pytest

from common import codec
from common.errors import MalformedError
from common.pb import copriv_pb2 as pb

NAMES = b"\x1a\x00" * 2_500_000
# Begins a description of this many bytes.
DESCRIBES = b"\x22\xc0\x96\xb1\x02"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (pb.OwnerDescription, NAMES),
        (
            pb.OwnerMessage,
            pb.OwnerMessage(call=7).SerializeToString() + b"\x22\xc0\x96\xb1\x02" + NAMES,
        ),
        # A response before it, or one that claims to be as long.
        (pb.OwnerMessage, b"\x32\x00" + DESCRIBES + NAMES),
        (pb.OwnerMessage, b"\x32\xc0\x96\xb1\x02" + NAMES + b"\x22\x00"),
        (pb.CloseSummary, NAMES),
    ],
)
def test_a_message_of_millions_of_names_is_not_read(kind, content):
    tracemalloc.start()
    try:
        assert isinstance(codec.reader(kind)(content), codec.Unreadable)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("call", [0, 1, 2**40, 2**64 - 1])
def test_a_response_of_any_length_is_read(call):
    response = pb.Response(
        study_id="s", sequence=3, gradient=codec.vector_to_pb(np.arange(600_000, dtype=np.float64))
    )
    assert codec.reader(pb.Response)(response.SerializeToString()) == response
    message = pb.OwnerMessage(call=call, response=response)
    assert codec.reader(pb.OwnerMessage)(message.SerializeToString()) == message


@pytest.mark.parametrize(
    ("numerator", "denominator", "shown"),
    [("-1", "1", "-1/1"), ("1", "0", "1/0"), ("", "1", "/1"), ("9" * 61, "1", f"{'9' * 37}...")],
)
def test_what_is_no_amount_is_shown_beside_what_one_is(numerator, denominator, shown):
    message = pb.Rational(numerator=numerator, denominator=denominator)
    with pytest.raises(MalformedError, match=f"an amount: got {shown}, expected .* not below 0"):
        codec.rational_from_pb(message)
