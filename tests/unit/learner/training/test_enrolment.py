"""Many owners are called at the same time; what comes of it does not depend on who was first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from common.errors import InputError, PolicyError, UnreachableError, UntrustedError
from learner.training.enrolment import all_present, at_once


def fails(error: Exception, *, after: float = 0.0) -> Callable[[], str]:
    def call() -> str:
        time.sleep(after)
        raise error

    return call


def test_calls_are_made_at_the_same_time_and_told_in_order() -> None:
    together = threading.Barrier(3, timeout=10)

    def call(index: int) -> int:
        together.wait()
        time.sleep(0.05 * (2 - index))
        return index

    assert at_once(call, range(3)) == [0, 1, 2]
    assert at_once(call, ()) == []


def test_who_is_not_there_yet_is_waited_for() -> None:
    tries: list[None] = []

    def late() -> str:
        tries.append(None)
        if len(tries) < 3:
            raise UnreachableError("owner b: nobody is there")
        return "b"

    assert all_present([lambda: "a", late, lambda: "c"], patience=30.0) == ["a", "b", "c"]
    assert len(tries) == 3


def test_who_stays_away_is_bad_input() -> None:
    away = fails(UnreachableError("owner b: nobody is there"))
    with pytest.raises(InputError, match="owner b: nobody is there"):
        all_present([lambda: "a", away], patience=0.1)


def test_the_first_in_order_that_refuses_is_told_and_nobody_is_waited_for() -> None:
    away = fails(UnreachableError("owner a: nobody is there"))
    slow, quick = fails(PolicyError("owner b"), after=0.2), fails(PolicyError("owner c"))
    began = time.monotonic()
    with pytest.raises(PolicyError, match="owner b"):
        all_present([away, slow, quick], patience=30.0)
    assert time.monotonic() - began < 10
    with pytest.raises(InputError, match="a certificate"):
        all_present([away, fails(UntrustedError("a certificate"))], patience=30.0)
