"""What an owner sends never makes the learner wait, or hold, more than it agreed to."""

import itertools
import threading
from collections import namedtuple
from dataclasses import replace

import grpc
import numpy as np
import pytest
from free_ports import free_address

from common.config import check_settings
from common.errors import InputError, UnreachableError
from common.pb import copriv_pb2 as pb
from common.terms import Query
from common.wire import retry_after
from learner.network.grpc_owner import GrpcOwner
from learner.network.streams import StreamEndedError, ThreadStream
from learner.planning.sections import LONGEST_DEADLINE, NetworkSettings


class Call:
    """A call that answers some queries and then does what it is made for."""

    def __init__(self, queries, *, answers, ends, is_over):
        self._queries, self._answers, self._ends = queries, answers, ends
        self._left, self._is_over = answers, is_over
        self.cancelled = 0

    def __iter__(self):
        for _ in range(self._answers):
            sequence = pb.Query.FromString(next(self._queries)).sequence
            self._left -= 1
            yield pb.Response(sequence=sequence).SerializeToString()
        if not self._ends:
            threading.Event().wait()  # whatever is cancelled, as gRPC sometimes does

    def is_active(self):
        return self._left > 0 or not self._is_over

    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def cancel(self):
        self.cancelled += 1


LONG = 20.0


def query(sequence):
    """A query's bytes."""
    return pb.Query(sequence=sequence).SerializeToString()


def answer_to(stream, query):
    """The answer to one query."""
    stream.send(query)
    return stream.answer()


def gives_up(stream, *, within):
    """Whether the next query ends in a TimeoutError within this many seconds."""
    ended = []

    def ask():
        with pytest.raises(TimeoutError):
            answer_to(stream, query(9))
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
def test_a_stream_that_answers_no_more_is_given_up(ends, is_over, deadline):
    calls = []

    def method(queries):
        calls.append(Call(queries, answers=2, ends=ends, is_over=is_over))
        return calls[0]

    stream = ThreadStream(method, deadline=deadline)
    assert [pb.Response.FromString(answer_to(stream, query(k))).sequence for k in (7, 8)] == [7, 8]
    assert gives_up(stream, within=LONG)
    stream.end()
    assert calls[0].cancelled == 1


class Endless(Call):
    """A call that answers without being asked, for as long as anybody reads."""

    def __init__(self):
        super().__init__(iter(()), answers=0, ends=False, is_over=False)
        self.sent = 0

    def __iter__(self):
        for self.sent in itertools.count(1):
            yield pb.Response(sequence=self.sent).SerializeToString()


def test_one_answer_is_read_for_each_query_whatever_an_owner_sends():
    call = Endless()
    stream = ThreadStream(lambda queries: call, deadline=LONG)
    answers = [pb.Response.FromString(answer_to(stream, query(0))) for _ in range(3)]
    assert [answer.sequence for answer in answers] == [1, 2, 3]
    assert call.sent == 3
    stream.end()


class Recorded(GrpcOwner):
    """An owner whose streams answer each query with its number; what they are told is noted."""

    def __init__(self, *, first_ends_with=None):
        super().__init__("north", "127.0.0.1:1", deadline=LONG)
        self.told = []
        self._fault = first_ends_with

    def _opened(self):
        told, fault, self._fault = self.told, self._fault, None
        told.append("open")

        class Told:
            def send(self, query):
                self.sequence = pb.Query.FromString(query).sequence
                told.append(f"send {self.sequence}")

            def answer(self):
                if fault is not None:
                    raise fault
                told.append(f"answer {self.sequence}")
                return pb.Response(
                    sequence=self.sequence, gradient=pb.Vector(length=1, data=bytes(8))
                ).SerializeToString()

            def end(self):
                told.append("end")

        return Told()


def asked(sequence):
    return Query(study_id="study", sequence=sequence, theta=np.zeros(1))


def test_what_was_sent_ahead_is_only_waited_for():
    owner, first, second = Recorded(), asked(1), asked(2)
    owner.send(first)
    assert owner.told == ["open", "send 1"]
    # A query of the same number at the same model, as the line makes it in its turn.
    assert owner.answer(replace(first)).sequence == 1
    assert owner.answer(second).sequence == 2
    assert owner.told == ["open", "send 1", "answer 1", "send 2", "answer 2"]


def test_another_question_does_not_take_the_answer_that_is_on_its_way():
    owner, first = Recorded(), asked(1)
    owner.send(first)
    assert owner.answer(replace(first, theta=np.zeros(1))).sequence == 1
    assert owner.told == ["open", "send 1", "end", "open", "send 1", "answer 1"]
    owner.send(asked(2))
    owner.send(asked(3))
    assert owner.answer(asked(4)).sequence == 4
    assert owner.told[6:] == [
        "send 2",
        "end",
        "open",
        "send 3",
        "end",
        "open",
        "send 4",
        "answer 4",
    ]


def test_a_stream_that_ended_with_a_question_on_its_way_is_asked_anew_on_another():
    owner, first = Recorded(first_ends_with=StreamEndedError()), asked(1)
    owner.send(first)
    assert owner.answer(first).sequence == 1
    assert owner.told == ["open", "send 1", "end", "open", "send 1", "answer 1"]
    lost = Recorded(first_ends_with=TimeoutError())
    lost.send(first)
    with pytest.raises(UnreachableError):
        lost.answer(first)
    assert lost.answer(first).sequence == 1
    assert lost.told == ["open", "send 1", "end", "open", "send 1", "answer 1"]


def test_a_question_that_cannot_be_sent_is_asked_when_its_answer_is_waited_for():
    owner = GrpcOwner("north", "127.0.0.1:1", deadline=LONG)
    owner.disconnect()
    owner.send(asked(1))
    with pytest.raises(UnreachableError):
        owner.answer(asked(1))


Item = namedtuple("Item", ["key", "value"])


class Refusal:
    """A status with trailing metadata."""

    def __init__(self, *values):
        self._values = values

    def trailing_metadata(self):
        return [Item("other", "7"), *(Item("retry-after-ms", value) for value in self._values)]


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        (("250",), 0.25),
        (("1",), 0.01),
        ((), None),
        (("",), None),
        (("0",), None),
        (("-5",), None),
        (("+5",), None),
        (("5.0",), None),
        (("1e3",), None),
        (("inf",), None),
        (("٣",), None),
        (("²",), None),
        ((" 5",), None),
        (("9" * 10,), None),
        (("9" * 400,), None),
        (("0" * 5000 + "1",), None),
        ((b"\xff",), None),
        (("x", "30"), 0.03),
    ],
)
def test_a_time_to_come_back_is_a_few_digits_or_none(values, seconds):
    assert retry_after(Refusal(*values).trailing_metadata()) == seconds


def test_whoever_waits_for_a_busy_owner_can_be_let_go_of():
    owner = GrpcOwner("north", "127.0.0.1:1", deadline=10 * LONG)
    waiting = threading.Event()

    class BusyError(Refusal, grpc.RpcError):
        pass

    def refuses():
        waiting.set()
        raise BusyError("90000")

    failures = []

    def ask():
        try:
            owner._call(refuses)
        except UnreachableError as error:
            failures.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    assert waiting.wait(LONG)
    owner.disconnect()
    asking.join(LONG)
    assert not asking.is_alive()
    assert "closed by us" in str(failures[0])


@pytest.mark.parametrize("ends", [TimeoutError, grpc.RpcError])
def test_what_an_owner_said_before_it_fell_silent_is_told(ends):
    """As of a line too slow for a feature map: the owner says which setting to raise."""
    owner = GrpcOwner("north", "127.0.0.1:1", deadline=LONG)

    class StatusError(Refusal, grpc.RpcError):
        def __init__(self, status, *values):
            super().__init__(*values)
            self._status = status

        def code(self):
            return self._status

        def details(self):
            return "no whole message came within 60 seconds"

    late = StatusError(grpc.StatusCode.DEADLINE_EXCEEDED)
    outcomes = iter(
        [
            StatusError(grpc.StatusCode.UNAVAILABLE, "10"),
            TimeoutError() if ends is TimeoutError else late,
        ]
    )

    def call():
        raise next(outcomes)

    words = "did not answer in time; .*; before that it said: no whole message came within 60 sec"
    with pytest.raises(UnreachableError, match=words):
        owner._call(call)
    owner.disconnect()


def test_an_owner_that_has_come_is_found_by_the_next_call(owner_folder, serve_owner):
    address = free_address()
    owner = GrpcOwner("north", address, deadline=LONG)
    try:
        for _ in range(5):
            with pytest.raises(UnreachableError, match="nothing listens there"):
                owner.describe()
        serve_owner(owner_folder("north", also={"listen": address}))
        assert owner.describe().name == "north"
    finally:
        owner.disconnect()


def test_the_longest_deadline_is_waited_for_and_a_longer_one_is_refused(owner_folder, serve_owner):
    """Of 10^10 seconds gRPC made none: every owner was away."""
    running = serve_owner(owner_folder("north"))
    kept = check_settings(NetworkSettings, {"deadline": LONGEST_DEADLINE}, where="study.toml")
    owner = GrpcOwner("north", f"127.0.0.1:{running.port}", deadline=kept.deadline)
    try:
        assert owner.describe().name == "north"
    finally:
        owner.disconnect()
    with pytest.raises(InputError, match="expected a number above 0 and at most 31536000"):
        check_settings(NetworkSettings, {"deadline": 1e10}, where="study.toml")
