"""Places for calls: who may hold how many open at once; and replies that nobody takes."""

import asyncio
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from common.errors import BusyError
from owner.calls import Calls, Patience, Places


def test_one_learner_takes_its_own_places_and_no_more():
    places = Places(each=2, total=10)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(places.taken("ann"))
        with pytest.raises(BusyError, match="no more calls of this learner") as busy:
            stack.enter_context(places.taken("ann"))
        assert busy.value.retry_after > 0
        stack.enter_context(places.taken("ben"))


def test_all_learners_together_take_no_more_than_the_total():
    places = Places(each=2, total=3)
    with ExitStack() as stack:
        for learner in ("ann", "ben", "carl"):
            stack.enter_context(places.taken(learner))
        with pytest.raises(BusyError, match="no more calls open at once"):
            stack.enter_context(places.taken("dora"))


def test_a_call_that_ends_gives_its_place_back_whatever_ended_it():
    places = Places(each=1, total=1)
    for _ in range(3):
        with pytest.raises(ValueError, match="it failed"), places.taken("ann"):
            raise ValueError("it failed")
    with places.taken("ben"):
        pass


def test_a_reply_that_is_long_on_its_way_is_no_reason_to_refuse_for_good():
    """After a refusal for good the learner would count the answer as lost, or the owner as gone."""

    async def never(_):
        await asyncio.sleep(60)

    async def deliver():
        service = SimpleNamespace(access=SimpleNamespace(calls_per_learner=1))
        calls, patience = Calls(service, idle_seconds=0.05), Patience(0.05)
        try:
            await calls._deliver(SimpleNamespace(write=never), b"a reply", patience)
        finally:
            patience.end()
            calls.close()

    with pytest.raises(BusyError, match=r"not taken within 0\.05 seconds") as busy:
        asyncio.run(deliver())
    assert busy.value.retry_after > 0
