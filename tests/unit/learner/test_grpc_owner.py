"""A stream of queries never makes the learner wait longer than its deadline."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import pytest

from common.pb import copriv_pb2 as pb
from learner.grpc_owner import _Stream


class Call:
    """A call that answers some queries and then does what it is made for."""

    def __init__(
        self, queries: Iterator[pb.Query], *, answers: int, ends: bool, is_over: bool
    ) -> None:
        self._queries, self._answers, self._ends = queries, answers, ends
        self._left, self._is_over = answers, is_over
        self.cancelled = 0

    def __iter__(self) -> Iterator[pb.Response]:
        for _ in range(self._answers):
            sequence = next(self._queries).sequence
            self._left -= 1
            yield pb.Response(sequence=sequence)
        if not self._ends:
            threading.Event().wait()  # whatever is cancelled, as gRPC sometimes does

    def is_active(self) -> bool:
        return self._left > 0 or not self._is_over

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def cancel(self) -> None:
        self.cancelled += 1


LONG = 20.0


def gives_up(stream: _Stream, *, within: float) -> bool:
    """Whether the next query ends in a TimeoutError within so many seconds."""
    ended: list[bool] = []

    def ask() -> None:
        with pytest.raises(TimeoutError):
            stream.ask(pb.Query(sequence=9))
        ended.append(True)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(within)
    return ended == [True]


@pytest.mark.parametrize(
    ("ends", "is_over", "deadline"),
    [
        (False, False, 0.05),
        # Who is told, or looks, that it is over does not wait for the deadline.
        (True, False, 2 * LONG),
        (False, True, 2 * LONG),
    ],
)
def test_a_stream_that_answers_no_more_is_given_up(
    ends: bool, is_over: bool, deadline: float
) -> None:
    calls: list[Call] = []

    def method(queries: Iterator[pb.Query]) -> Call:
        calls.append(Call(queries, answers=2, ends=ends, is_over=is_over))
        return calls[0]

    stream = _Stream(method, deadline=deadline)  # type: ignore[arg-type]
    assert [stream.ask(pb.Query(sequence=k)).sequence for k in (7, 8)] == [7, 8]
    assert gives_up(stream, within=LONG)
    stream.end()
    assert calls[0].cancelled == 1
