"""A stream of queries never makes the learner wait longer than its deadline."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from common.pb import copriv_pb2 as pb
from learner.grpc_owner import _Stream


class Call:
    """A call that answers some queries and then does what it is made for."""

    def __init__(self, queries: Iterator[pb.Query], *, answers: int, ends: bool) -> None:
        self._queries, self._answers, self._ends = queries, answers, ends
        self.cancelled = 0

    def __iter__(self) -> Iterator[pb.Response]:
        for _ in range(self._answers):
            yield pb.Response(sequence=next(self._queries).sequence)
        if not self._ends:
            threading.Event().wait()  # whatever is cancelled, as gRPC sometimes does

    def cancel(self) -> None:
        self.cancelled += 1


@pytest.mark.parametrize("ends", [False, True])
def test_a_stream_that_neither_answers_nor_ends_is_given_up(ends: bool) -> None:
    calls: list[Call] = []

    def method(queries: Iterator[pb.Query]) -> Call:
        calls.append(Call(queries, answers=2, ends=ends))
        return calls[0]

    stream = _Stream(method, deadline=0.05)  # type: ignore[arg-type]
    assert [stream.ask(pb.Query(sequence=k)).sequence for k in (7, 8)] == [7, 8]
    with pytest.raises(TimeoutError):
        stream.ask(pb.Query(sequence=9))
    stream.end()
    assert calls[0].cancelled == 1
