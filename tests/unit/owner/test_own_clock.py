"""An owner's own clock asks for one update at a time, at times that nothing else decides."""

import itertools
import math

import numpy as np
import pytest

from common.errors import MalformedError
from common.pb import copriv_pb2 as pb
from owner.own_clock import MOST_WAITING, Outgoing, OwnClock

# In real time, a first tick that no test waits for.
SLOW = 1e6


def clock(sent, rate=2.0):
    return OwnClock(sent.append, rate=rate, rng=np.random.default_rng(3))


def gaps(count, rate=2.0):
    return np.random.default_rng(3).exponential(1.0 / rate, size=count).tolist()


def test_each_update_is_asked_for_once_an_exponential_gap_after_the_one_before():
    sent = []
    own = clock(sent)
    own.start(pb.ClockStart(time=5.0, time_scale=0.0))
    for _ in range(3):
        own.answered()
    own.stop()
    # What is answered after that was no update of its own.
    own.answered()
    times = [message.request.time for message in sent]
    assert times == list(itertools.accumulate(gaps(4), initial=5.0))[1:]


def test_an_answer_to_a_question_of_the_learners_own_winds_no_clock():
    """It would tick more often than its rate, and its ticks would depend on who else asked."""
    sent = []
    own = clock(sent)
    own.start(pb.ClockStart(time=0.0, time_scale=SLOW))
    for _ in range(3):
        own.answered()
    assert sent == []
    own.start(pb.ClockStart(time=0.0, time_scale=0.0))
    assert [message.request.time for message in sent] == gaps(2)[1:]
    own.stop()


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("key", ["time", "time_scale"])
def test_a_start_at_no_time_is_refused_and_starts_nothing(key, wrong):
    sent = []
    with pytest.raises(MalformedError, match="expected finite numbers of 0 or more"):
        clock(sent).start(pb.ClockStart(**{"time": 0.0, "time_scale": 0.0, key: wrong}))
    assert sent == []


def test_for_a_learner_that_reads_nothing_no_more_than_some_messages_wait():
    outgoing = Outgoing()
    for _ in range(3 * MOST_WAITING):
        outgoing.put(pb.OwnerMessage())
    assert outgoing.is_full
    outgoing.end()
    assert len(list(outgoing.messages())) == MOST_WAITING + 1
