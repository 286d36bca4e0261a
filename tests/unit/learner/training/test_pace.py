"""How the loop waits for a tick to be due."""

from types import SimpleNamespace

import pytest

from learner.algorithms.clocks import Tick
from learner.training import pace
from learner.training.journal_values import TickEntry
from learner.training.pace import Pace


@pytest.fixture
def waits(monkeypatch):
    """The seconds of each wait, in a time that goes on with them alone."""
    waited = []

    def sleep(seconds):
        # What the system's refuses.
        assert 0 <= seconds < 2**33
        waited.append(seconds)

    fake = SimpleNamespace(monotonic=lambda: sum(waited), sleep=sleep)
    monkeypatch.setattr(pace, "time", fake)
    return waited


def test_a_tick_that_is_due_in_some_centuries_is_waited_for(waits, monkeypatch):
    monkeypatch.setattr(pace, "LONGEST_SLEEP", 4e9)
    Pace(time_scale=10.0, patience=1.0).wait_for(Tick(1e9, (0,)))
    assert waits == [4e9, 4e9, 2e9]


def test_a_run_that_goes_on_waits_from_where_it_came_to(waits):
    """It would wait once more for all the time that its earlier starts took."""
    going_on = Pace(time_scale=10.0, patience=1.0)
    going_on.replayed(TickEntry(position=6, time=100.0, wall_seconds=1234.0, responses={}))
    going_on.wait_for(Tick(100.5, (0,)))
    going_on.wait_for(Tick(103.0, (0,)))
    # One that is overdue is not waited for.
    going_on.wait_for(Tick(102.0, (0,)))
    assert waits == [5.0, 25.0]
    assert going_on.virtual_now() == 103.0
    assert going_on.wall_seconds() == 1234.0 + 30.0


def test_without_a_scale_nothing_is_waited_for(waits):
    Pace(time_scale=0.0, patience=1.0).wait_for(Tick(1e9, (0,)))
    assert waits == []
