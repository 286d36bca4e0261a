"""Who is waited for as a training starts is told, once, and so is that all have come."""

import logging

import pytest

from common.errors import UnreachableError
from learner.results.arrivals import Arrivals


@pytest.fixture
def pass_time(monkeypatch):
    """Lets the timers go off that were started and not cancelled."""
    running = []

    class Timer:
        def __init__(self, seconds, work):
            self.work = work

        def start(self):
            running.append(self)

        def cancel(self):
            running.remove(self)

    monkeypatch.setattr("learner.results.arrivals.threading.Timer", Timer)

    def go_off():
        due, running[:] = running[:], []
        for timer in due:
            timer.work()

    return go_off


def ask(arrivals, name, *, is_there=True):
    """The owner is asked; it answers if it is there."""
    with arrivals.expected(name):
        if not is_there:
            raise UnreachableError(f"owner {name}: nobody is there")


def test_who_is_waited_for_is_told_once_and_so_is_the_last_arrival(caplog, pass_time):
    came = []
    arrivals = Arrivals(list("abc"), patience=600.0, on_all=lambda: came.append(None))
    ask(arrivals, "a")
    for _ in range(2):
        for name in "bc":
            with pytest.raises(UnreachableError):
                ask(arrivals, name, is_there=False)
        pass_time()
    ask(arrivals, "b")
    assert not came
    ask(arrivals, "c")
    ask(arrivals, "c")
    assert len(came) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "waiting for b, c; gives up after 600 s"
    ]


def test_who_is_still_waited_for_is_told_as_others_come(caplog, pass_time):
    """Those that come together are told of together, and nothing is said twice."""
    arrivals = Arrivals(list("abcd"), patience=600.0, on_all=lambda: None)
    with pytest.raises(UnreachableError):
        ask(arrivals, "d", is_there=False)
    for came in ("", "ab", "", "c"):
        for name in came:
            ask(arrivals, name)
        with pytest.raises(UnreachableError):
            ask(arrivals, "d", is_there=False)
        pass_time()
    arrivals.close()
    assert [record.getMessage() for record in caplog.records] == [
        "waiting for a, b, c, d; gives up after 600 s",
        "still waiting for c, d",
        "still waiting for d",
    ]


def test_owners_that_come_at_once_are_not_spoken_of(caplog, pass_time):
    came = []
    arrivals = Arrivals(["a"], patience=600.0, on_all=lambda: came.append(None))
    ask(arrivals, "a")
    pass_time()
    assert (came, caplog.records) == ([], [])


def test_of_many_some_are_named_and_nobody_after_the_end(caplog, pass_time):
    for ends in (False, True):
        arrivals = Arrivals([f"o{i}" for i in range(90)], patience=5.0, on_all=lambda: None)
        with pytest.raises(UnreachableError):
            ask(arrivals, "o1", is_there=False)
        if ends:
            arrivals.close()
        pass_time()
    (told,) = caplog.records
    assert told.levelno == logging.WARNING
    assert told.getMessage() == (
        "waiting for o0, o1, o2, o3, o4, o5 and 84 more; gives up after 5 s"
    )
